"""The arrow goes one way: shelves import the core, the core finds shelves by name only. And nothing is unpickled.

The order of the rooms inside the core is a contract of import-linter, in pyproject.toml.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from robustbench_dec import shelf
from robustbench_dec.attack import Attack
from robustbench_dec.problem import Problem
from robustbench_dec.trainer import Trainer
from tests.support import ROOT

CONTRACTS: dict[str, Any] = {"trainer": Trainer, "attack": Attack, "problem": Problem, "architecture": nn.Module}
SAYS_NOTHING = {"told", "one"}
"""Names that stood for anything in 0.1.0, where each kind of thing has a word of its own."""
MODULES_THAT_DO_NOT_TELL = {
    *("batches", "benchmarking", "foreign", "library", "measure", "passes", "statistics", "table1", "view"),
    *("base", "common", "helpers", "misc", "utils"),
}
MOST_PARAMETERS = 8
FRONT_DOOR = {"api.py": {"benchmark", "compare"}, "runs.py": {"train"}}
"""What a user calls in Python has more: a notebook completes keywords, not fields of an object to be built first."""
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def files_in(*folders: str) -> list[Path]:
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert len(found) >= 5 * len(folders)  # a loop over nothing would promise nothing
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """The full name of every module that is imported anywhere in a file, also inside functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


@pytest.mark.slow
def test_the_core_imports_no_shelf() -> None:
    for path in files_in("robustbench_dec"):
        assert roots(path).isdisjoint({"architectures", "attacks", "trainers", "tests"}), path


def test_files_on_a_shelf_do_not_lean_on_each_other() -> None:
    for path in files_in("architectures", "attacks", "trainers"):
        assert roots(path).isdisjoint({"architectures", "attacks", "trainers", "tests", ""}), path


def test_a_shelf_itself_is_one_docstring() -> None:
    for name in ("architectures", "attacks", "trainers"):
        (only,) = parsed(ROOT / name / "__init__.py").body
        assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant), name


def test_a_file_on_a_shelf_is_one_part_that_explains_itself() -> None:
    for kind, contract in CONTRACTS.items():
        assert len(shelf.names(kind)) >= 3
        for name in shelf.names(kind):
            cls, _ = shelf.located(kind, name, contract)  # refuses a file with two parts, or with none
            assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), name  # dataclasses make one up
            tree = parsed(ROOT / shelf.SHELVES[kind].replace(".", "/") / f"{name}.py")
            assert len(ast.get_docstring(tree) or "") > 40, name
            assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)].count(cls.__name__) == 1, name


@pytest.mark.slow
def test_nothing_is_unpickled() -> None:
    for path in files_in("robustbench_dec", "architectures", "attacks", "trainers", "benchmarks"):
        assert roots(path).isdisjoint(UNPICKLERS), path
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = node.value.id, node.attr
                assert called not in {("torch", "load"), ("np", "load"), ("pd", "read_pickle")}, path
            if isinstance(node, ast.ImportFrom):
                assert not (node.module == "torch" and "load" in {alias.name for alias in node.names}), path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path


@pytest.mark.slow
def test_every_file_says_what_it_is_for() -> None:
    for path in files_in("robustbench_dec", "architectures", "attacks", "trainers", "tests"):
        assert path.name == "__main__.py" or ast.get_docstring(parsed(path)), path


def named(path: Path) -> Iterator[str]:
    """Every name that a file gives to something."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


@pytest.mark.slow
def test_names_tell_what_they_stand_for() -> None:
    for path in files_in("robustbench_dec", "architectures", "attacks", "trainers", "tests", "benchmarks"):
        assert path.stem not in MODULES_THAT_DO_NOT_TELL, path
        found = SAYS_NOTHING.intersection(name.strip("_").lower() for name in named(path))
        assert not found, (path, found)


def test_a_function_has_few_parameters() -> None:
    wide: dict[str, set[str]] = {}
    for path in files_in("robustbench_dec", "architectures", "attacks", "trainers"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len(given) > MOST_PARAMETERS:
                    wide.setdefault(path.name, set()).add(node.name)
    assert wide == FRONT_DOOR


def test_tests_share_what_is_in_their_support_and_nothing_else() -> None:
    for path in files_in("tests"):
        for name in imports(path):
            words = name.split(".")
            assert words[0] != "tests" or words[1:2] == ["support"], (path, name)
            assert words[0] != "conftest" and not words[0].startswith("test_"), (path, name)

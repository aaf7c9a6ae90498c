"""The arrow goes one way: shelves import the core, the core finds shelves by name only. And nothing is unpickled."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustbench_dec import shelf
from robustbench_dec.attack import Attack
from robustbench_dec.problem import Problem
from robustbench_dec.trainer import Trainer
from tests.support import ROOT

SHELVES = [("trainer", Trainer), ("attack", Attack), ("problem", Problem)]
PARTS = [(kind, name, contract) for kind, contract in SHELVES for name in shelf.names(kind)]
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def files_in(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(tree: ast.AST) -> Iterator[str]:
    """The full name of every module that is imported anywhere in a file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", files_in("robustbench_dec"), ids=relative)
def test_the_core_imports_no_shelf(path: Path) -> None:
    assert {name.partition(".")[0] for name in imports(parsed(path))}.isdisjoint({"attacks", "trainers", "tests"})


@pytest.mark.parametrize("path", files_in("attacks", "trainers"), ids=relative)
def test_files_on_a_shelf_do_not_lean_on_each_other(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imports(parsed(path))}
    assert roots.isdisjoint({"attacks", "trainers", "tests", ""})


@pytest.mark.parametrize("shelf_name", ["attacks", "trainers"])
def test_a_shelf_itself_is_one_docstring(shelf_name: str) -> None:
    body = parsed(ROOT / shelf_name / "__init__.py").body
    assert len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


@pytest.mark.parametrize("kind, name, contract", PARTS, ids=[f"{kind}-{name}" for kind, name, _ in PARTS])
def test_a_file_on_a_shelf_is_one_part_that_explains_itself(kind: str, name: str, contract: type) -> None:
    cls = shelf.find(kind, name, contract)  # refuses a file with two parts, or with none
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")  # dataclasses make one up
    tree = parsed(ROOT / shelf.SHELVES[kind].replace(".", "/") / f"{name}.py")
    assert len(ast.get_docstring(tree) or "") > 40
    assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)].count(cls.__name__) == 1


@pytest.mark.parametrize("path", files_in("robustbench_dec", "attacks", "trainers", "benchmarks"), ids=relative)
def test_nothing_is_unpickled(path: Path) -> None:
    tree = parsed(path)
    assert {name.partition(".")[0] for name in imports(tree)}.isdisjoint(UNPICKLERS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("np", "load"), ("pd", "read_pickle")}
        if isinstance(node, ast.ImportFrom):
            assert not (node.module == "torch" and "load" in {alias.name for alias in node.names})
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False


@pytest.mark.parametrize("path", files_in("robustbench_dec", "attacks", "trainers"), ids=relative)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    if path.name != "__main__.py":
        assert ast.get_docstring(parsed(path))


def test_these_tests_found_the_files() -> None:
    assert len(files_in("robustbench_dec")) > 15
    assert {name for kind, name, _ in PARTS if kind == "attack"} >= {"fgsm", "pgd", "uap"}
    assert {name for kind, name, _ in PARTS if kind == "trainer"} >= {"dec_fedtrack", "k_gt"}

"""Shelves: parts are found by the name of their file, or by a path to a user's own file.

`pgd` is the class in attacks/pgd.py; `path/to/mine.py:Mine` is the class Mine in that file.
"""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from robustbench_dec.errors import USERS, BadInput, raised
from robustbench_dec.parts import Part, Source, number

__all__ = [
    "SHELVES", "beside", "broken", "check_name", "file_of", "find", "kind_of", "known", "located", "make", "names",
    "number", "title", "usable",
]  # fmt: skip

P = TypeVar("P", bound=Part)
T = TypeVar("T")

Adapt = Callable[[Callable[..., Any]], type[T] | None]
"""What makes a part of a class or function that is none; None if it cannot."""

PRIVATE = "robustbench_dec.shelves"
"""Where shelves are as modules if, say, `attacks` is somebody else's; and in a wheel, which has them there."""

SHELVES = {
    "trainer": "trainers",
    "attack": "attacks",
    "problem": "robustbench_dec.problems",
    "architecture": "architectures",
}
"""What is on which shelf."""


def names(kind: str) -> list[str]:
    """The names of all parts of a kind, those whose files are broken included: no file is opened to tell them."""
    package = _shelf(kind)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def _has(kind: str, name: str) -> bool:
    """Whether `names` has a name, by one look at its file: parts are asked for thousands of times in a sweep."""
    if not name.isidentifier() or name == "__init__":
        return False
    places = [Path(folder) / name for folder in _shelf(kind).__path__]
    return any(place.with_suffix(".py").is_file() or (place / "__init__.py").is_file() for place in places)


def broken(kind: str) -> dict[str, str]:
    """The parts on a shelf that cannot be used, each with the reason."""
    reasons = {}
    for name in names(kind):
        try:
            _on_shelf(kind, name, nn.Module if kind == "architecture" else Part)
        except BadInput as error:
            reasons[name] = str(error)
    return reasons


def title(kind: str, name: str) -> str:
    """A part's printed name; one that is on no shelf, or whose file is broken, is called by its name."""
    cls = known(kind, name, Part)
    return name if cls is None else cls.title


def known(kind: str, name: str, contract: type[P]) -> type[P] | None:
    """The class of that name on the shelf; None where there is none, or where its file is broken."""
    try:
        return _on_shelf(kind, name, contract) if _has(kind, name) else None
    except BadInput:
        return None


def usable(kind: str, contract: type[P]) -> dict[str, type[P]]:
    """Every part of a shelf that can be used, by name."""
    found = {name: known(kind, name, contract) for name in names(kind)}
    return {name: cls for name, cls in found.items() if cls is not None}


def beside(kind: str, file: str) -> list[Path]:
    """A file that lies beside the parts of a shelf, if there is one; a name that is a path lies on no shelf."""
    package = _shelf(kind)
    places = (Path(folder) / file for folder in package.__path__) if Path(file).name == file else ()
    return [place for place in places if place.is_file()]


def find(kind: str, name: str, contract: type[P], adapt: Adapt[P] | None = None) -> type[P]:
    """The class behind a name or a path: a subclass of `contract`, or in a user's file one that `adapt` makes such.

    A user's file is loaded once as long as it is not edited; `source` of its class tells the sha256 of what was loaded.
    """
    cls, source = located(kind, name, contract, adapt)
    if source.sha256 is not None:
        cls.source = source
    return cls


def located(kind: str, name: str, contract: type[T], adapt: Adapt[T] | None = None) -> tuple[type[T], Source]:
    """The class behind a name or a path, and where it comes from; for a contract that is not this suite's own."""
    if file_of(name) is not None:
        return _from_file(kind, name, contract, adapt)
    if not _has(kind, name):
        raise BadInput(f"no {kind} '{name}'; there are: {', '.join(names(kind))}")
    return _on_shelf(kind, name, contract), Source(name)


def kind_of(name: str) -> str:
    """Whether a name or a path is a trainer's or an attack's; a class in a file is asked what it is."""
    from robustbench_dec.trainer import Trainer  # which needs problems, and these the shelf of networks

    if name.startswith("torchattacks:") or name.endswith(".safetensors"):
        return "attack"
    if (found := file_of(name)) is not None:
        file, wanted = found
        if not file.is_file():
            raise BadInput(f"no file {file} for '{name}'; give a trainer or an attack as path/to/file.py:Class")
        check_name(file, wanted)
        trains = [issubclass(cls, Trainer) for cls in _own(_loaded(file)[0]) if wanted in ("", cls.__name__)]
        return "trainer" if any(trains) else "attack"
    kinds = [kind for kind in ("trainer", "attack") if _has(kind, name)]
    if not kinds:
        there = "; ".join(f"{kind}s: {', '.join(names(kind))}" for kind in ("trainer", "attack"))
        raise BadInput(f"no trainer or attack '{name}'; there are {there}")
    return kinds[0]


def check_name(file: Path, wanted: str = "") -> None:
    """Refuse a file, or a class in it, by whose name nothing can be called in tables: spreadsheets take a field that
    begins with '=' for a formula, and LaTeX and terminals have signs of their own."""
    if re.fullmatch(r"\w[\w.-]*", file.name) is None:
        raise BadInput(
            f"results call a file by its name, which begins with a letter, a digit or '_' and goes on with these, '-' "
            f"and '.', not {file.name!r:.80}; rename it, for example to mine{file.suffix}"
        )
    if wanted and not wanted.isidentifier():
        raise BadInput(f"after the colon stands the name of a class or a function in {file}, not {wanted!r:.80}")


@functools.cache
def _shelf(kind: str) -> ModuleType:
    """The package of a shelf, by its place: a user's own `attacks.py` or `trainers/` is not taken for it, nor read."""
    name = SHELVES[kind]
    if "." in name:
        return importlib.import_module(name)
    here = Path(__file__).resolve().parent
    if (here / "shelves" / name).is_dir():  # in a wheel
        return importlib.import_module(f"{PRIVATE}.{name}")
    first = here.parent / name / "__init__.py"
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None and Path(found.origin).resolve() == first:
        return importlib.import_module(name)
    private = f"{PRIVATE}.{name}"
    specification = importlib.util.spec_from_file_location(
        private, first, submodule_search_locations=[str(first.parent)]
    )
    assert specification is not None and specification.loader is not None
    package = importlib.util.module_from_spec(specification)
    sys.modules[private] = package
    specification.loader.exec_module(package)
    return package


def make(cls: type[P], settings: Mapping[str, object]) -> P:
    """A part from its settings; unknown names are refused with the list of known ones, types are checked."""
    return cls.make(settings)


def _on_shelf(kind: str, name: str, contract: type[T]) -> type[T]:
    try:
        module = importlib.import_module(f"{_shelf(kind).__name__}.{name}")
    except (Exception, SystemExit) as error:  # whatever a half-written file raises
        raise BadInput(f"the {kind} '{name}' on the shelf cannot be imported: {raised(error)}") from error
    return _only(kind, name, [cls for cls in _own(module) if issubclass(cls, contract)])


def _from_file(kind: str, name: str, contract: type[T], adapt: Adapt[T] | None) -> tuple[type[T], Source]:
    file, wanted = file_of(name) or (Path(name), "")
    if not file.is_file():
        raise BadInput(f"no file {file} for the {kind} '{name}'; give it as path/to/file.py:Class")
    check_name(file, wanted)
    module, sha256 = _loaded(file)
    classes = [cls for cls in _own(module) if wanted in ("", cls.__name__)]
    found = [cls for cls in classes if issubclass(cls, contract)]
    if not found and adapt is not None:
        functions = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
        others: list[Callable[..., Any]] = [*classes, *(f for f in functions if wanted in ("", f.__name__))]
        found = [adapted for other in others if (adapted := adapt(other)) is not None]
    if not found:
        what = f"class {wanted}" if wanted else "class"
        or_else = (
            ", nor one like torchattacks' (Mine(model, eps=...), called with images and labels), nor a function "
            "f(model, images, labels, eps)"
            if adapt
            else ""
        )
        parent = f"robustbench_dec.{kind}.{contract.__name__}" if issubclass(contract, Part) else "torch.nn.Module"
        raise BadInput(f"{file} has no {what} that is a subclass of {parent}{or_else}")
    chosen = _only(kind, name, found)
    check_name(file, chosen.__name__)  # a class may be given any name when it is made
    return chosen, Source(file.stem, chosen.__name__, sha256)


def file_of(name: str) -> tuple[Path, str] | None:
    """The file and the class that path/to/mine.py:Mine names, or path/to/mine.py; None for a name on a shelf."""
    found = re.fullmatch(r"(.+\.py)(?::([^/:]*))?", name, re.DOTALL)  # folders may be called .python too
    return None if found is None else (Path(found[1]), found[2] or "")


def _loaded(file: Path) -> tuple[ModuleType, str]:
    """The module that a user's file is, executed from the very bytes whose sha256 is told.

    It stays in `sys.modules`, where dataclasses and type hints look for it, under a name that is a digest of its place
    and its bytes: files of the same name do not meet there, and an edited file is another module.
    """
    content = file.read_bytes()
    place = hashlib.sha256(bytes(file.resolve()) + b"\0" + content).hexdigest()[:16]
    name = f"{USERS}{re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}_{place}"
    sha256 = hashlib.sha256(content).hexdigest()
    if name in sys.modules:
        return sys.modules[name], sha256
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    except BaseException as error:  # whatever the user's file raises while it is read
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            raise BadInput(f"{file} cannot be imported: {raised(error)}") from error
        raise
    return module, sha256


def _own(module: ModuleType) -> list[type]:
    """The classes that a module defines, not those it imports."""
    return [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]


def _only(kind: str, name: str, classes: Iterable[type[T]]) -> type[T]:
    """The one class that is meant; those whose names begin with an underscore are parts of another."""
    classes = list(classes)
    if len(classes) > 1:
        classes = [cls for cls in classes if not cls.__name__.startswith("_")]
    if len(classes) != 1:
        there = ", ".join(cls.__name__ for cls in classes) or "none"
        raise BadInput(f"the {kind} '{name}' should be one class, but its file has: {there}; say which after a colon")
    return classes[0]

"""Shelves: parts are found by the name of their file, or by a path to a user's own file.

`pgd` is the class in attacks/pgd.py; `path/to/mine.py:Mine` is the class Mine in that file.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.trainer import Trainer

T = TypeVar("T")


SHELVES = {"trainer": "trainers", "attack": "attacks", "problem": "robustbench_dec.problems"}
"""What is on which shelf."""


def names(kind: str) -> list[str]:
    """The names of all parts of a kind."""
    package = importlib.import_module(SHELVES[kind])
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def titles(first: Iterable[str] = ()) -> dict[str, str]:
    """The printed name of every trainer on the shelf, `first` ones first."""
    ordered = dict.fromkeys([*first, *names("trainer")])
    return {name: find("trainer", name, Trainer).title for name in ordered}  # type: ignore[type-abstract]


def find(kind: str, name: str, contract: type[T], adapt: Callable[[type], type[T] | None] | None = None) -> type[T]:
    """The class behind a name or a path: a subclass of `contract`, or in a user's file one that `adapt` makes such."""
    if ".py" in name:
        return _from_file(kind, name, contract, adapt)
    if name not in names(kind):
        raise BadInput(f"no {kind} '{name}'; there are: {', '.join(names(kind))}")
    module = importlib.import_module(f"{SHELVES[kind]}.{name}")
    return _only(kind, name, _classes(module, contract))


def make(cls: type[T], settings: Mapping[str, Any]) -> T:
    """An instance of a settings dataclass; unknown names are refused with the list of known ones, types are checked."""
    hints = get_type_hints(cls)
    known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
    for name in settings:
        if name not in known:
            raise BadInput(f"{cls.__name__} has no setting '{name}'; there are: {', '.join(known)}")
    values = {}
    for name, value in settings.items():
        if float in (hints[name], *getattr(hints[name], "__args__", ())) and isinstance(value, str):
            value = number(value)
        try:
            values[name] = TypeAdapter(hints[name]).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].lower()
            raise BadInput(f"{cls.__name__}'s setting '{name}' cannot be {value!r}: {reason}") from error
    try:
        return cls(**values)
    except TypeError as error:  # a setting without a default is missing
        raise BadInput(f"{cls.__name__} needs more settings: {error}; there are: {', '.join(known)}") from error


def source(name: str) -> dict[str, str]:
    """The sha256 of a user's own file, because its path does not tell what is in it; nothing for what is on a shelf."""
    return {"source_sha256": files.sha256(_file(name))} if ".py" in name else {}


def number(text: str | float) -> float:
    """A float, also from '8/255' or '1e-3/32560'."""
    above, _, below = str(text).partition("/")
    try:
        return float(Fraction(above) / Fraction(below or 1))
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    try:
        return float(text)  # also "inf" and "nan", which the part that gets them refuses in its own words
    except ValueError as error:
        raise BadInput(f"expected a number such as 0.1 or 8/255, got '{text}'") from error


def _from_file(kind: str, name: str, contract: type[T], adapt: Callable[[type], type[T] | None] | None) -> type[T]:
    file, wanted = _file(name), name.partition(".py")[2].removeprefix(":")
    if not file.is_file():
        raise BadInput(f"no file {file} for the {kind} '{name}'; give it as path/to/file.py:Class")
    specification = importlib.util.spec_from_file_location(f"robustbench_dec_user_{file.stem}", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises while it is read
        raise BadInput(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    classes = [cls for cls in _own(module) if wanted in ("", cls.__name__)]
    found = [cls for cls in classes if issubclass(cls, contract)]
    if not found and adapt is not None:
        found = [adapted for cls in classes if (adapted := adapt(cls)) is not None]
    if not found:
        what = f"class {wanted}" if wanted else "class"
        or_else = ", nor one like torchattacks' (Mine(model, eps=...), called with images and labels)" if adapt else ""
        raise BadInput(
            f"{file} has no {what} that is a subclass of robustbench_dec.{kind}.{contract.__name__}{or_else}"
        )
    chosen = _only(kind, name, found)
    if hasattr(contract, "source_sha256"):
        chosen.source_sha256 = files.sha256(file)  # type: ignore[attr-defined]
    return chosen


def _file(name: str) -> Path:
    return Path(name.partition(".py")[0] + ".py")


def _classes(module: Any, contract: type[T]) -> list[type[T]]:
    return [cls for cls in _own(module) if issubclass(cls, contract)]


def _own(module: Any) -> list[type]:
    """The classes that a module defines, not those it imports."""
    return [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]


def _only(kind: str, name: str, classes: Iterable[type[T]]) -> type[T]:
    classes = list(classes)
    if len(classes) != 1:
        there = ", ".join(cls.__name__ for cls in classes) or "none"
        raise BadInput(f"the {kind} '{name}' should be one class, but its file has: {there}; say which after a colon")
    return classes[0]

"""Parts: what problems, trainers and attacks have in common: frozen dataclasses whose fields are the settings.

Settings are typed once, where they are declared, and checked whenever a part is built, by hand or from a table:

    eta_x: StepSize                     # "Mine's eta_x must be a positive step size, not 0.0"
    K: Annotated[int, at_least(1, "local step")] = 5
    p: Probability = 0.5

A part also knows where it comes from (`source`), which decides its numbers as its settings do.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

from pydantic import AfterValidator, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from robustbench_dec.errors import BadInput, raised

Settings = dict[str, Any]
"""The settings of a part by name, as JSON has them."""


def must(sentence: str, holds: Callable[[Any], bool]) -> AfterValidator:
    """A rule for a setting; the sentence goes on after its name: " must be odd", or ", the period, must be ..."."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise PydanticCustomError("rule", "{sentence}", {"sentence": sentence})
        return value

    return AfterValidator(check)


def at_least(least: int, what: str = "") -> AfterValidator:
    """A whole number of at least so many of something."""
    return must(f" must be at least {least} {what}".rstrip(), lambda value: value >= least)


StepSize = Annotated[float, must(" must be a positive step size", lambda value: 0 < value < math.inf)]
Share = Annotated[float, must(" must be more than 0 and at most 1", lambda value: 0 < value <= 1)]
Probability = Annotated[float, must(" must be a probability, more than 0 and at most 1", lambda value: 0 < value <= 1)]
Size = Annotated[float, must(" must be 0 or a positive number", lambda value: 0 <= value < math.inf)]
Count = Annotated[int, at_least(1)]
LocalSteps = Annotated[int, at_least(1, "local step")]
BatchSize = Annotated[int, at_least(1, "sample")]
Period = Annotated[int, must(", the period of restarts, must be at least 1 step", lambda value: value >= 1)]
Radius = Annotated[float, must(", the radius, must be a number of 0 or more", lambda value: 0 <= value < math.inf)]
Seed = Annotated[int, must(" must be a whole number of 0 or more", lambda value: value >= 0)]


@dataclass(frozen=True)
class Source:
    """Where a part comes from, as far as it decides numbers: a name on a shelf, or what is in a user's own file.

    The path as it was typed is no part of it, and the digest is of the very bytes that were executed.
    """

    name: str
    """The file's stem."""
    class_name: str = ""
    """The class in a user's own file; a shelf has one per file."""
    sha256: str | None = None
    """Of a user's own file; a shelf's are told by the version of the code."""

    @property
    def label(self) -> str:
        """How results call the part: `dream`, or `mine.py:Mine`."""
        return f"{self.name}.py:{self.class_name}" if self.class_name else self.name

    @property
    def key(self) -> str:
        """The same in names of files: `dream`, or `mine_Mine`, so that the classes of one file are told apart."""
        return f"{self.name}_{self.class_name}" if self.class_name else self.name

    def identity(self) -> dict[str, str]:
        """What a run's identity holds of it."""
        return {"name": self.label} | ({"source_sha256": self.sha256} if self.sha256 else {})


@dataclass(frozen=True)
class Part:
    """A problem, a trainer or an attack."""

    title: ClassVar[str]
    """Its name in print; the class's own where it says nothing."""
    source: ClassVar[Source]
    """Set when the class is made; `shelf.find` sets that of a class in a user's own file, once, when it is loaded."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        cls.source = Source(cls.__module__.rpartition(".")[2])
        cls.title = cls.__dict__.get("title", cls.__name__)

    def __post_init__(self) -> None:
        """Every setting as its type, or refused in one sentence; a rule between settings comes after this one."""
        for name, value in checked(type(self), {name: getattr(self, name) for name in settable(type(self))}).items():
            object.__setattr__(self, name, value)

    def settings(self) -> Settings:
        """Every setting by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def source_sha256(self) -> str | None:
        """The digest of a user's own file."""
        return self.source.sha256

    @classmethod
    def make(cls, settings: Mapping[str, object]) -> Self:
        """A part from settings by name, as a table or a command line gives them ("8/255" is a number there)."""
        known = settable(cls)
        for name in settings:
            if name not in known:
                raise BadInput(f"{cls.__name__} has no setting '{name}'; there are: {', '.join(known) or 'none'}")
        missing = [name for name in needed(cls) if name not in settings]
        if missing:
            raise BadInput(f"{cls.__name__} needs {_listed(missing)}; its settings are: {', '.join(known)}")
        lacking = sorted(getattr(cls, "__abstractmethods__", ()))
        if lacking:
            raise BadInput(f"{cls.__name__} has no {_listed(lacking)}, without which it cannot be used")
        try:
            return cls(**checked(cls, settings))
        except (BadInput, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever a user's own __post_init__ raises
            raise BadInput(f"{cls.__name__} cannot be built: {raised(error)}") from error


def settable(cls: type[Part]) -> list[str]:
    """The names of a part's settings."""
    return [field.name for field in fields(cls) if field.init]


def needed(cls: type[Part]) -> list[str]:
    """The names of the settings that have no default."""
    return [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]


def checked(cls: type[Part], settings: Mapping[str, object]) -> Settings:
    """The values of some settings as the types that the class declares."""
    kinds = _kinds(cls)  # type: ignore[arg-type]  # a class is hashable, whatever mypy says of its instances
    return {name: _checked(f"{cls.__name__}'s", name, value, kinds[name]) for name, value in settings.items()}


def number(text: str | float) -> float:
    """A float, also from '8/255' or '1e-3/32560'."""
    above, _, below = str(text).partition("/")
    try:
        return float(Fraction(above) / Fraction(below or 1))
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    try:
        return float(text)  # also "inf" and "nan", which the setting's type refuses in its own words
    except ValueError as error:
        raise BadInput(f"expected a number such as 0.1 or 8/255, got '{text}'") from error


class _Kind(NamedTuple):
    adapter: TypeAdapter[Any]
    inside: list[Any]  # the plain types that it is made of


def as_kind(whose: str, name: str, value: object, hint: object) -> Any:
    """One value as the type that is declared for it, or refused in one sentence."""
    return _checked(whose, name, value, _Kind(_adapter(hint), _inside(hint)))


def hints_of(declared: Any) -> dict[str, object]:
    """The types that a class or a function declares, with their rules."""
    try:
        return get_type_hints(declared, include_extras=True)
    except NameError as error:
        name = declared.__qualname__.removesuffix(".__init__")
        raise BadInput(f"the types of {name}'s settings cannot be told: {error}") from error


@functools.cache
def _kinds(cls: type[Part]) -> dict[str, _Kind]:
    hints = hints_of(cls)
    return {name: _Kind(_adapter(hints[name]), _inside(hints[name])) for name in settable(cls)}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a type with a configuration of its own
        return TypeAdapter(kind)


def _inside(kind: object) -> list[Any]:
    return [kind, *(each for part in get_args(kind) for each in _inside(part))]


def _checked(whose: str, name: str, value: object, kind: _Kind) -> Any:
    given = number(value) if isinstance(value, str) and float in kind.inside else value
    if _boolean(given) and bool not in kind.inside and (int in kind.inside or float in kind.inside):
        raise BadInput(f"{whose} setting '{name}' cannot be {value!r}: true and false are not numbers")
    try:
        return kind.adapter.validate_python(given)
    except ValidationError as error:
        errors = error.errors()
        rules = [each["msg"] for each in errors if each["type"] == "rule"]  # the others are of a union's other types
        if rules:
            raise BadInput(f"{whose} {name}{rules[0]}, not {given}") from error
        reason = errors[0]["msg"].lower()
        raise BadInput(f"{whose} setting '{name}' cannot be {value!r}: {reason}") from error


def _boolean(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_boolean, value)))


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]

"""Specifications as TOML files: read, checked against a model, and refused in one sentence that says what would do."""

import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from robustbench_dec import shelf, shipped
from robustbench_dec.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
Number = Annotated[float, BeforeValidator(lambda value: shelf.number(value) if isinstance(value, str) else value)]
"""A float, also from text such as "8/255"."""


class Strict(BaseModel):
    """A part of a specification: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def validated(model: type[Model], path: Path, example: str) -> Model:
    """A TOML file as a specification of some kind; the first thing that is wrong with it is a BadInput."""
    try:
        return model.model_validate(content(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].lower()
        if first["type"] == "extra_forbidden":
            what = f"no such setting; there are: {', '.join(_known(model, first['loc'][:-1]))}"
        raise BadInput(f"{path}: '{where}': {what}; see {example} for a complete example") from error


def _known(model: Any, place: tuple[int | str, ...]) -> list[str]:
    """The settings that there are at a place of a specification."""
    for part in place:
        if isinstance(part, str) and part in getattr(model, "model_fields", {}):
            model = model.model_fields[part].annotation
        else:
            model = get_args(model)[-1]  # an item of a list or a table
        while get_origin(model) in (Union, UnionType, Annotated):
            model = get_args(model)[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def content(path: Path) -> dict[str, object]:
    """What stands in a TOML file."""
    try:
        with path.open("rb") as handle:
            return tomllib.load(handle)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(
            f"no specification {path} ({reason}); those that come along: {', '.join(shipped.specifications())}"
        ) from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise BadInput(f"{path} is not valid TOML: {error}") from error

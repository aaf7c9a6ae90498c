"""Arguments of the Python interface: whatever is handed over becomes what is meant, or one sentence."""

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput


def radii(eps: object) -> list[float]:
    """One radius or several; numbers, also of numpy or torch, or texts such as 8/255."""
    several = listed(eps)
    return list(dict.fromkeys(_radius(each) for each in ([eps] if several is None else several)))


def _radius(value: object) -> float:
    if isinstance(value, np.generic | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadInput(f"a radius is a number or a text such as '8/255', not {value!r:.60}")
    return shelf.number(value)


def listed(value: object) -> list[Any] | None:
    """The items of a list or an array of one dimension; None of anything else."""
    if isinstance(value, list | tuple | set | range) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 1):
        return list(value)
    return None


def whole(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """A whole number in a range."""
    number = int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None
    if number is None or number < least or (most is not None and number > most):
        above = "" if most is None else f" and at most {most}"
        raise BadInput(f"{name} must be a whole number of at least {least}{above}, not {value!r:.60}")
    return number


def text(name: str, value: object, example: str) -> str:
    """A name or a path."""
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} is a text such as '{example}', not {value!r:.60}")
    return value


def folder(name: str, value: object) -> Path:
    """The name of a folder."""
    return Path(text(name, value, "out"))


def mapping(name: str, value: object, example: str) -> dict[str, Any]:
    """Settings by name."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise BadInput(f"{name} is a mapping from names to values such as {example}, not {value!r:.60}")
    return dict(value)


def names(name: str, value: object) -> Sequence[str] | None:
    """A list of names, or none."""
    found = listed(value)
    if value is not None and (found is None or not all(isinstance(each, str) for each in found)):
        raise BadInput(f"{name} is a list of names such as ['cat', 'dog'], not {value!r:.60}")
    return found


def device(value: object) -> str:
    """A device that this torch has."""
    try:
        torch.zeros(1, device=value)  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise BadInput(f"this torch cannot use the device {value!r:.60}; 'cpu' always works") from error
    return str(value)

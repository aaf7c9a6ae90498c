"""Means over seeds."""

from collections.abc import Iterable
from math import nan
from typing import NamedTuple, Self

import numpy as np


class Mean(NamedTuple):
    """Mean and standard deviation of some seeds, in the unit of what it was made from."""

    mean: float = nan  # where no seed has been measured
    std: float = nan  # below two seeds
    seeds: int = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        array = np.array(list(values))
        if not array.size:
            return cls()
        return cls(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else nan, array.size)

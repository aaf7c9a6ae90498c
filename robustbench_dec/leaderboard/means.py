"""Means over seeds."""

from collections.abc import Iterable
from math import fsum, nan, sqrt
from typing import NamedTuple, Self


class Mean(NamedTuple):
    """Mean and standard deviation of some seeds, in the unit of what it was made from; the seeds' order is nothing."""

    mean: float = nan  # where no seed has been measured
    std: float = nan  # below two seeds
    seeds: int = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        numbers = list(values)
        if not numbers:
            return cls()
        n = len(numbers)
        mean = fsum(numbers) / n  # the exact sum, rounded once
        return cls(mean, sqrt(fsum((x - mean) ** 2 for x in numbers) / (n - 1)) if n > 1 else nan, n)

"""Margins: is one method ahead of another, paired by seed, over all columns of a table at once?

A margin d[s, c] is the difference of two accuracies in column c, both of seed s.

    t_c = mean_s d[s, c] / (sd_s d[s, c] / sqrt(S))

**Corrected p-values** (Westfall and Young 1993, step-down max-T). Where no method is ahead, the rows of d could as well
have the opposite sign, each with all its columns at once. So t is computed for all 2^S sign vectors; with the columns
ordered by falling |t|, the k-th p-value is the share of sign vectors whose largest |t| among the k-th and all later
columns reaches the observed |t| of the k-th, and no p-value is below the one before it. Exact, two-sided; the smallest
possible one is 2 / 2^S: 0.031 with 6 seeds.

**Intervals** (paired bootstrap of two levels). Seeds are drawn with replacement, then images, the same ones for all
drawn seeds and for both methods, because all are judged on the same images; the interval holds the middle 95 % of the
means of the margins.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustbench_dec.errors import BadInput

MOST_SEEDS = 16
"""Beyond 65,536 sign vectors exactness costs more than it tells."""

REPLICATES = 2000
"""Of the bootstrap; the ends of an interval then move by a few hundredths of its width from one key to another."""

KEY = 2405_00965
"""Of the bootstrap's draws."""

ROUNDING = 1e-9
"""Two t that should be equal differ by this much at most, relatively."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Margin:
    """What one column says of two methods, in fractions: the mean margin, its interval, the corrected p-value."""

    mean: float
    low: float
    high: float
    p: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


def studentized(margins: Matrix) -> Matrix:
    """t of each column of margins (..., S, C); without any spread it is 0 or infinite."""
    seeds = margins.shape[-2]
    mean, deviation = margins.mean(-2), margins.std(-2, ddof=1)
    small = ROUNDING * np.abs(margins).max(-2)
    with np.errstate(divide="ignore", invalid="ignore"):  # where there is no spread, or nothing at all
        t = mean / (deviation / math.sqrt(seeds))
        t = np.where(deviation <= small, np.sign(mean) * np.inf, t)
    return np.where(np.abs(mean) <= small, 0.0, t)


def corrected(margins: Matrix) -> Matrix:
    """The p-value (C,) of each column of margins (S, C), corrected for all of them."""
    if margins.ndim != 2 or margins.shape[0] < 2 or margins.shape[1] < 1:
        raise BadInput(f"a paired test needs margins of 2 or more seeds in 1 or more columns, not {margins.shape}")
    seeds, columns = margins.shape
    if seeds > MOST_SEEDS:
        raise BadInput(f"an exact test takes at most {MOST_SEEDS} seeds, not {seeds}")
    observed = np.abs(studentized(margins))
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=seeds)))  # (2^S, S)
    flipped = np.abs(studentized(signs[:, :, None] * margins))  # (2^S, C)
    order = np.argsort(-observed, kind="stable")
    p = np.empty(columns)
    least = 0.0
    for rank, column in enumerate(order):
        largest = flipped[:, order[rank:]].max(1)
        reached = (largest >= observed[column] * (1 - ROUNDING)).mean()
        least = max(least, float(reached))
        p[column] = least
    return p


def intervals(outcomes: NDArray[np.int8], replicates: int = REPLICATES, share: float = 0.95) -> Matrix:
    """Ends (C, 2) of the intervals of the means of outcomes (C, S, N): 1, 0 or -1 for an image that only the first
    method, both or neither, or only the second method got right. Columns share the draws."""
    if outcomes.ndim != 3 or 0 in outcomes.shape:
        raise BadInput(f"intervals need outcomes of some images for some seeds in some columns, not {outcomes.shape}")
    columns, seeds, images = outcomes.shape
    generator = np.random.Generator(np.random.Philox(KEY))
    exact = outcomes.astype(np.float32)  # sums of small whole numbers
    means = np.empty((replicates, columns))
    for k in range(replicates):
        drawn_seeds = np.bincount(generator.integers(seeds, size=seeds), minlength=seeds).astype(np.float32)
        drawn_images = np.bincount(generator.integers(images, size=images), minlength=images).astype(np.float32)
        means[k] = (exact @ drawn_images) @ drawn_seeds / (seeds * images)
    return np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0).T


def margins(outcomes: NDArray[np.int8], replicates: int = REPLICATES) -> list[Margin]:
    """Each column's margin, from outcomes (C, S, N) as `intervals` has them, all tested together."""
    each = outcomes.mean(2).T  # (S, C)
    p, ends = corrected(each), intervals(outcomes, replicates)
    return [
        Margin(float(each[:, c].mean()), float(low), float(high), float(p[c])) for c, (low, high) in enumerate(ends)
    ]

"""A table that was made again beside the published one: is each number where another seed of the same runs would be?

With published mean m, deviation s and S seeds, the mean of k other seeds lies in the band

    m +- t(.975, S - 1) s sqrt(1 / S + 1 / k)

in 95 of 100 cases, so of C columns about C / 20 are outside by chance (they are not independent: one seed moves them
together).
"""

import math
from typing import NamedTuple

import pandas as pd
from scipy import stats

from robustbench_dec import titles
from robustbench_dec.rendering.blocks import column_title

KEYS = ["dataset", "method", "attack", "eps"]
SURE = 0.95


class Compared(NamedTuple):
    """The lines to print, the numbers judged and outside, and the most of them that chance gives in 99 of 100 cases."""

    lines: list[str]
    judged: int
    outside: int
    most_by_chance: int

    @property
    def as_published(self) -> bool:
        return self.outside <= self.most_by_chance


def compared(published: pd.DataFrame, here: pd.DataFrame) -> Compared:
    """A published table's CSV against one that was made here, in percent."""
    there = published.set_index(KEYS)
    lines, outside, judged = [], 0, 0
    for row in here.dropna(subset=["mean"]).itertuples():
        key = (row.dataset, row.method, row.attack, row.eps)
        column = column_title(str(row.attack), float(row.eps))
        name = f"{titles.dataset(str(row.dataset))}, {titles.method(str(row.method))}, {column}"
        if key not in there.index or not there.loc[key, "seeds"]:
            lines.append(f"{name}: {100 * row.mean:.1f}, not in the published table")
            continue
        mean, std, seeds = (float(there.loc[key, column]) for column in ("mean", "std", "seeds"))
        if seeds < 2:
            lines.append(f"{name}: {100 * row.mean:.1f}, published {100 * mean:.1f} (one seed: no band)")
            continue
        half = float(stats.t.ppf((1 + SURE) / 2, seeds - 1)) * std * math.sqrt(1 / seeds + 1 / row.seeds)
        inside = abs(row.mean - mean) <= half + 5e-4  # tables are printed to a tenth of a point
        judged, outside = judged + 1, outside + (not inside)
        band = f"{100 * (mean - half):.1f} to {100 * (mean + half):.1f}"
        verdict = "inside" if inside else "outside"
        lines.append(f"{name}: {100 * row.mean:.1f}, published {100 * mean:.1f} ({band}): {verdict}")
    for (dataset, method), rows in here.groupby(["dataset", "method"], sort=False):
        if rows["mean"].isna().all():
            lines.append(f"{titles.dataset(str(dataset))}, {titles.method(str(method))}: no number here, not judged")
    most = int(stats.binom.ppf(0.99, judged, 1 - SURE)) if judged else 0
    lines.append(
        f"{outside} of {judged} numbers are outside the band of the published seeds; by chance about "
        f"{(1 - SURE) * judged:.0f} would be, and up to {most} in 99 of 100 cases if columns were independent"
    )
    return Compared(lines, judged, outside, most)

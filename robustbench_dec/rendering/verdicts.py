"""Verdicts of a table under a protocol: the margins of its columns, and what they say of the paper's.

reproduced       the paper's sign, a corrected p below .05, and an interval without 0
not reproduced   the other sign, likewise
undecided        all else
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.margins import REPLICATES, Margin, margins
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.store.records import CellRecord

LEVEL = 0.05
"""Of all columns of a data set together."""

Columns = Mapping[tuple[str, str, float], Margin]
"""By data set, attack and radius: how far the last method of a block is above the first one."""

Verdict = Literal["reproduced", "not reproduced", "undecided"]


def measured(blocks: Sequence[Block], cells: Iterable[CellRecord], replicates: int = REPLICATES) -> Columns:
    """The margins of every block that has all its columns for two seeds or more, from the stored bits."""
    by_key = {(cell.dataset, cell.method, cell.attack, round(cell.eps, 9), cell.seed): cell for cell in cells}
    found: dict[tuple[str, str, float], Margin] = {}
    for block in blocks:
        first, last = block.methods[0], block.methods[-1]
        attacked = block.all_columns[1:]
        seeds = [
            seed
            for seed in sorted({key[-1] for key in by_key if key[0] == block.dataset})
            if all((*block.key(method, column), seed) in by_key for method in (first, last) for column in attacked)
        ]
        if len(seeds) < 2 or first == last or not attacked:
            continue

        def rights(method: str, block: Block = block, seeds: Sequence[int] = seeds) -> NDArray[np.int8]:
            """Clean, then column by column: (C, S, N)."""
            grid = [[by_key[*block.key(method, column), seed] for seed in seeds] for column in block.all_columns[1:]]
            clean = [_bits(cell.right_before) for cell in grid[0]]
            return np.stack([clean, *([_bits(cell.right) for cell in row] for row in grid)])

        margins_here = margins(rights(last) - rights(first), replicates)
        for column, margin in zip(block.all_columns, margins_here, strict=True):
            found[block.dataset, *column] = margin
    return found


def _bits(right: Tensor | None) -> NDArray[np.int8]:
    if right is None:
        raise BadInput("a table under a protocol needs cells that keep the clean outcomes too; make its cells again")
    return right.numpy().astype(np.int8)


def verdict(margin: Margin | None, there: float) -> Verdict:
    """What a margin says of the paper's, in any unit."""
    if margin is None or isnan(there) or there == 0 or not (margin.p < LEVEL and margin.excludes_zero):
        return "undecided"
    return "reproduced" if (margin.mean > 0) == (there > 0) else "not reproduced"


def ahead(block: Block, columns: Columns, method: str, column: tuple[str, float]) -> bool:
    """Whether a method's number in a column is above the other's by more than chance: then it is bold."""
    margin = columns.get((block.dataset, *column))
    if margin is None or not margin.excludes_zero:
        return False
    return method == block.methods[-1 if margin.mean > 0 else 0]

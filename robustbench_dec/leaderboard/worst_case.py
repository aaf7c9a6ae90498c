"""Worst case: per image, the worst outcome over all stored cells of a network at a radius or below it, in its norm.

    right(a) = min over cells with eps <= delta of right_cell(a)

A perturbation within a smaller ball is within the larger one too. Nothing is attacked: cells hold every image's
outcome, so this is a join. It is taken over the images that all of the cells have, or over those of one of them: then
over the cells that have at least these. On the same images it is never above the accuracy under any of the attacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.store.records import CellRecord

RADIUS = 1e-9
"""Two radii that should be equal differ by this much at most, relatively."""


@dataclass(frozen=True)
class WorstCase:
    """Which images survive everything, and how many each attack breaks that no other does.

    Only what is right without attack can be broken, as far as the cells tell it (those of version 0.1.0 do not).
    """

    right: Tensor  # (n,) bool
    alone: Mapping[str, int]

    @property
    def accuracy(self) -> float:
        return self.right.double().mean().item()


def within(cells: Sequence[CellRecord], norm: str, delta: float) -> list[CellRecord]:
    """The cells of a norm at a radius or below."""
    return [cell for cell in cells if cell.norm == norm and cell.eps <= delta * (1 + RADIUS)]


def beside(cells: Sequence[CellRecord]) -> list[float]:
    """For each of one network's cells the worst case at its radius, in its norm, on its own images."""
    return [worst_case(within(cells, cell.norm, cell.eps), cell.n_examples).accuracy for cell in cells]


def worst_case(cells: Sequence[CellRecord], images: int | None = None) -> WorstCase:
    """The join of one network's cells on the first `images`, by default those that all of the cells have.

    Cells on fewer images are left out: on some of the images they would count and on the others not.
    """
    if len({cell.checkpoint_sha256 for cell in cells}) != 1:
        raise BadInput("a worst case is that of one network, but the cells are of none or of several; pass one's")
    images = min(cell.n_examples for cell in cells) if images is None else images
    outcomes: dict[str, Tensor] = {}  # of each attack over its radii and settings
    breakable = torch.ones(images, dtype=torch.bool)
    for cell in (each for each in cells if each.n_examples >= images):
        if (before := cell.right_before) is not None:
            breakable &= before[:images]
        right = cell.right[:images]
        outcomes[cell.attack] = outcomes[cell.attack] & right if cell.attack in outcomes else right
    survived = torch.stack(list(outcomes.values()))  # (attacks, n)
    broken_once = breakable & ((~survived).sum(0) == 1)
    alone = {attack: int((~right & broken_once).sum()) for attack, right in outcomes.items()}
    return WorstCase(survived.all(0), alone)

"""Verify: published networks under stored universal perturbations, scored again by forward passes, bit by bit.

No training, and no attack: y is added, the network answers, and what it gets right is held against the stored bits; so
are its answers to the clean images, where a cell keeps them. Another kind of CPU adds in another order, and an image
whose two largest logits are nearly equal may flip there: a few flips are told and pass.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor, nn

from robustbench_dec import bars
from robustbench_dec.attack import Shift
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.store import zoo
from robustbench_dec.store.bits import MOST_FLIPS
from robustbench_dec.store.problems import problem_of
from robustbench_dec.store.results import Cell, Run


class Checked(NamedTuple):
    """One cell that was scored again: how many of its images came out otherwise, under attack and without."""

    run_id: str
    cell: str
    images: int
    flipped: int
    flipped_clean: int | None  # None where the cell does not keep the clean outcomes

    @property
    def passes(self) -> bool:
        return max(self.flipped, self.flipped_clean or 0) <= MOST_FLIPS * self.images


def universal(run: Run) -> list[Cell]:
    """The test cells of a run that have a universal perturbation, about its present checkpoint."""
    return [
        cell
        for cell in run.cells()
        if cell.record.part == "test"
        and cell.record.checkpoint_sha256 == run.record.checkpoint_sha256
        and cell.record.perturbation_sha256 is not None
        and cell.has_perturbation
    ]


def verify(runs: Iterable[Run], progress: bool = True) -> Iterator[Checked]:
    """Score every universal cell of some runs again; runs whose network is not here are passed over."""
    for run in runs:
        stored = universal(run)
        entry = zoo.found_of_run(run) if stored else None
        if entry is None:
            continue
        network, images = entry.model(), problem_of(run.record).images
        for cell in bars.bar(stored, desc=run.id, unit="cell", show=progress):
            yield _checked(cell, network, images.test_images, images.test_labels)


def _checked(cell: Cell, network: nn.Module, images: Tensor, labels: Tensor) -> Checked:
    record, y = cell.record, cell.perturbation()
    assert y is not None
    n = record.n_examples
    outcome = evaluate(
        Shift(y, eps=record.eps), network, images[:n], labels[:n], seed=record.attack_seed, batch_size=record.batch_size
    )
    before = record.right_before
    return Checked(
        cell.run.id,
        cell.stem,
        n,
        int((outcome.robust != record.right).sum()),
        None if before is None else int((outcome.clean != before).sum()),
    )

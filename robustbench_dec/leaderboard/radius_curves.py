"""Radius curves: a network's accuracy against the radius, and the smallest radius that breaks each image.

    r(a) = min of eps over the stored cells in which image a is wrong; 0 if it is wrong without attack

    accuracy(delta) = share of images with r(a) > delta: the worst case of all cells at delta or below

Nothing is attacked: it is a join of stored cells, on the images that all of them have. The curve falls with the radius
by construction; out to chance (1 / classes) it shows whether the attacks have tried. The median of r is one number for
all of it; where more than half of the images survive everything, it lies beyond the largest radius.
"""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustbench_dec.attack import NORMS
from robustbench_dec.errors import BadInput
from robustbench_dec.store.records import CellRecord, RunRecord
from robustbench_dec.store.results import Results


@dataclass(frozen=True, eq=False)
class RadiusCurve:
    """One network in one norm."""

    run: RunRecord
    norm: str
    radii: tuple[float, ...]  # from 0 on, where the clean outcomes are known
    smallest: Tensor  # (n,) the radius that breaks each image; infinity where none does
    attacks: tuple[str, ...]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """At each radius."""
        return tuple((self.smallest > radius).double().mean().item() for radius in self.radii)

    @property
    def median(self) -> float | None:
        """The radius that breaks half of the images; None where more than half survive."""
        middle = self.smallest.sort().values[(len(self.smallest) - 1) // 2].item()
        return middle if middle < float("inf") else None

    @property
    def chance(self) -> float:
        assert self.run.classifier is not None  # else it has no cells
        return 1 / len(self.run.classifier.classes)

    @property
    def chance_at(self) -> float | None:
        """The first radius at which no more than chance is left; None where the curve ends above it."""
        return next(
            (radius for radius, left in zip(self.radii, self.accuracies, strict=True) if left <= self.chance), None
        )


def curve(run: RunRecord, cells: Sequence[CellRecord]) -> RadiusCurve:
    """The join of one network's test cells in one norm, on the images that all of them have."""
    images = min(cell.n_examples for cell in cells)
    smallest = torch.full((images,), float("inf"), dtype=torch.float64)
    before = next((cell.right_before for cell in cells if cell.right_before is not None), None)
    if before is not None:
        smallest[~before[:images]] = 0.0
    for cell in cells:
        broken = ~cell.right[:images]
        smallest[broken] = smallest[broken].clamp(max=_radius(cell.eps))
    radii = {_radius(cell.eps) for cell in cells} | ({0.0} if before is not None else set())
    return RadiusCurve(run, cells[0].norm, tuple(sorted(radii)), smallest, tuple(sorted({c.attack for c in cells})))


def curves(
    results: Results, pattern: str = "*", norm: str = "Linf", n_examples: int | None = None
) -> list[RadiusCurve]:
    """Of every network whose run's id matches, the most robust first; cells of fewer images are left out, by default
    of fewer than the network's largest has."""
    if norm not in NORMS:
        raise BadInput(f"no norm '{norm}'; there are: {', '.join(NORMS)}")
    found: dict[str, tuple[RunRecord, list[CellRecord]]] = {}
    for cell in results.cells():
        record = cell.record
        if record.norm == norm and record.n_examples >= (n_examples or 1) and fnmatch.fnmatchcase(cell.run.id, pattern):
            found.setdefault(cell.run.id, (cell.run.record, []))[1].append(record)
    if not found:
        raise BadInput(
            f"no network of {results.root} that matches '{pattern}' has stored attacks in {norm} on {n_examples or 1} "
            "or more test images; `robustbench-dec attack RUN --eps 0.05,0.1,0.2` makes some"
        )
    made = []
    for run, cells in found.values():
        enough = n_examples or max(cell.n_examples for cell in cells)
        made.append(curve(run, [cell for cell in cells if cell.n_examples >= enough]))
    return sorted(made, key=lambda each: (each.run.dataset, -_rank(each), each.run.id))


def _rank(each: RadiusCurve) -> float:
    return float("inf") if each.median is None else each.median


def _radius(eps: float) -> float:
    """A radius as tables tell it from others: 0.1 + 0.2 is 0.3."""
    return round(eps, 9)

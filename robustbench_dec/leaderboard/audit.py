"""Audit: numbers that a sound attack does not give. docs/flags.md explains every flag.

Two accuracies are compared on the same images: on the first ones that both attacks have seen, where every image's
outcome is stored; else only if both rest on equally many. What has nothing to be compared with is not judged.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from robustbench_dec import shelf
from robustbench_dec.attack import Attack, largest_radius
from robustbench_dec.store.records import CellRecord, RunRecord

TOLERANCE = 0.5
"""Points by which an iterated attack may miss its one-step form, or more steps fewer: a few images are chance."""

DOUBLING = 1.0
"""Points by which an attack that has converged may fall with at least twice the steps."""

BUDGET = ("eps", "steps", "search", "alpha", "std", "y_sha256")
"""Settings that say how far and how long an attack goes, or follow from that; all others say which attack it is."""

ZERO_SHARE = 0.1
"""The share of zero gradients above which an attack was blind."""

RAREST = 0.85
"""The share of the rarest class times the number of classes, where it is not told; the data sets here have 0.89."""

FLAGS: Mapping[str, str] = {
    "rises": "accuracy rises with the radius",
    "weaker_than_one_step": f"an iterated attack leaves over {TOLERANCE:g} points more than a single step",
    "weaker_with_more_steps": f"more steps leave over {TOLERANCE:g} points more than fewer",
    "zero_gradients": f"over {ZERO_SHARE:.0%} of the gradients were zero",
    "below_chance": "a universal attack is below the share of the rarest class",
    "budget": "the attack left its ball and was put back",
    "box": "the attack left [0, 1] and was put back",
    "nan": "the attack returned NaN or infinity, and the image was put back",
    "model": "the attack changed its copy of the network",
    "passes": "the attack asked the network more often than allowed, and images stayed as they were",
    "short_steps": "the attack's steps together are shorter than its radius",
    "not_converged": "the attack was still getting further in the last quarter of its steps, or gets over "
    f"{DOUBLING:g} point further with twice as many",
    "black_box_wins": "an attack without gradients breaks images that this one, with gradients, leaves right",
    "unbounded": "an attack that may turn every image into any other leaves some right",
    "gradient": "the network's gradient is not the one of its answers",
}


@dataclass(frozen=True, eq=False)
class Point:
    """One accuracy (a fraction) of one attack on one model."""

    model: str
    attack: str
    eps: float
    accuracy: float
    clean: float | None = None
    norm: str = "Linf"
    universal: bool = False
    steps: int | None = None
    settings: str = ""  # all but those in BUDGET
    n_examples: int | None = None
    classes: int | None = None
    rarest: float | None = None  # share of the rarest class
    zeros: float | None = None  # share of zero gradients
    right: Tensor | None = None  # (n_examples,) bool
    passes: tuple[int, int] | None = None  # forward and back, by the attack
    hearsay: bool = False  # a user's attack may have asked a copy of the network that nobody counts
    largest: float | None = None  # a radius that every image is within of every other
    flags: tuple[str, ...] = ()  # of the cell itself

    @property
    def one_step(self) -> bool:
        """As the attack says itself, if it is on the shelf."""
        cls = shelf.known("attack", self.attack, Attack)
        return cls is not None and cls.one_step

    @property
    def iterated(self) -> bool:
        """By its number of steps; where that is not told, as the attack says itself, if it is on the shelf."""
        if self.universal or (self.steps or 1) > 1:
            return not self.universal
        cls = shelf.known("attack", self.attack, Attack)
        return cls is not None and not cls.one_step and not cls.universal


class Finding(NamedTuple):
    """A flag of a point, with the accuracy that it should not have and the point that tells so."""

    point: Point
    flag: str
    accuracy: float
    other: Point | None = None  # None and a limit: the clean accuracy, the floor or the share
    limit: float | None = None


def findings(points: Sequence[Point]) -> list[Finding]:
    """All that is found, point by point."""
    by_model: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        by_model.setdefault((point.model, point.norm), []).append(point)
    return [finding for point in points for finding in _judge(point, by_model[point.model, point.norm])]


def floor(point: Point) -> float | None:
    """Where a universal perturbation ends that makes the network see one class everywhere, less 3 standard errors."""
    share = point.rarest if point.rarest is not None else RAREST / point.classes if point.classes else None
    if share is None or not point.n_examples:
        return share
    return share - 3 * math.sqrt(share * (1 - share) / point.n_examples)


def of_cell(run: RunRecord, cell: CellRecord) -> Point:
    """What an attack cell and its run say."""
    settings = cell.settings
    steps = settings.get("steps")
    rest = {name: value for name, value in settings.items() if name not in BUDGET}
    return Point(
        model=cell.run_id,
        attack=cell.attack,
        eps=cell.eps,
        accuracy=cell.robust_acc,
        clean=cell.clean_acc,
        norm=cell.norm,
        universal=cell.universal,
        steps=steps if isinstance(steps, int) else None,
        settings=json.dumps([rest, cell.source_sha256], sort_keys=True),
        n_examples=cell.n_examples,
        classes=None if run.classifier is None else len(run.classifier.classes),
        rarest=cell.rarest_class,
        zeros=cell.zero_gradients,
        right=cell.right,
        passes=(cell.forwards, cell.backwards),
        hearsay=cell.source_sha256 is not None,
        largest=None if run.classifier is None else largest_radius(cell.norm, run.classifier.architecture.shape),
        flags=cell.flags,
    )


def flags(points: Sequence[Point]) -> list[list[str]]:
    """Each point's own flags and the audit's, without repetition."""
    found: dict[int, list[str]] = {id(point): list(point.flags) for point in points}
    for finding in findings(points):
        if finding.flag not in found[id(finding.point)]:
            found[id(finding.point)].append(finding.flag)
    return [found[id(point)] for point in points]


def sentence(finding: Finding) -> str:
    """A finding in words."""
    point, other = finding.point, finding.other
    where = f"{point.model}, {point.attack} at eps {point.eps:g}: {100 * finding.accuracy:.2f}"
    if finding.flag == "black_box_wins" and other is not None and point.right is not None and other.right is not None:
        n = min(len(point.right), len(other.right))
        broken = int((point.right[:n] & ~other.right[:n]).sum())
        return f"{where}; {other.attack}, which asks for no gradient, breaks {broken} images that it leaves right"
    if other is not None:
        steps = f" with {other.steps} steps" if finding.flag in ("weaker_with_more_steps", "not_converged") else ""
        return f"{where} is above {100 * (finding.limit or 0):.2f} of {other.attack} at eps {other.eps:g}{steps}"
    if finding.flag == "rises":
        return f"{where} is above {100 * (finding.limit or 0):.2f} without attack"
    if finding.flag == "below_chance":
        return f"{where} is below {100 * (finding.limit or 0):.2f}, where one class for all images would end"
    if finding.flag == "unbounded":
        return f"{where}; within this radius every image can become any other, so 0 is to be reached"
    if finding.flag == "zero_gradients":
        return f"{where}; {100 * (point.zeros or 0):.1f} % of its gradients were zero"
    return f"{where}; {FLAGS.get(finding.flag, finding.flag)}"


def _judge(point: Point, rivals: Iterable[Point]) -> Iterable[Finding]:
    for flag in point.flags:
        yield Finding(point, flag, point.accuracy)
    same = [r for r in rivals if (r.attack, r.universal, r.settings) == (point.attack, point.universal, point.settings)]
    yield from _rises(point, [r for r in same if r.steps == point.steps])
    if point.iterated:
        one_step = [r for r in rivals if r.one_step and r.eps == point.eps and r is not point]
        yield from _weaker("weaker_than_one_step", point, one_step)
    fewer = [r for r in same if r.eps == point.eps and (r.steps or 0) < (point.steps or 0) and r.steps is not None]
    yield from _weaker("weaker_with_more_steps", point, fewer)
    longer = [r for r in same if r.eps == point.eps and r.steps and point.steps and r.steps >= 2 * point.steps]
    yield from _weaker("not_converged", point, longer, DOUBLING)
    if point.zeros is not None and point.zeros > ZERO_SHARE:
        yield Finding(point, "zero_gradients", point.accuracy, limit=ZERO_SHARE)
    yield from _black_box_wins(point, rivals)
    everywhere = point.largest is not None and point.eps >= point.largest * (1 - 1e-9)
    if everywhere and point.iterated and point.accuracy > 0:
        yield Finding(point, "unbounded", point.accuracy, limit=0.0)
    least = floor(point)
    if point.universal and least is not None and point.accuracy < least:
        yield Finding(point, "below_chance", point.accuracy, limit=least)


def _rises(point: Point, sweep: Sequence[Point]) -> Iterable[Finding]:
    """An attack of a larger radius could always do what it does within a smaller one, so no rise is small enough."""
    before = max((r.eps for r in sweep if r.eps < point.eps), default=None)
    if before is None:
        if point.clean is not None and point.accuracy > point.clean + 1e-9:
            yield Finding(point, "rises", point.accuracy, limit=point.clean)
        return
    pairs = [(r, *pair) for r in sweep if r.eps == before if (pair := _paired(point, r)) is not None]
    if pairs and all(here > there + 1e-9 for _, here, there in pairs):
        other, here, there = pairs[0]
        yield Finding(point, "rises", here, other, there)


def _black_box_wins(point: Point, rivals: Iterable[Point]) -> Iterable[Finding]:
    """An attack by queries knows less than one that sees gradients, so it should break no image that this one leaves.

    Per image, at the same radius; one-step attacks and universal ones are not expected to find every image. That an
    attack asked for no gradient is believed of the shelf's alone: a user's file may differentiate a copy of its own.
    """
    if not (point.iterated and point.passes is not None and point.passes[1] and point.right is not None):
        return
    for other in rivals:
        blind = other.passes is not None and other.passes[0] > 0 and not other.passes[1]
        if not blind or other.hearsay or other.universal or other.eps != point.eps or other.right is None:
            continue
        n = min(len(point.right), len(other.right))
        if (point.right[:n] & ~other.right[:n]).any():
            yield Finding(point, "black_box_wins", point.accuracy, other, other.accuracy)
            return


def _weaker(flag: str, point: Point, others: Sequence[Point], tolerance: float = TOLERANCE) -> Iterable[Finding]:
    for other in others:
        pair = _paired(point, other)
        if pair is not None and pair[0] > pair[1] + tolerance / 100 + 1e-9:
            yield Finding(point, flag, pair[0], other, pair[1])
            return


def _paired(first: Point, second: Point) -> tuple[float, float] | None:
    """Both accuracies on the images that both have seen."""
    if first.right is not None and second.right is not None:
        n = min(len(first.right), len(second.right))
        return first.right[:n].double().mean().item(), second.right[:n].double().mean().item()
    return (first.accuracy, second.accuracy) if first.n_examples == second.n_examples else None

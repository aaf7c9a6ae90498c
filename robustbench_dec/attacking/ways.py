"""The way of an attack: what its ascents had reached after so many steps, and whether they were still moving.

Carlini et al. 2019: loss and success are looked at over the iterations, and an attack that has not levelled off is not
to be believed.
"""

import itertools
from collections.abc import Iterable, Sequence

from robustbench_dec.attack import Look

MOVES = 0.01
"""An accuracy that falls by more than this in the last quarter of an ascent still moves."""


def averaged(looks: Iterable[Look]) -> tuple[Look, ...]:
    """One way from those of all batches: means over their images, ascent by ascent, step by step."""
    sums: dict[tuple[str, int], list[float]] = {}
    for look in looks:
        total = sums.setdefault((look.ascent, look.step), [0.0, 0.0, 0])
        total[0] += look.loss * look.images
        total[1] += look.accuracy * look.images
        total[2] += look.images
    return tuple(
        Look(ascent, step, loss / images, right / images, int(images))
        for (ascent, step), (loss, right, images) in sums.items()
    )


def still_moves(way: Sequence[Look]) -> bool:
    """Whether the ascent that got furthest got further in the last quarter of its steps than anything before it."""
    if not way:
        return False
    furthest = min(way, key=lambda look: look.accuracy)
    last = max(look.step for look in way if look.ascent == furthest.ascent)
    before = itertools.takewhile(lambda look: look.ascent != furthest.ascent or look.step <= 0.75 * last, way)
    found = [look.accuracy for look in before]
    return bool(found) and min(found) - furthest.accuracy > MOVES


def written(way: Iterable[Look]) -> tuple[str, ...]:
    """A line for each look, as cells keep it: "away 0|150|2.3410|0.6125|4000"."""
    return tuple(f"{look.ascent}|{look.step}|{look.loss:.4f}|{look.accuracy:.4f}|{look.images}" for look in way)


def read(lines: Iterable[str]) -> tuple[Look, ...]:
    """The looks that `written` wrote."""
    parts = [line.split("|") for line in lines]
    return tuple(Look(name, int(step), float(loss), float(right), int(n)) for name, step, loss, right, n in parts)

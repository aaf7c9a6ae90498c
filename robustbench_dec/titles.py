"""Titles: how methods, attacks and data sets are called in print, and in which order they stand without another one.

Both follow from the shelves and the catalogue, and nothing is imported before it is asked for.
"""

from collections.abc import Collection, Iterable

from robustbench_dec import data, shelf
from robustbench_dec.attack import Attack

FIRST = ("k_gt", "dec_fedtrack")
"""The paper's own pair, which its tables begin with."""

CLEAN = "clean"
"""No attack at all, in a column of attacks."""


def method(name: str) -> str:
    """A trainer's printed name; a name that is on no shelf is its own title."""
    return shelf.title("trainer", name)


def attack(name: str) -> str:
    """An attack's printed name; a name that is on no shelf is its own title."""
    return "Clean" if name == CLEAN else shelf.title("attack", name)


def dataset(name: str) -> str:
    """A data set's printed name."""
    return data.titles().get(name, name)


def methods() -> list[str]:
    """The trainers on the shelf, the paper's pair first."""
    return list(dict.fromkeys([*FIRST, *shelf.names("trainer")]))


def attacks() -> list[str]:
    """The attacks on the shelf, from the plainest: nothing, one step, several steps, one perturbation for all."""
    usable = shelf.usable("attack", Attack)
    return [CLEAN, *sorted(usable, key=lambda name: (usable[name].universal, not usable[name].one_step, name))]


def in_order(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Each name once: the known ones in their own order, then the others by alphabet."""
    wanted = set(names)
    first = [name for name in known if name in wanted]
    return [*first, *sorted(wanted - set(first))]

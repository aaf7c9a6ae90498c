"""Budget: when a run ends, and after which rounds its curve is measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from robustbench_dec.errors import BadInput

LONGEST = 10**12
"""More rounds, calls or exchanges nobody lives to see the end of."""


@dataclass(frozen=True)
class Budget:
    """A run ends as soon as every cost that is named here is reached: rounds, SFO calls per node, exchanges.

    With several, a method that is cheap in one cost goes on until it has spent the others, so that plots against each
    of them end at the same place for all methods. An all-reduce counts as an exchange here: server methods end too.
    """

    rounds: int | None = None
    sfo: int | None = None
    exchanges: int | None = None

    def __post_init__(self) -> None:
        if not self.named:
            raise BadInput("a run needs an end; name rounds, sfo (calls per node) or exchanges, or several of them")
        for name, most in self.named.items():
            if not 1 <= most <= LONGEST:
                raise BadInput(f"{name}, where a run ends, must be at least 1 and at most {LONGEST:,}, not {most}")

    @property
    def named(self) -> dict[str, int]:
        """The costs that are limited."""
        named = {"rounds": self.rounds, "sfo": self.sfo, "exchanges": self.exchanges}
        return {name: most for name, most in named.items() if most is not None}

    def spent(self, costs: Mapping[str, int]) -> bool:
        """Whether a run that has cost so much is at its end."""
        return all(cost(costs, name) >= most for name, most in self.named.items())

    def share(self, costs: Mapping[str, int]) -> float:
        """How much of a run is done, from 0 to 1."""
        return min(1.0, *(cost(costs, name) / most for name, most in self.named.items()))

    def passed(self, costs: Mapping[str, int], points: int) -> tuple[int, ...]:
        """How many of the evenly spaced points of each cost lie behind; the curve is measured when one is passed."""
        return tuple(
            sum(cost(costs, name) >= round(most * k / points) for k in range(points + 1))
            for name, most in self.named.items()
        )


def cost(costs: Mapping[str, int], name: str) -> int:
    """What a budget counts: an exact mean over all nodes is worth an exchange."""
    return costs[name] + (costs["all_reduces"] if name == "exchanges" else 0)

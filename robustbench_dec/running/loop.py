"""The loop: one round of a trainer after the other. It alone counts rounds, and says that a run has diverged."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from robustbench_dec.errors import BadInput, Diverged, raised
from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.specs.budget import Budget
from robustbench_dec.trainer import State, Trainer

EXPLOSION = 50.0
"""A training loss this many times the smallest one will not come back."""


class At(NamedTuple):
    """Where a run stands between two rounds."""

    state: State
    costs: dict[str, int]  # of all rounds until now, as the ledger names them
    value: float  # what is watched, such as the loss
    reference: float  # what it is compared with


@dataclass(frozen=True)
class Watch:
    """A run has diverged as soon as value(state) is not less than explosion * max(reference, 1); NaN never is.

    The reference is the smallest value so far, or the first one. `value` is asked once for every state, in order.
    """

    value: Callable[[State], float]
    name: str = "loss"
    explosion: float = EXPLOSION
    against: Literal["smallest", "first"] = "smallest"

    def reference(self, former: float, value: float) -> float:
        """What the next value is compared with; a start without a value, NaN, is none."""
        if not math.isfinite(former):
            return value
        return min(former, value) if self.against == "smallest" else former


def rounds(
    trainer: Trainer, oracle: Oracle, net: Network, budget: Budget, watch: Watch, start: At | None = None
) -> Iterator[At]:
    """Where the run stands at its start, or at `start`, and after every round until the budget is spent."""
    at = start
    if at is None:
        with quoted(trainer, "init"):
            state = trainer.init(oracle, net)
        value = watch.value(state)  # may be NaN: a loss, where nobody has asked for a gradient yet
        at = At(state, net.ledger.row(), value, value)
    yield at
    while not budget.spent(at.costs):
        with quoted(trainer, "step"):
            state = trainer.step(at.state, oracle, net)
        net.ledger.rounds += 1
        value = watch.value(state)
        at = At(state, net.ledger.row(), value, watch.reference(at.reference, value))
        if not value < watch.explosion * max(at.reference, 1.0):
            raise Diverged(
                f"training diverged in round {net.ledger.rounds} ({watch.name} {value:.3g}){_step_sizes(trainer)}; "
                "smaller step sizes would do"
            )
        yield at


@contextlib.contextmanager
def quoted(trainer: Trainer, method: str) -> Iterator[None]:
    """What the code of a user's own trainer raises, sys.exit too, as one sentence with its line."""
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        if trainer.source_sha256 is None:
            raise
        what = f"called sys.exit({error.code})" if isinstance(error, SystemExit) else f"raised {raised(error)}"
        raise BadInput(f"{trainer.source.label}: {method} {what}") from error


def _step_sizes(trainer: Trainer) -> str:
    sizes = {name: value for name, value in trainer.settings().items() if name.startswith("eta")}
    return f" with {', '.join(f'{name} = {value:g}' for name, value in sizes.items())}" if sizes else ""

"""GT-DA: gradient tracking with one descent step in x for several ascent steps in y (Tsaknakis, Hong, Liu 2020).

    V = W U
    X <- W (X - eta_x Vx),   Y <- P(W Y)                   in steps 0, period, 2 period, ...
    X <- W X,                Y <- P(W (Y + eta_y Vy))      in the period - 1 steps after each of them
    G+ = the full local gradients at the new (X, Y)
    U <- V + G+ - G                                        from U = G

The form with one y for all nodes, which the problems here ask for; where each node keeps its own y, another problem is
solved. As for GT-GDA, "atc" (above) costs two exchanges a step, "cta" one; m oracle calls a step.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import StepSize, at_least
from robustbench_dec.tracking import Order, Tracked, begin, move
from robustbench_dec.trainer import Trainer


@dataclass(frozen=True)
class GTDA(Trainer):
    """Step sizes, the steps from one descent in x to the next, and whether to mix after the step (atc) or before it."""

    title: ClassVar[str] = "GT-DA"

    eta_x: StepSize
    eta_y: StepSize
    period: Annotated[int, at_least(2, "steps, one in x and one in y")] = 4
    order: Order = "atc"

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        return begin(X, Y, *oracle.full_grad(X, Y))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        descend = int(state.T[0]) % self.period == 0
        eta_x, eta_y = (self.eta_x, 0.0) if descend else (0.0, self.eta_y)
        X, Y, Vx, Vy = move(state, net.mix, oracle, eta_x, eta_y, self.order)
        Gx, Gy = oracle.full_grad(X, Y)
        return Tracked(X, Y, Vx + Gx - state.Gx, Vy + Gy - state.Gy, Gx, Gy, state.T + 1)

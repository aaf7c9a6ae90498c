"""GT-GDA: gradient tracking with full local gradients (Zhang, Liu, Liu, Zhu, Lu 2021).

    V = W U
    X <- W (X - eta_x Vx),   Y <- P(W (Y + eta_y Vy))      order "atc"; "cta": X <- W X - eta_x Vx, Y <- P(W Y + ...)
    G+ = the full local gradients at the new (X, Y)
    U <- V + G+ - G                                        from U = G

"atc" costs two exchanges a step, "cta", the paper's own order, one. m oracle calls a step.
"""

from dataclasses import dataclass
from typing import ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import StepSize
from robustbench_dec.tracking import Order, Tracked, begin, move, track
from robustbench_dec.trainer import Trainer


@dataclass(frozen=True)
class GTGDA(Trainer):
    """Step sizes, and whether to mix after the step (atc) or before it (cta)."""

    title: ClassVar[str] = "GT-GDA"

    eta_x: StepSize
    eta_y: StepSize
    order: Order = "atc"

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        with oracle.ahead():
            return begin(X, Y, *oracle.full_grad(X, Y))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, net.mix, oracle, self.eta_x, self.eta_y, self.order)
        with oracle.ahead():
            Gx, Gy = oracle.full_grad(X, Y)
        return track(state, X, Y, (Vx, Vy), (Gx, Gy))

"""GT-DA: gradient tracking with one descent step in x for several ascent steps in y (Tsaknakis, Hong, Liu 2020).

    Vx = W Ux,   X <- W (X - eta_x Vx),   Y <- P(W Y)      in steps 0, period, 2 period, ...
    Vy = W Uy,   Y <- P(W (Y + eta_y Vy)),   X <- W X      in the period - 1 steps after each of them
    G+ = the full local gradients at the new (X, Y)        of the block that moves in the next step, and of it alone
    U <- V + G+ - G                                        from Ux = Gx, Uy = Gy = 0

The form with one y for all nodes, which the problems here ask for; where each node keeps its own y, another problem is
solved. As for GT-GDA, "atc" (above) costs two exchanges a step, "cta" one. A step asks for m gradients in one block:
m / 2 paired oracle calls.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import StepSize, at_least
from robustbench_dec.tracking import Order, Tracked, begin
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
        with oracle.ahead():
            Gx = oracle.grad_x(X, Y, oracle.shards)
        return begin(X, Y, Gx, Y - Y)

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Ux, Uy, Gx, Gy, T = state
        if self._descends(T):
            X, Y, Ux = self._move(X, Y, Ux, -self.eta_x, net)
        else:
            Y, X, Uy = self._move(Y, X, Uy, self.eta_y, net)
        Y, T = oracle.project(Y), T + 1
        with oracle.ahead():
            if self._descends(T):
                G = oracle.grad_x(X, Y, oracle.shards)
                Ux, Gx = (Ux + G).sub_(Gx), G
            else:
                G = oracle.grad_y(X, Y, oracle.shards)
                Uy, Gy = (Uy + G).sub_(Gy), G
        return Tracked(X, Y, Ux, Uy, Gx, Gy, T)

    def _descends(self, T: Tensor) -> bool:
        return int(T[0]) % self.period == 0

    def _move(self, Z: Tensor, other: Tensor, U: Tensor, eta: float, net: Network) -> tuple[Tensor, Tensor, Tensor]:
        """Z+ along its mixed tracker V, the other block mixed, and V."""
        if self.order == "atc":
            V = net.mix(U)
            Z, other = net.mix(torch.add(Z, V, alpha=eta), other)
        else:
            V, MZ, other = net.mix(U, Z, other)
            Z = torch.add(MZ, V, alpha=eta)
        return Z, other, V

"""Mine: stochastic gradient tracking, X <- W (X - eta_x Vx), Y <- P(W (Y + eta_y Vy)), V <- W V + G+ - G."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.trainer import Trainer


class State(NamedTuple):
    X: Tensor
    Y: Tensor
    Vx: Tensor
    Vy: Tensor
    Gx: Tensor
    Gy: Tensor


@dataclass(frozen=True)
class Mine(Trainer):
    title: ClassVar[str] = "Mine"
    eta_x: float = 0.1
    eta_y: float = 0.2
    batch: int = 32

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()
        Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
        return State(X, Y, Gx, Gy, Gx, Gy)

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y, Vx, Vy, Gx_prev, Gy_prev = state
        X, Y, Vx, Vy = net.mix(X - self.eta_x * Vx, Y + self.eta_y * Vy, Vx, Vy)
        Y = oracle.project(Y)
        Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
        return State(X, Y, Vx + Gx - Gx_prev, Vy + Gy - Gy_prev, Gx, Gy)

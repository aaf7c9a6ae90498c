"""LU-GT: gradient tracking with full gradients and K local steps between exchanges (Nguyen et al. 2022).

    X <- X - eta_x (Gx + C),   Y <- P(Y + eta_y (Gy + D))       K times, Gx and Gy the full local gradients
    C <- W (C + Gx) - Gx,      D <- W (D + Gy) - Gy             with the last local step's gradients; C = D = 0 at first
    X <- W X,                  Y <- W Y                         all in one exchange

Ordinary gradient tracking, V = G + C, that mixes in every K-th step only. Published for minimisation; here both blocks
are tracked. K m oracle calls a round. Dec-FedTrack has the mean of the K gradients where this has the last.

Neither the paper's text nor its authors' code was at hand: what stands here comes from its abstract and from what
others write about it, and only its invariants and limit cases are tested.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import LocalSteps, StepSize
from robustbench_dec.trainer import Trainer


class State(NamedTuple):
    """Iterates and corrections, one row per node."""

    X: Tensor
    Y: Tensor
    C: Tensor
    D: Tensor


@dataclass(frozen=True)
class LUGT(Trainer):
    """Step sizes and the number K of local steps."""

    title: ClassVar[str] = "LU-GT"

    eta_x: StepSize
    eta_y: StepSize
    K: LocalSteps = 5

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()
        return State(X, Y, X - X, Y - Y)

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y, C, D = state
        for _ in range(self.K):
            Gx, Gy = oracle.full_grad(X, Y)
            X, Y = X - self.eta_x * (Gx + C), oracle.project(Y + self.eta_y * (Gy + D))
        X, Y, WVx, WVy = net.mix(X, Y, C + Gx, D + Gy)
        return State(X, Y, WVx - Gx, WVy - Gy)

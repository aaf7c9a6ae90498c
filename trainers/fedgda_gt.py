"""FedGDA-GT: K local steps with full gradients and a fresh gradient-tracking correction (Sun, Wei 2022).

    Ax, Ay = full local gradients at (X0, Y0),   C = mean(Ax) - Ax,   D = mean(Ay) - Ay     first all-reduce
    X <- X - eta_x (Gx + C),   Y <- P(Y + eta_y (Gy + D))                                   K times from X0, Y0
    X <- mean(X),   Y <- mean(Y)                                                            second all-reduce

K m oracle calls a round, because the first local gradients are those that were sent.
Dec-FedTrack on W = J, but for its correction, which is one round old.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import LocalSteps, StepSize
from robustbench_dec.trainer import Trainer, first_correction


class State(NamedTuple):
    """Iterates, the same in every node's row."""

    X: Tensor
    Y: Tensor


@dataclass(frozen=True)
class FedGDAGT(Trainer):
    """Step sizes and the number K of local steps."""

    title: ClassVar[str] = "FedGDA-GT"

    eta_x: StepSize
    eta_y: StepSize
    K: LocalSteps = 5

    def init(self, oracle: Oracle, net: Network) -> State:
        return State(*oracle.start())

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y = state
        Gx, Gy = oracle.full_grad(X, Y)
        C, D = first_correction("lemma", net, Gx, Gy)
        for k in range(self.K):
            if k > 0:
                Gx, Gy = oracle.full_grad(X, Y)
            X, Y = X - self.eta_x * (Gx + C), oracle.project(Y + self.eta_y * (Gy + D))
        return State(*net.mean(X, Y))

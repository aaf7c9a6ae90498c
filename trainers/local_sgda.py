"""Local SGDA: K local steps, then an average by a server (Deng, Mahdavi 2021). No correction: heterogeneity stalls it.

    X <- X - eta_x Gx,   Y <- P(Y + eta_y Gy)       K times, both gradients at the same point and batch
    X <- mean(X),        Y <- mean(Y)               one all-reduce

K |B| oracle calls a round.

Neither the paper's text nor its authors' code was at hand: what stands here comes from its abstract and from what
others write about it, and only its invariants and limit cases are tested.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, LocalSteps, StepSize
from robustbench_dec.trainer import Trainer


class State(NamedTuple):
    """Iterates, the same in every node's row."""

    X: Tensor
    Y: Tensor


@dataclass(frozen=True)
class LocalSGDA(Trainer):
    """Step sizes, the number K of local steps, and the size of a minibatch."""

    title: ClassVar[str] = "Local SGDA"

    eta_x: StepSize
    eta_y: StepSize
    K: LocalSteps = 5
    batch: BatchSize = 128

    def init(self, oracle: Oracle, net: Network) -> State:
        return State(*oracle.start())

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y = state
        for _ in range(self.K):
            Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
            X, Y = X - self.eta_x * Gx, oracle.project(Y + self.eta_y * Gy)
        return State(*net.mean(X, Y))

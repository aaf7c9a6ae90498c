"""SAGDA: K local steps with fresh control variates, two step sizes each for clients and server (Yang et al. 2022).

    Ax, Ay = gradients at (X0, Y0) on one batch,   C = mean(Ax) - Ax,   D = mean(Ay) - Ay         first all-reduce
    X <- X - eta_x (Gx + C),   Y <- P(Y + eta_y (Gy + D))                  K times, each on a new batch, from X0, Y0
    X <- X0 + server_x mean(X - X0),   Y <- P(Y0 + server_y mean(Y - Y0))                         second all-reduce

(K + 1) |B| oracle calls a round, or K m where B is a node's whole share. All clients take part in every round.

Neither the paper's text nor its authors' code was at hand: what stands here comes from its abstract and from what
others write about it, and only its invariants and limit cases are tested.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, LocalSteps, StepSize
from robustbench_dec.trainer import Trainer, first_correction


class State(NamedTuple):
    """Iterates, the same in every node's row."""

    X: Tensor
    Y: Tensor


@dataclass(frozen=True)
class SAGDA(Trainer):
    """Step sizes of clients and server, the number K of local steps, and the size of a minibatch."""

    title: ClassVar[str] = "SAGDA"

    eta_x: StepSize
    eta_y: StepSize
    server_x: StepSize = 1.0
    server_y: StepSize = 1.0
    K: LocalSteps = 5
    batch: BatchSize = 128

    def init(self, oracle: Oracle, net: Network) -> State:
        return State(*oracle.start())

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X0, Y0 = X, Y = state
        Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
        C, D = first_correction("lemma", net, Gx, Gy)
        for k in range(self.K):
            if k > 0 or self.batch < oracle.m:  # a whole share drawn again would give the same gradients
                Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
            X, Y = X - self.eta_x * (Gx + C), oracle.project(Y + self.eta_y * (Gy + D))
        shift_x, shift_y = net.mean(X - X0, Y - Y0)
        return State(X0 + self.server_x * shift_x, oracle.project(Y0 + self.server_y * shift_y))

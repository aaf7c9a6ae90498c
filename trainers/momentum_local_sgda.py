"""Momentum Local SGDA: K local steps along averaged gradients, then an average (Sharma, Panda, Joshi, Varshney 2022).

    X <- X + alpha (X~ - X),   X~ = X - eta_x U                                      K times
    Y <- Y + alpha (Y~ - Y),   Y~ = P(Y + eta_y V)
    U <- (1 - beta_x alpha) U + beta_x alpha Gx,   V <- (1 - beta_y alpha) V + beta_y alpha Gy
    X, Y, U, V <- their means                                                        one all-reduce

Gx and Gy are taken at the new (X, Y), on one batch; U and V start as the first gradients. K |B| oracle calls a round:
the last gradient of a round is the first of the next. With alpha <= 1, Y stays between feasible points.
No correction: heterogeneity stalls it for K > 1.

Neither the paper's text nor its authors' code was at hand: what stands here comes from its abstract and from what
others write about it, and only its invariants and limit cases are tested.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, LocalSteps, Share, StepSize
from robustbench_dec.trainer import Trainer, require


class State(NamedTuple):
    """Iterates and momenta, one row per node; the same in every row but for the first momenta."""

    X: Tensor
    Y: Tensor
    U: Tensor
    V: Tensor


@dataclass(frozen=True)
class MomentumLocalSGDA(Trainer):
    """Step sizes, momenta (beta = 1 / alpha: none), the number K of local steps, and the size of a minibatch."""

    title: ClassVar[str] = "MLSGDA"

    eta_x: StepSize
    eta_y: StepSize
    alpha: Share = 1.0
    beta_x: float = 0.5
    beta_y: float = 0.5
    K: LocalSteps = 5
    batch: BatchSize = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, beta in (("beta_x", self.beta_x), ("beta_y", self.beta_y)):
            require(0 < beta * self.alpha <= 1, f"{name} must be more than 0 and at most 1 / alpha, not {beta}")

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()
        with oracle.ahead():
            return State(X, Y, *oracle.grad(X, Y, oracle.draw(self.batch)))

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y, U, V = state
        weight_x, weight_y = self.beta_x * self.alpha, self.beta_y * self.alpha
        for _ in range(self.K):
            X = X - self.alpha * self.eta_x * U
            Y = Y + self.alpha * (oracle.project(Y + self.eta_y * V) - Y)
            with oracle.ahead():  # the next local step moves along it
                Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
            U, V = (1 - weight_x) * U + weight_x * Gx, (1 - weight_y) * V + weight_y * Gy
        return State(*net.mean(X, Y, U, V))

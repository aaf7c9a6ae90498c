"""DREAM: gradient tracking of a PAGE estimate with accelerated gossip (Chen, Ye, Luo 2022).

    V = FastMix(U, K)
    X <- FastMix(X - eta_x Vx, K),   Y <- P(FastMix(Y + eta_y Vy, K))
    G+ = g_B'(X, Y)                                           with probability p: a new, big minibatch B'
    G+ = G + (omega / q) (g_B(X, Y) - g_B(X_prev, Y_prev))    otherwise: omega ~ Bernoulli(q), one B at both points
    U <- V + G+ - G                                           from U = G

The nodes share p's and omega's tosses. The first G is g_B'. Expected oracle calls a step: p |B'| + (1 - p) q 2 |B|;
2K exchanges. FastMix is the Chebyshev recursion, and G's old error is not multiplied by 1/q: both as in the paper.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, Probability, StepSize, at_least
from robustbench_dec.tracking import Tracked, begin, fresh, move
from robustbench_dec.trainer import Trainer


@dataclass(frozen=True)
class Dream(Trainer):
    """Step sizes, rounds of FastMix, probabilities, sizes of B and of B' (big_batch None: a node's whole share)."""

    title: ClassVar[str] = "DREAM"

    eta_x: StepSize
    eta_y: StepSize
    K: Annotated[int, at_least(1, "round of gossip")] = 2
    p: Probability = 0.5
    q: Probability = 0.5
    batch: BatchSize = 64
    big_batch: BatchSize | None = 128

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        return begin(X, Y, *fresh(oracle, X, Y, self.big_batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, partial(net.fastmix, rounds=self.K), oracle, self.eta_x, self.eta_y, "atc")
        Gx, Gy = state.Gx, state.Gy
        if oracle.coin(self.p):
            Gx, Gy = fresh(oracle, X, Y, self.big_batch)
        elif oracle.coin(self.q):
            B = oracle.draw(self.batch)
            Bx_prev, By_prev = oracle.grad(state.X, state.Y, B)
            Bx, By = oracle.grad(X, Y, B)
            Gx, Gy = Gx + (Bx - Bx_prev) / self.q, Gy + (By - By_prev) / self.q
        return Tracked(X, Y, Vx + Gx - state.Gx, Vy + Gy - state.Gy, Gx, Gy, state.T + 1)

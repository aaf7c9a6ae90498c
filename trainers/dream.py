"""DREAM: gradient tracking of a PAGE estimate with accelerated gossip (Chen, Ye, Luo 2022).

    V = FastMix(U, K)
    X <- FastMix(X - eta_x Vx, K),   Y <- P(FastMix(Y + eta_y Vy, K))
    G+ = g_B'(X, Y)                                           with probability p: a new, big minibatch B'
    G+ = G + (omega / q) (g_B(X, Y) - g_B(X_prev, Y_prev))    otherwise: omega ~ Bernoulli(q), one B at both points
    U <- V + G+ - G                                           from U = G

Each node tosses for itself, which averages the estimates' noise. The first G is g_B'. Expected oracle calls of a node
in a step: p |B'| + (1 - p) q 2 |B|; the ledger has the mean over the nodes. 2K exchanges. FastMix is the Chebyshev
recursion, and G's old error is not multiplied by 1/q: both as in the paper.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, Probability, StepSize, at_least
from robustbench_dec.tracking import Tracked, begin, fresh, move, track
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
        with oracle.ahead():
            return begin(X, Y, *fresh(oracle, X, Y, self.big_batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, partial(net.fastmix, rounds=self.K), oracle, self.eta_x, self.eta_y, "atc")
        again = oracle.coins(self.p)
        omega = oracle.coins(self.q, but=again)
        with oracle.ahead():
            B = oracle.draw(self.big_batch or oracle.m, again)
            F = oracle.some_grad(X, Y, B, again)
            B = oracle.draw(self.batch, omega)
            B_prev = oracle.some_grad(state.X, state.Y, B, omega)
            B_here = oracle.some_grad(X, Y, B, omega)
        Gx, Gy = state.Gx.clone(), state.Gy.clone()
        for G, new, before, after in zip((Gx, Gy), F, B_prev, B_here, strict=True):
            G.index_copy_(0, again.places, new)
            G.index_add_(0, omega.places, after.sub_(before), alpha=1 / self.q)
        return track(state, X, Y, (Vx, Vy), (Gx, Gy))

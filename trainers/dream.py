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

import torch

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
        with oracle.ahead():
            return begin(X, Y, *fresh(oracle, X, Y, self.big_batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, partial(net.fastmix, rounds=self.K), oracle, self.eta_x, self.eta_y, "atc")
        again = oracle.coins(self.p)
        omega = oracle.coins(self.q, but=again)
        with oracle.ahead():
            B = oracle.draw(self.big_batch or oracle.m, again)
            Fx, Fy = oracle.some_grad(X, Y, B, again)
            B = oracle.draw(self.batch, omega)
            Bx_prev, By_prev = oracle.some_grad(state.X, state.Y, B, omega)
            Bx, By = oracle.some_grad(X, Y, B, omega)
        Gx = torch.where(again.here, Fx, state.Gx + (Bx - Bx_prev) / self.q)  # B - B_prev is 0 where omega is
        Gy = torch.where(again.here, Fy, state.Gy + (By - By_prev) / self.q)
        return Tracked(X, Y, Vx + Gx - state.Gx, Vy + Gy - state.Gy, Gx, Gy, state.T + 1)

"""Dec-FedTrack: decentralized minimax with K local steps and gradient tracking (Algorithm 1; arXiv 2405.00965).

    X <- X - eta_c (Gx + C),   Y <- P(Y + eta_d (Gy + D))        K times, both gradients at the same point and batch
    Z = (X0 - X) / (K eta_c),  R = (Y - Y0) / (K eta_d)
    C <- C - Z + WZ,           D <- D - R + WR
    X <- W (X0 - K eta_x Z),   Y <- W (Y0 + K eta_y R)           eta_x = eta_s eta_c,  eta_y = eta_r eta_d

P projects every local step, because projecting only after mixing is biased for K > 1. With 0 <= eta_r <= 1 the last
line is a convex combination of feasible points, so Y stays feasible without another projection.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, LocalSteps, StepSize, must
from robustbench_dec.trainer import Trainer, first_correction

FEASIBLE = must(" must be between 0 and 1, so that y stays feasible", lambda eta_r: 0 <= eta_r <= 1)


class State(NamedTuple):
    """Iterates and corrections, one row per node."""

    X: Tensor
    Y: Tensor
    C: Tensor
    D: Tensor


@dataclass(frozen=True)
class DecFedTrack(Trainer):
    """Settings in the paper's letters; `correction` says how C0 and D0 are made (Lemma A.3, one gossip, or zero)."""

    title: ClassVar[str] = "Dec-FedTrack"

    eta_c: StepSize
    eta_d: StepSize
    eta_s: StepSize = 1.0
    eta_r: Annotated[float, FEASIBLE] = 1.0
    K: LocalSteps = 5
    batch: BatchSize = 128
    correction: Literal["lemma", "gossip", "zero"] = "lemma"

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()
        if self.correction == "zero":
            return State(X, Y, X - X, Y - Y)
        Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
        C, D = first_correction(self.correction, net, Gx, Gy)
        return State(X, Y, C, D)

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X0, Y0, C, D = state
        X, Y = X0, Y0
        for _ in range(self.K):
            Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
            X = torch.sub(X, Gx.add_(C), alpha=self.eta_c)
            Y = oracle.project(torch.add(Y, Gy.add_(D), alpha=self.eta_d))
        K, eta_x, eta_y = self.K, self.eta_s * self.eta_c, self.eta_r * self.eta_d
        Z, R = (X0 - X).div_(K * self.eta_c), (Y - Y0).div_(K * self.eta_d)
        WZ, WR, X, Y = net.mix(Z, R, torch.sub(X0, Z, alpha=K * eta_x), torch.add(Y0, R, alpha=K * eta_y))
        return State(X, Y, (C - Z).add_(WZ), (D - R).add_(WR))

"""K-GT: decentralized minimisation with K local steps and gradient tracking (Liu, Lin, Koloskova, Stich 2023).

    X <- X - eta_c (G + C)       K times, G the gradient of f(., 0)
    Z = (X0 - X) / (K eta_c)
    C <- C - Z + WZ
    X <- W (X0 - K eta_x Z)      eta_x = eta_s eta_c

Dec-FedTrack without y: the non-robust baseline of the paper's Table 2.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, LocalSteps, StepSize
from robustbench_dec.trainer import Trainer, first_correction


class State(NamedTuple):
    """Iterates and corrections, one row per node."""

    X: Tensor
    C: Tensor


@dataclass(frozen=True)
class KGT(Trainer):
    """Settings in the paper's letters; `correction` says how C0 is made (Lemma A.3, one gossip, or zero)."""

    title: ClassVar[str] = "K-GT"
    has_dual: ClassVar[bool] = False

    eta_c: StepSize
    eta_s: StepSize = 1.0
    K: LocalSteps = 5
    batch: BatchSize = 128
    correction: Literal["lemma", "gossip", "zero"] = "lemma"

    def init(self, oracle: Oracle, net: Network) -> State:
        X, _ = oracle.start()
        if self.correction == "zero":
            return State(X, X - X)
        G = oracle.grad_x(X, None, oracle.draw(self.batch))
        return State(X, *first_correction(self.correction, net, G))

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X0, C = state
        X = X0
        for _ in range(self.K):
            G = oracle.grad_x(X, None, oracle.draw(self.batch))
            X = torch.sub(X, G + C, alpha=self.eta_c)
        Z = (X0 - X).div_(self.K * self.eta_c)
        WZ, X = net.mix(Z, torch.sub(X0, Z, alpha=self.K * self.eta_s * self.eta_c))
        return State(X, (C - Z).add_(WZ))

"""Fed-Norm-SGDA: clients may take different numbers of local steps, so they send their mean step (Sharma et al. 2023).

    x_i <- x_i - eta_x gx_i,   y_i <- P(y_i + eta_y gy_i)       K_i times on node i, from X0, Y0
    dx_i = (x_i - x0) / K_i,   dy_i = (y_i - y0) / K_i
    X <- X0 + tau gamma_x mean(dx),   Y <- P(Y0 + tau gamma_y mean(dy)),   tau = mean(K_i)         one all-reduce

dx_i is -eta_x times the mean of node i's K_i gradients. The ledger counts what the busiest node does: max(K_i) |B|
oracle calls a round. No correction of the directions: heterogeneity stalls it.

Neither the paper's text nor its authors' code was at hand: what stands here comes from its abstract and from what
others write about it, and only its invariants and limit cases are tested.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, StepSize, must
from robustbench_dec.trainer import Trainer, require

LOCAL_STEPS = must(
    " must be at least 1 local step for every node",
    lambda K: min((K,) if isinstance(K, int) else K, default=0) >= 1,
)


class State(NamedTuple):
    """Iterates and numbers of local steps, one row per node."""

    X: Tensor
    Y: Tensor
    K: Tensor


@dataclass(frozen=True)
class FedNormSGDA(Trainer):
    """Step sizes of clients and server, the number K of local steps (for all, or node by node), a minibatch's size."""

    title: ClassVar[str] = "Fed-Norm-SGDA"

    eta_x: StepSize
    eta_y: StepSize
    gamma_x: StepSize = 1.0
    gamma_y: StepSize = 1.0
    K: Annotated[int | tuple[int, ...], LOCAL_STEPS] = 5
    batch: BatchSize = 128

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()
        n = oracle.nodes
        steps = (self.K,) * n if isinstance(self.K, int) else self.K
        require(len(steps) == n, f"K must be one number for all nodes or {n} numbers, one per node, not {len(steps)}")
        return State(X, Y, torch.tensor([steps[i] for i in oracle.rows], device=X.device)[:, None])

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X0, Y0, K = state
        X, Y = X0, Y0
        for k in range(self.K if isinstance(self.K, int) else max(self.K)):
            Gx, Gy = oracle.grad(X, Y, oracle.draw(self.batch))
            busy = k < K  # (n, 1)
            X = torch.where(busy, X - self.eta_x * Gx, X)
            Y = torch.where(busy, oracle.project(Y + self.eta_y * Gy), Y)
        dx, dy, tau = net.mean((X - X0) / K, (Y - Y0) / K, K.to(X.dtype))
        return State(X0 + tau * self.gamma_x * dx, oracle.project(Y0 + tau * self.gamma_y * dy), K)

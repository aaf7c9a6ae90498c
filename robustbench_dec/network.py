"""Network: the only road between nodes, metered. Here all nodes live in one process; rows of a stack are nodes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec import topology
from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger


class Network:
    """Gossip with a doubly stochastic matrix W (n, n)."""

    def __init__(self, W: np.ndarray, ledger: Ledger | None = None) -> None:
        W = topology.check(np.asarray(W, dtype=np.float64))
        self.W = W
        self.nodes = len(W)
        self.spectral_rate = topology.spectral_rate(W)
        off_diagonal = (W != 0) & ~np.eye(self.nodes, dtype=bool)
        self.directed_edges = int(off_diagonal.sum())
        self.ledger = ledger or Ledger(self.nodes, self.directed_edges)
        # Row i's senders in ascending order, padded with weight 0: sums run in this order whatever the engine.
        degree = max(int((W != 0).sum(1).max()), 1)
        order = np.argsort(W == 0, axis=1, kind="stable")[:, :degree]  # (n, degree)
        self._senders = torch.from_numpy(order)
        self._weights = torch.from_numpy(np.take_along_axis(W, order, axis=1))

    def mix(self, *stacks: Tensor) -> Any:
        """W Z for each stack Z, all sent together in one exchange; one stack comes back bare, several as a tuple."""
        self.ledger.charge_exchange(sum(_row_bytes(Z) for Z in stacks))
        return _bare([self._gossip(Z) for Z in stacks])

    def fastmix(self, *stacks: Tensor, rounds: int) -> Any:
        """Chebyshev-accelerated gossip (Liu and Morse 2011; used by DREAM), `rounds` exchanges:

        U_{k+1} = (1 + eta) W U_k - eta U_{k-1},  U_{-1} = U_0,  eta = (1 - sqrt(1 - l^2)) / (1 + sqrt(1 - l^2)),
        with l the second largest singular value of W. Keeps the mean; its weights may be negative.
        """
        if rounds < 1:
            raise BadInput(f"fastmix needs at least 1 round of gossip, not {rounds}")
        root = float(np.sqrt(self.spectral_rate))  # p = 1 - l^2
        eta = (1 - root) / (1 + root)
        U_prev, U = list(stacks), list(stacks)
        for _ in range(rounds):
            self.ledger.charge_exchange(sum(_row_bytes(Z) for Z in stacks))
            U_prev, U = U, [(1 + eta) * self._gossip(u) - eta * v for u, v in zip(U, U_prev, strict=True)]
        return _bare(U)

    def mean(self, *stacks: Tensor) -> Any:
        """The exact mean row of each stack, in every row; charged as one all-reduce."""
        self.ledger.all_reduces += 1
        return _bare([Z.mean(0, keepdim=True).expand_as(Z) for Z in stacks])

    def _gossip(self, Z: Tensor) -> Tensor:
        weights = self._weights.to(Z)
        mixed = weights[:, :1] * Z[self._senders[:, 0]]
        for k in range(1, weights.shape[1]):
            mixed = torch.addcmul(mixed, weights[:, k : k + 1], Z[self._senders[:, k]])
        return mixed


def _row_bytes(Z: Tensor) -> int:
    return Z[0].numel() * Z.element_size()


def _bare(stacks: list[Tensor]) -> Any:
    return stacks[0] if len(stacks) == 1 else tuple(stacks)

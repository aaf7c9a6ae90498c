"""Network: the only road between nodes, metered. Here all nodes live in one process; rows of a stack are nodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec import topology
from robustbench_dec.errors import BadInput
from robustbench_dec.faults import RELIABLE, Faults
from robustbench_dec.ledger import Ledger


class Network:
    """Gossip with a doubly stochastic matrix W (n, n), or with what `faults` leave of it in this round, W_t.

    All exchanges of one round see the same W_t, a function of (key, ledger.rounds), the key being (the run's seed, the
    network's seed). A lost message was sent all the same and is charged. Exact means are taken to be reliable.
    """

    def __init__(
        self,
        W: np.ndarray,
        ledger: Ledger | None = None,
        faults: Faults = RELIABLE,
        key: tuple[int, int] = (0, 0),
    ) -> None:
        W = topology.check(np.asarray(W, dtype=np.float64))
        self.W = W
        self.faults = faults
        self.key = key
        self.nodes = len(W)
        self.rows: Sequence[int] = range(self.nodes)
        """The nodes that this process holds: row k of its stacks is node rows[k]. Here all of them."""
        self.spectral_rate = topology.spectral_rate(W)
        off_diagonal = (W != 0) & ~np.eye(self.nodes, dtype=bool)
        self.directed_edges = int(off_diagonal.sum())
        self.ledger = ledger or Ledger(self.nodes, self.directed_edges)
        self._gossip = self._draw()  # a W that these faults cannot have is refused now

    def matrix(self) -> np.ndarray:
        """This round's mixing matrix W_t (n, n)."""
        return self._this_round().W

    def mix(self, *stacks: Tensor) -> Any:
        """W Z for each stack Z, all sent together in one exchange; one stack comes back bare, several as a tuple."""
        return _bare(self._charged_exchange(list(stacks)))

    def fastmix(self, *stacks: Tensor, rounds: int) -> Any:
        """Chebyshev-accelerated gossip (Liu and Morse 2011; used by DREAM), `rounds` exchanges:

        U_{k+1} = (1 + eta) W U_k - eta U_{k-1},  U_{-1} = U_0,  eta = (1 - sqrt(1 - l^2)) / (1 + sqrt(1 - l^2)),
        with l the second largest singular value of W, also where faults leave W_t of it. Keeps the mean; its weights
        may be negative.
        """
        if rounds < 1:
            raise BadInput(f"fastmix needs at least 1 round of gossip, not {rounds}")
        root = float(np.sqrt(self.spectral_rate))  # p = 1 - l^2
        eta = (1 - root) / (1 + root)
        U_prev, U = list(stacks), list(stacks)
        for _ in range(rounds):
            WU = self._charged_exchange(U)
            U_prev, U = U, [(1 + eta) * wu - eta * v for wu, v in zip(WU, U_prev, strict=True)]
        return _bare(U)

    def mean(self, *stacks: Tensor) -> Any:
        """The exact mean row of each stack, in every row; charged as one all-reduce."""
        self.ledger.all_reduces += 1
        return _bare([Z.mean(0, keepdim=True).expand_as(Z) for Z in stacks])

    def _charged_exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        self.ledger.charge_exchange(sum(_row_bytes(Z) for Z in stacks))
        return self._exchange(stacks)

    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        """One exchange: this process' rows of W_t Z for each stack Z."""
        gossip = self._this_round()
        return [gossip(Z) for Z in stacks]

    def _this_round(self) -> "_Gossip":
        if self.faults != RELIABLE and self._gossip.round != self.ledger.rounds:
            self._gossip = self._draw()
        return self._gossip

    def _draw(self) -> "_Gossip":
        round = self.ledger.rounds
        return _Gossip(round, self.faults.matrix(self.W, self.key, round))


class _Gossip:
    """The product with one round's mixing matrix, its sums in a fixed order."""

    def __init__(self, round: int, W: np.ndarray) -> None:
        self.round = round
        self.W = W
        # Row i's senders in ascending order, padded with weight 0: sums run in this order whatever the engine.
        degree = max(int((W != 0).sum(1).max()), 1)
        order = np.argsort(W == 0, axis=1, kind="stable")[:, :degree]  # (n, degree)
        self._senders = torch.from_numpy(order)
        self._weights = torch.from_numpy(np.take_along_axis(W, order, axis=1))

    def __call__(self, Z: Tensor) -> Tensor:
        weights = self._weights.to(Z)
        mixed = weights[:, :1] * Z[self._senders[:, 0]]
        for k in range(1, weights.shape[1]):
            mixed = torch.addcmul(mixed, weights[:, k : k + 1], Z[self._senders[:, k]])
        return mixed


def _row_bytes(Z: Tensor) -> int:
    return Z[0].numel() * Z.element_size()


def _bare(stacks: list[Tensor]) -> Any:
    return stacks[0] if len(stacks) == 1 else tuple(stacks)

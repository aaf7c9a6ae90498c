"""Network: the only road between nodes, metered. Here all nodes live in one process; rows of a stack are nodes."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger
from robustbench_dec.networks import topology
from robustbench_dec.networks.faults import RELIABLE, Faults


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
        self.rows = range(self.nodes)
        """The nodes that this process holds: row k of its stacks is node rows[k]. Here all of them."""
        self.spectral_rate = topology.spectral_rate(W)
        off_diagonal = (W != 0) & ~np.eye(self.nodes, dtype=bool)
        self.directed_edges = int(off_diagonal.sum())
        self.ledger = ledger or Ledger(self.nodes, self.directed_edges)
        self.wire_bytes = 0
        """What this process has handed to a transport for gossip and means; here there is none."""
        self._gossip = self._draw()  # a W that these faults cannot have is refused now

    def matrix(self) -> np.ndarray:
        """This round's mixing matrix W_t (n, n)."""
        return self._this_round().W

    def mix(self, *stacks: Tensor) -> Any:
        """W Z for each stack Z, all sent together in one exchange; one stack comes back bare, several as a tuple."""
        return bare(self._charged_exchange(list(stacks)))

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
        return bare(U)

    def mean(self, *stacks: Tensor) -> Any:
        """The exact mean row of each stack, in every row; charged as one all-reduce."""
        self.ledger.all_reduces += 1
        return bare([Z.mean(0, keepdim=True).expand_as(Z) for Z in stacks])

    # What the runner needs where several processes share the nodes; it is not charged.

    @property
    def writes(self) -> bool:
        """Whether this process measures and writes files."""
        return True

    def gathered(self, Z: Tensor) -> Tensor | None:
        """The whole stack (n, ...), on the process that writes."""
        return Z

    def scattered(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """This process' rows of a stack that the writing process has; `like` tells their shape and type."""
        assert whole is not None
        return whole

    def told(self, content: Any = None) -> Any:
        """What the writing process says."""
        return content

    def still_here(self) -> None:
        """Said by the process that writes, now and then, while the others wait for it."""

    def agreed(self, losses: Tensor, save: bool) -> tuple[Tensor, bool]:
        """The losses of all nodes (n,), and whether the writing process wants to save."""
        return losses, save

    @property
    def handed_bytes(self) -> int:
        """What this process has handed to the transport so far, the runner's own messages included."""
        return 0

    def total(self, count: int) -> int:
        """The sum over all processes."""
        return count

    def _charged_exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        self.ledger.charge_exchange(sum(row_bytes(Z) for Z in stacks))
        return self._exchange(stacks)

    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        """One exchange: this process' rows of W_t Z for each stack Z."""
        gossip = self._this_round()
        return [gossip(Z) for Z in stacks]

    def _this_round(self) -> "Gossip":
        if self.faults != RELIABLE and self._gossip.round != self.ledger.rounds:
            self._gossip = self._draw()
        return self._gossip

    def _draw(self) -> "Gossip":
        round = self.ledger.rounds
        return Gossip(round, self.faults.matrix(self.W, self.key, round))


class Gossip:
    """The product with one round's mixing matrix, its sums in a fixed order."""

    def __init__(self, round: int, W: np.ndarray) -> None:
        self.round = round
        self.W = W
        # Row i's senders in ascending order, padded with weight 0: sums run in this order whatever the engine.
        degree = max(int((W != 0).sum(1).max()), 1)
        order = np.argsort(W == 0, axis=1, kind="stable")[:, :degree]  # (n, degree)
        self._senders = torch.from_numpy(order)
        self._weights = torch.from_numpy(np.take_along_axis(W, order, axis=1))

    def part(self, rows: range, places: Mapping[int, int]) -> "Gossip":
        """The same sums for some rows alone, on a stack in which node j stands at places[j]."""
        part = copy.copy(self)
        part._weights = self._weights[list(rows)]
        # Padding has weight 0: any row that is there will do.
        senders = [[places.get(j, 0) for j in line] for line in self._senders[list(rows)].tolist()]
        part._senders = torch.tensor(senders)
        return part

    def __call__(self, Z: Tensor) -> Tensor:
        weights = self._weights.to(Z)
        mixed = weights[:, :1] * Z[self._senders[:, 0]]
        for k in range(1, weights.shape[1]):
            mixed = torch.addcmul(mixed, weights[:, k : k + 1], Z[self._senders[:, k]])
        return mixed


def row_bytes(Z: Tensor) -> int:
    """The size of one node's row."""
    return Z[0].numel() * Z.element_size()


def bare(stacks: list[Tensor]) -> Any:
    """One stack as it is, several as a tuple."""
    return stacks[0] if len(stacks) == 1 else tuple(stacks)

"""Simulated: the network of a run whose nodes all live in one process; and the gossip that every network shares."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from robustbench_dec.ledger import Ledger
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.faults import RELIABLE, Faults

SHORT, LONG = 2**12, 2**15
"""Numbers in a row up to which the k-th neighbours of all nodes are added at once, and from which on PyTorch shares a
row's sum between threads."""


class SimulatedNetwork(Network):
    """Gossip with W (n, n), or with what `faults` leave of it: W_t is a function of (key, ledger.rounds).

    The key is (the run's seed, the network's seed).
    """

    def __init__(self, W: np.ndarray, faults: Faults = RELIABLE, key: tuple[int, int] = (0, 0)) -> None:
        W = topology.check(np.asarray(W, dtype=np.float64))
        self.W = W
        self.faults = faults
        self.key = key
        self.nodes = len(W)
        self.rows = range(self.nodes)
        self.spectral_rate = topology.spectral_rate(W)
        self.eigenvalues = np.linalg.eigvalsh((W + W.T) / 2)[:-1]
        self.lazy_rate = topology.spectral_rate((np.eye(self.nodes) + W) / 2)
        off_diagonal = (W != 0) & ~np.eye(self.nodes, dtype=bool)
        self.ledger = Ledger(self.nodes, directed_edges=int(off_diagonal.sum()))
        self._gossip = self._draw()  # a W that these faults cannot have is refused now

    def matrix(self) -> np.ndarray:
        return self._this_round().W

    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        gossip = self._this_round()
        return [gossip(Z) for Z in stacks]

    def _means(self, stacks: list[Tensor]) -> list[Tensor]:
        return [Z.mean(0, keepdim=True).expand_as(Z) for Z in stacks]

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
        self._matrices: dict[np.dtype[Any], sparse.csr_array] = {}

    def part(self, rows: range, places: Mapping[int, int]) -> "Gossip":
        """The same sums for some rows alone, on a stack in which node j stands at places[j]."""
        part = copy.copy(self)
        part._matrices = {}
        part._weights = self._weights[list(rows)]
        # Padding has weight 0: any row that is there will do.
        senders = [[places.get(j, 0) for j in line] for line in self._senders[list(rows)].tolist()]
        part._senders = torch.tensor(senders)
        return part

    def __call__(self, Z: Tensor) -> Tensor:
        # Which way is taken depends on a row alone, so processes that hold other numbers of rows go the same way.
        size = Z[0].numel()
        if size < SHORT or Z.device.type != "cpu":
            return self._all_rows(Z)
        if size >= LONG or Z.dtype not in (torch.float32, torch.float64):
            return self._row_by_row(Z)
        return self._at_once(Z)

    def _at_once(self, Z: Tensor) -> Tensor:
        """A sparse product, which adds a row's neighbours in the same order, without a call for each.

        PyTorch fuses a product with the sum where a CPU can (one rounding); SciPy on x86 rounds both, on every CPU."""
        numbers = Z.detach().flatten(1).numpy()
        if numbers.dtype not in self._matrices:
            kept = self._weights != 0
            ends = torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0))
            parts = self._weights[kept].numpy().astype(numbers.dtype), self._senders[kept].numpy(), ends.numpy()
            self._matrices[numbers.dtype] = sparse.csr_array(parts, shape=(len(kept), len(Z)))
        return torch.from_numpy(self._matrices[numbers.dtype] @ numbers).view(-1, *Z.shape[1:])

    def _row_by_row(self, Z: Tensor) -> Tensor:
        """A row's sum stays in a core's cache, and no row is copied before it is added."""
        mixed = Z.new_empty(len(self._weights), *Z.shape[1:])
        sent = Z.unbind()
        for row, senders, weights in zip(mixed.unbind(), self._senders.tolist(), self._weights.tolist(), strict=True):
            torch.mul(sent[senders[0]], weights[0], out=row)
            for j, weight in zip(senders[1:], weights[1:], strict=True):
                if weight != 0:
                    row.add_(sent[j], alpha=weight)
        return mixed

    def _all_rows(self, Z: Tensor) -> Tensor:
        """One operation for the k-th neighbours of all nodes."""
        weights = self._weights.to(Z)
        senders = self._senders.to(Z.device)
        mixed = weights[:, :1] * Z.index_select(0, senders[:, 0])
        for k in range(1, weights.shape[1]):
            mixed = torch.addcmul(mixed, weights[:, k : k + 1], Z.index_select(0, senders[:, k]))
        return mixed

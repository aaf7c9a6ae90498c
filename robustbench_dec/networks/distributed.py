"""Distributed: the network of a run whose nodes are spread over processes, with real messages between them.

Gossip is the simulator's: the same W_t, and sums over the neighbours in the same order, so that the number of processes
changes no addition. Over the edges that cross processes travel exactly the rows that the other side needs, all stacks
of one exchange in one message per neighbouring process. An exact mean is one all-reduce of all rows, each in its place
among zeros: sums of floats depend on their order, and so every process adds the rows up as the simulator does.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.network import Gossip, Network, bare, row_bytes
from robustbench_dec.networks.faults import RELIABLE, Faults
from robustbench_dec.networks.ranks import WAIT, Ranks, as_bytes, from_bytes, needed


class DistributedNetwork(Network):
    """This process' rows of a network; see Network for what its methods mean."""

    def __init__(self, W: np.ndarray, ranks: Ranks, faults: Faults = RELIABLE, key: tuple[int, int] = (0, 0)) -> None:
        super().__init__(W, faults=faults, key=key)
        self.ranks = ranks
        self.rows = ranks.rows(self.nodes)
        self.seconds = 0.0
        """Time that this process has spent in gossip and means, waiting for others included."""
        self._routes: tuple[Gossip, _Routes] | None = None
        self._handed_before = ranks.handed

    @property
    def writes(self) -> bool:
        return self.ranks.writes

    def mean(self, *stacks: Tensor) -> Any:
        self.ledger.all_reduces += 1
        began = time.perf_counter()
        mine = torch.cat([Z.flatten(1) for Z in stacks], 1)
        rows = mine.new_zeros(self.nodes, mine.shape[1])
        rows[self.rows.start : self.rows.stop] = mine
        with self._on_the_wire():
            parts = self.ranks.add(rows).split([Z[0].numel() for Z in stacks], 1)
        means = []
        for Z, part in zip(stacks, parts, strict=True):
            whole = part.to(Z.dtype).reshape(self.nodes, *Z.shape[1:]).contiguous()
            means.append(whole.mean(0, keepdim=True).expand_as(Z))
        self.seconds += time.perf_counter() - began
        return bare(means)

    @contextlib.contextmanager
    def _on_the_wire(self) -> Iterator[None]:
        before = self.ranks.handed
        yield
        self.wire_bytes += self.ranks.handed - before

    @property
    def handed_bytes(self) -> int:
        return self.ranks.handed - self._handed_before

    def gathered(self, Z: Tensor) -> Tensor | None:
        return self.ranks.gather(Z, self.nodes)

    def scattered(self, whole: Tensor | None, like: Tensor) -> Tensor:
        return self.ranks.scatter(whole, like, self.nodes)

    def told(self, content: Any = None) -> Any:
        return self.ranks.tell(content)

    def still_here(self) -> None:
        self.ranks.tell(WAIT)

    def agreed(self, losses: Tensor, save: bool) -> tuple[Tensor, bool]:
        """One small all-reduce a round: every loss (n,), padded with zeros where others hold it, and rank 0's wish."""
        self.ranks.where = f"in round {self.ledger.rounds}"
        values = torch.zeros(self.nodes + 1, dtype=torch.float64, device=self.ranks.device)
        values[self.rows.start : self.rows.stop] = losses.double()
        values[-1] = float(save and self.writes)
        self.ranks.add(values)
        return values[:-1].to(losses.dtype), bool(values[-1] > 0)

    def total(self, count: int) -> int:
        return int(self.ranks.add(torch.tensor([count], device=self.ranks.device)))

    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        began = time.perf_counter()
        gossip = self._this_round()
        if self._routes is None or self._routes[0] is not gossip:
            self._routes = gossip, _Routes(gossip, self.ranks, self.nodes)
        routes = self._routes[1]
        row = sum(row_bytes(Z) for Z in stacks)
        outgoing = {rank: torch.cat([as_bytes(Z[local]) for Z in stacks]) for rank, local in routes.outgoing.items()}
        with self._on_the_wire():
            received = self.ranks.swap(outgoing, {rank: count * row for rank, count in routes.incoming.items()})
        mixed = []
        offsets = dict.fromkeys(received, 0)
        for Z in stacks:
            parts = [Z]
            for rank, data in received.items():  # ascending ranks, as in the routes
                count = routes.incoming[rank]
                end = offsets[rank] + count * row_bytes(Z)
                parts.append(from_bytes(data[offsets[rank] : end].clone(), Z.dtype, (count, *Z.shape[1:])))
                offsets[rank] = end
            mixed.append(routes.gossip(torch.cat(parts)))
        self.seconds += time.perf_counter() - began
        return mixed


class _Routes:
    """Which rows travel between which ranks under one matrix W_t."""

    def __init__(self, gossip: Gossip, ranks: Ranks, nodes: int) -> None:
        blocks = ranks.split(nodes)
        mine = blocks[ranks.rank]
        others = [rank for rank in range(ranks.size) if rank != ranks.rank]
        wanted = {rank: needed(gossip.W, mine, blocks[rank]) for rank in others}
        asked = {rank: needed(gossip.W, blocks[rank], mine) for rank in others}
        self.incoming = {rank: len(rows) for rank, rows in wanted.items() if rows}
        self.outgoing = {rank: [j - mine.start for j in rows] for rank, rows in asked.items() if rows}
        known = [*mine, *(j for rows in wanted.values() for j in rows)]
        self.gossip = gossip.part(mine, {j: place for place, j in enumerate(known)})

"""Distributed: the network of a run whose nodes are spread over processes, with real messages between them.

Gossip is the simulator's: the same W_t, and sums over the neighbours in the same order, so that the number of processes
changes no addition. Over the edges that cross processes travel exactly the rows that the other side needs, all stacks
of one exchange in one message per neighbouring process. An exact mean is one all-reduce of all rows, each in its place
among zeros: sums of floats depend on their order, and so every process adds the rows up as the simulator does.
"""

import contextlib
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.network import row_bytes
from robustbench_dec.networks.faults import RELIABLE, Faults
from robustbench_dec.networks.ranks import Ranks, as_bytes, from_bytes, needed
from robustbench_dec.networks.simulated import Gossip, SimulatedNetwork


class DistributedNetwork(SimulatedNetwork):
    """This process' rows of a network; see Network for what its methods mean."""

    def __init__(self, W: np.ndarray, ranks: Ranks, faults: Faults = RELIABLE, key: tuple[int, int] = (0, 0)) -> None:
        super().__init__(W, faults, key)
        self.ranks = ranks
        self.rows = ranks.rows(self.nodes)
        self.seconds = 0.0
        """Time that this process has spent in gossip and means, waiting for others included."""
        self.wire_bytes = 0
        """What this process has handed to the transport for gossip and means."""
        self._routes: tuple[Gossip, _Routes] | None = None

    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        gossip = self._this_round()
        if self._routes is None or self._routes[0] is not gossip:
            self._routes = gossip, _Routes(gossip, self.ranks, self.nodes)
        routes = self._routes[1]
        row = sum(row_bytes(Z) for Z in stacks)
        with self._on_the_wire():
            outgoing = {k: torch.cat([as_bytes(Z[local]) for Z in stacks]) for k, local in routes.outgoing.items()}
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
        return mixed

    def _means(self, stacks: list[Tensor]) -> list[Tensor]:
        with self._on_the_wire():
            mine = torch.cat([Z.flatten(1) for Z in stacks], 1)
            rows = mine.new_zeros(self.nodes, mine.shape[1])
            rows[self.rows.start : self.rows.stop] = mine
            parts = self.ranks.add(rows).split([Z[0].numel() for Z in stacks], 1)
            means = []
            for Z, part in zip(stacks, parts, strict=True):
                whole = part.to(Z.dtype).reshape(self.nodes, *Z.shape[1:]).contiguous()
                means.append(whole.mean(0, keepdim=True).expand_as(Z))
        return means

    @contextlib.contextmanager
    def _on_the_wire(self) -> Iterator[None]:
        """Count the seconds and the bytes of what is done inside."""
        began, before = time.perf_counter(), self.ranks.handed
        yield
        self.seconds += time.perf_counter() - began
        self.wire_bytes += self.ranks.handed - before


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

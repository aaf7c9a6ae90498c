"""Crew: the processes that share the nodes of one run, as the runner sees them. Nothing of this is charged.

One of them writes: it alone claims the run, measures, and makes files; what it decides the others hear as an Order.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.networks.distributed import DistributedNetwork
from robustbench_dec.networks.faults import Faults
from robustbench_dec.networks.ranks import Lost, Ranks
from robustbench_dec.networks.simulated import SimulatedNetwork


class Order(Enum):
    """What the writing process says to the others about a run."""

    WAIT = "wait"  # said now and then while it works alone, so that nobody takes it for dead
    TRAIN = "train"
    NOTHING = "nothing to do"
    STOP = "stop"  # it cannot begin; it tells the user why
    DONE = "done"


class Crew(ABC):
    """The processes of one run; these methods are called by all of them, in the same order, unless they say else."""

    rank: int
    size: int
    writes: bool
    """Whether this process measures and writes files."""
    wire_bytes: int
    """What this process has handed to a transport for gossip and means."""

    @property
    @abstractmethod
    def handed_bytes(self) -> int:
        """The same with the runner's own messages."""

    @abstractmethod
    def connect(self, W: np.ndarray, faults: Faults, key: tuple[int, int]) -> Network:
        """This process' part of the network."""

    @abstractmethod
    def meet(self, run_id: str) -> None:
        """Refuse to go on unless every process was asked for the same run."""

    @abstractmethod
    def gather(self, Z: Tensor) -> Tensor | None:
        """The whole stack (n, ...), on the process that writes."""

    @abstractmethod
    def scatter(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """This process' rows of a stack that the writing process has; `like` tells their shape and type."""

    @abstractmethod
    def announce(self, content: object = None) -> Any:
        """What the writing process says, on every process: anything that JSON can hold."""

    @abstractmethod
    def agree(self, losses: Tensor, save: bool, round: int) -> tuple[Tensor, bool]:
        """The losses of all nodes (n,) after this round, and whether the writing process wants to save."""

    @abstractmethod
    def total(self, count: int) -> int:
        """The sum over all processes."""

    def order(self, order: Order) -> None:
        """Said by the writing process alone, while the others are in `await_order`."""
        self.announce(order.value)

    def waiting(self) -> None:
        """Said by the writing process alone, now and then, while the others are in `await_order`."""
        self.order(Order.WAIT)

    def await_order(self) -> Order:
        """What the others, who do not write, are to do next."""
        while (order := Order(self.announce())) is Order.WAIT:
            pass
        if order is Order.STOP:
            raise Lost(f"rank {self.rank} ends because rank 0 cannot begin; rank 0 says why")
        return order

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Around what the writing process does before its first order: if it fails, the others are sent home."""
        try:
            yield
        except Exception:
            self.order(Order.STOP)
            raise


class Alone(Crew):
    """One process that holds all nodes."""

    rank, size = 0, 1
    writes = True
    handed_bytes = 0

    def __init__(self) -> None:
        self.wire_bytes = 0

    def connect(self, W: np.ndarray, faults: Faults, key: tuple[int, int]) -> Network:
        return SimulatedNetwork(W, faults, key)

    def meet(self, run_id: str) -> None:
        pass

    def gather(self, Z: Tensor) -> Tensor | None:
        return Z

    def scatter(self, whole: Tensor | None, like: Tensor) -> Tensor:
        assert whole is not None
        return whole

    def announce(self, content: object = None) -> Any:
        return content

    def agree(self, losses: Tensor, save: bool, round: int) -> tuple[Tensor, bool]:
        return losses, save

    def total(self, count: int) -> int:
        return count


class OnRanks(Crew):
    """The processes that torchrun started."""

    def __init__(self, ranks: Ranks, nodes: int) -> None:
        self.ranks, self.nodes = ranks, nodes
        self.rank, self.size = ranks.rank, ranks.size
        self.rows = ranks.rows(nodes)
        self.writes = ranks.writes

    def connect(self, W: np.ndarray, faults: Faults, key: tuple[int, int]) -> Network:
        self._handed_before = self.ranks.handed
        self._net = DistributedNetwork(W, self.ranks, faults, key)
        return self._net

    @property
    def wire_bytes(self) -> int:
        return self._net.wire_bytes

    @wire_bytes.setter
    def wire_bytes(self, count: int) -> None:
        self._net.wire_bytes = count

    @property
    def handed_bytes(self) -> int:
        return self.ranks.handed - self._handed_before

    def meet(self, run_id: str) -> None:
        self.ranks.agree_on(run_id)

    def gather(self, Z: Tensor) -> Tensor | None:
        return self.ranks.gather(Z, self.nodes)

    def scatter(self, whole: Tensor | None, like: Tensor) -> Tensor:
        return self.ranks.scatter(whole, like, self.nodes)

    def announce(self, content: object = None) -> Any:
        return self.ranks.tell(content)

    def agree(self, losses: Tensor, save: bool, round: int) -> tuple[Tensor, bool]:
        """One small all-reduce a round: every loss (n,), padded with zeros where others hold it, and rank 0's wish."""
        self.ranks.where = f"in round {round}"
        values = torch.zeros(self.nodes + 1, dtype=torch.float64, device=self.ranks.device)
        values[self.rows.start : self.rows.stop] = losses.double()
        values[-1] = float(save and self.writes)
        self.ranks.add(values)
        return values[:-1].to(losses.dtype), bool(values[-1] > 0)

    def total(self, count: int) -> int:
        return int(self.ranks.add(torch.tensor([count], device=self.ranks.device)))

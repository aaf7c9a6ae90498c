"""Oracle: gradients of all nodes at once, metered, on minibatches that are a function of (seed, node, draw)."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from robustbench_dec import memory
from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger
from robustbench_dec.problem import Batch, Problem


@dataclass(frozen=True, eq=False)
class Toss:
    """A coin for each of all nodes, and which of the nodes are held here."""

    heads: Tensor  # (nodes, 1), bool
    rows: range

    @property
    def here(self) -> Tensor:
        """Of the nodes that are held here, one per row: (n, 1)."""
        return self.heads[self.rows.start : self.rows.stop]

    @cached_property
    def places(self) -> Tensor:
        """The rows here whose coin shows heads."""
        return self.here[:, 0].nonzero()[:, 0]

    @property
    def count(self) -> int:
        """Heads of all nodes."""
        return int(self.heads.sum())


class Oracle:
    """The stochastic first-order oracle of n nodes.

    Randomness is a counter, not a stream: node i's k-th minibatch comes from a Philox generator with key (seed, i) set
    to position k, so a resumed run draws what an undisturbed one would have drawn; `draws` is all there is to save.
    """

    def __init__(
        self,
        problem: Problem,
        nodes: int,
        seed: int,
        ledger: Ledger,
        device: str = "cpu",
        rows: range | None = None,
    ) -> None:
        memory.keep_freed()
        self.problem = problem
        self.nodes = nodes
        self.rows = range(nodes) if rows is None else rows
        """The nodes whose samples this process holds: row k of a stack is node rows[k]."""
        self.seed = seed
        self.ledger = ledger
        self.device = device
        self.draws = 0
        self._philox = np.random.Philox(key=[seed, 0])
        self._stream = np.random.Generator(self._philox)
        self._position = self._philox.state  # at the start, whatever key and counter are put into it
        shards = problem.shards(nodes, seed)
        if len(self.rows) < nodes:
            shards = tuple(part[self.rows.start : self.rows.stop].clone() for part in shards)
        self.shards: Batch = tuple(part.to(device).contiguous() for part in shards)  # a draw must not copy them
        self.m = self.shards[0].shape[1]
        self.losses = torch.full((len(self.rows),), float("nan"), device=device)
        """Of these nodes, at the last gradient; NaN before the first."""

    @property
    def last_loss(self) -> float:
        """The mean loss of these nodes at the last gradient."""
        return self.losses.mean().item()

    def start(self) -> tuple[Tensor, Tensor]:
        """X0 (n, d) and Y0 (n, q): every node starts at the problem's common point."""
        x0, y0 = self.problem.start(self.seed)
        x0, y0 = x0.to(self.device), y0.to(self.device)
        return x0.expand(len(self.rows), -1).clone(), y0.expand(len(self.rows), -1).clone()

    def draw(self, size: int, busy: Toss | None = None) -> Batch:
        """xi: an independent minibatch per node, without repetition inside a minibatch: tensors (n, size, ...).

        With `busy`, only for the nodes whose coin shows heads: as many rows as there are of them here.
        """
        if not 1 <= size <= self.m:
            raise BadInput(f"a batch must have 1 to {self.m} samples, the size of a node's share, not {size}")
        if size == self.m and busy is None:
            self.draws += 1
            return self.shards
        node = torch.arange(len(self.rows)) if busy is None else busy.places.cpu()
        rows = [self._indices(self.rows[k], size) + k * self.m for k in node.tolist()]
        self.draws += 1
        index = torch.from_numpy(np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)).to(self.device)
        drawn = (part.flatten(0, 1).index_select(0, index) for part in self.shards)
        return tuple(part.unflatten(0, (len(rows), size)) for part in drawn)

    def grad(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gx (n, d) and Gy (n, q) at (X, Y) on `batch`; charged one paired call per sample."""
        self.ledger.charge_gradients(batch[0].shape[1])
        Gx, Gy, self.losses = self.problem.grads(X, Y, batch)
        return Gx, Gy

    def some_grad(self, X: Tensor, Y: Tensor, batch: Batch, busy: Toss) -> tuple[Tensor, Tensor]:
        """The same for the `busy` nodes alone, on a batch drawn for them: as many rows as there are of them here."""
        self.ledger.charge_gradients(batch[0].shape[1], busy=busy.count)
        X, Y = X[busy.places], Y[busy.places]
        if not len(X):
            return X, Y
        Gx, Gy, losses = self.problem.grads(X, Y, batch)
        self.losses = self.losses.to(losses).index_copy(0, busy.places, losses)
        return Gx, Gy

    def grad_x(self, X: Tensor, Y: Tensor | None, batch: Batch) -> Tensor:
        """Gx (n, d) alone; Y = None stands for Y = 0 in a method without y, where it is the whole call."""
        samples = batch[0].shape[1]
        self.ledger.charge_gradients(samples, y=False, dual=Y is not None)
        self.ledger.charge_inner(samples * self.problem.inner_calls)
        Gx, self.losses = self.problem.grads_x(X, Y, batch)
        return Gx

    def grad_y(self, X: Tensor, Y: Tensor, batch: Batch) -> Tensor:
        """Gy (n, q) alone; charged half a call per sample."""
        self.ledger.charge_gradients(batch[0].shape[1], x=False)
        Gy, self.losses = self.problem.grads_y(X, Y, batch)
        return Gy

    def full_grad(self, X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The exact local gradients, over all m samples of each node; charged m calls."""
        return self.grad(X, Y, self.shards)

    def ahead(self) -> AbstractContextManager[None]:
        """What is asked for in here is for the next step, which will be charged for it."""
        return self.ledger.ahead()

    def project(self, Y: Tensor) -> Tensor:
        """The nearest feasible point of every row."""
        return self.problem.project(Y)

    def coins(self, probability: float, but: Toss | None = None) -> Toss:
        """A toss per node, a function of (seed, node, draw) like the minibatches; tails where `but` shows heads."""
        tosses = [self._generator(i, 1).random() < probability for i in range(self.nodes)]
        self.draws += 1
        heads = torch.tensor(tosses, device=self.device)[:, None]
        return Toss(heads if but is None else heads & ~but.heads, self.rows)

    def _indices(self, node: int, size: int) -> np.ndarray:
        if size == self.m:
            return np.arange(self.m)
        return self._generator(node, 0).choice(self.m, size, replace=False, shuffle=False)

    def _generator(self, stream: int, kind: int) -> np.random.Generator:
        """As new with the key (seed, stream) and the counter (0, kind, 0, draws): made anew, it would cost as much
        as the draw itself."""
        place = self._position["state"]
        place["key"][1] = stream
        place["counter"][:] = 0, kind, 0, self.draws
        self._philox.state = self._position
        return self._stream

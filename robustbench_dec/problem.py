"""Problem: what one node sees, its loss at one point on one batch.

The suite solves   min_x max_{y in Y} (1/n) sum_i f_i(x, y),   f_i the mean loss over node i's samples.
Small letters are one node's vector, capital letters are stacks with one row per node: X is (n, d), Y is (n, q).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from robustbench_dec.architecture import Architecture
from robustbench_dec.data import Dataset
from robustbench_dec.parts import Part

Batch = tuple[Tensor, ...]
"""Samples of all nodes: each tensor is (n, b, ...); without the first axis, the samples of one node."""


@dataclass(frozen=True)
class Problem(Part, ABC):
    """A loss, a feasible set for y, and who holds which samples. Subclasses are frozen dataclasses of settings."""

    dual_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that only describe y's feasible set, and so mean nothing to a method without y."""

    whole_data: ClassVar[tuple[str, ...]] = ()
    """Cached properties that hold the data of all nodes."""

    places: ClassVar[tuple[str, ...]] = ()
    """Settings that may be paths to a user's own files, which an identity tells by name and <setting>_sha256."""

    has_dual: ClassVar[bool] = True
    """Whether there is a y; without one, only methods without y can train on it."""

    @property
    def inner_calls(self) -> int:
        """Gradients of each sample that `loss` itself takes, in something of that sample's own; the oracle charges."""
        return 0

    def check(self, nodes: int) -> None:
        """Refuse what so many nodes cannot train on, before a graph of them is built or anything is written."""

    def release(self) -> None:
        """Forget the data of all nodes, where a process needs only its own share; asked for, they are loaded anew."""
        for name in self.whole_data:
            self.__dict__.pop(name, None)

    @abstractmethod
    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        """x0 (d,) and y0 (q,), the same for all nodes."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        """f(x, y; xi), a scalar: the mean over one node's batch. y = None stands for y = 0."""

    @abstractmethod
    def project(self, Y: Tensor) -> Tensor:
        """The nearest feasible y, for one vector (q,) or for every row of a stack (n, q)."""

    @abstractmethod
    def shards(self, nodes: int, seed: int) -> Batch:
        """All samples, dealt to the nodes in equal shares: tensors (n, m, ...)."""

    def gauge(self, shards: Batch) -> Callable[[Tensor], dict[str, float]]:
        """What a curve shows of the mean x-bar beside its costs, by name; nothing unless a problem knows more."""
        return lambda x: {}

    def grads(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Row i: grad_x f_i and grad_y f_i at (x_i, y_i) on node i's batch, and its loss: (n, d), (n, q), (n,).

        One node after the other: it costs next to nothing over one model on all images, and vmap costs as much or more
        (benchmarks/training_speed.csv), and row i does not depend on which other rows are computed beside it, so that
        processes can share the rows.
        """
        rows = []
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
            loss = self.loss(x, y, tuple(part[i] for part in batch))
            rows.append((*torch.autograd.grad(loss, (x, y)), loss.detach()))
        Gx, Gy, losses = zip(*rows, strict=True)
        return torch.stack(Gx), torch.stack(Gy), torch.stack(losses)

    def grads_x(self, X: Tensor, Y: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Row i: grad_x f_i at (x_i, y_i) alone, and the loss: (n, d), (n,). Y = None stands for Y = 0."""
        rows = []
        for i, x in enumerate(X):
            x = x.detach().requires_grad_()
            loss = self.loss(x, None if Y is None else Y[i], tuple(part[i] for part in batch))
            rows.append((*torch.autograd.grad(loss, (x,)), loss.detach()))
        Gx, losses = zip(*rows, strict=True)
        return torch.stack(Gx), torch.stack(losses)

    def grads_y(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Row i: grad_y f_i at (x_i, y_i) alone, and the loss: (n, q), (n,)."""
        return self.grads(X, Y, batch)[1:]


@dataclass(frozen=True)
class Classifier(Problem):
    """A problem whose x is an image classifier that attacks can attack."""

    @property
    @abstractmethod
    def images(self) -> Dataset:
        """The data set, in memory."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The network's card."""

    @abstractmethod
    def module(self, x: Tensor) -> nn.Module:
        """One row of X as a network: images in [0, 1] in, logits out."""

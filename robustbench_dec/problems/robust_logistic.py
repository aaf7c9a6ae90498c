"""Robust logistic regression: y says how much each of the N samples weighs (the paper's first experiment).

With l_k(x) = log(1 + exp(-b_k a_k'x)), a_k with a 1 appended, node i holding samples k = i m, ..., i m + m - 1, and a
minibatch B of node i:

    f_i(x, y; B) = (w / |B|) sum_{k in B} y_k l_k(x) - (mu / 2) ||y - 1/N||^2 + g(x),    y >= 0,  sum_k y_k = 1,
    g(x) = theta sum_k nu x_k^2 / (1 + nu x_k^2)

whose mean over B and over the nodes is f(x, y) = (w / N) sum_k y_k l_k - (mu / 2) ||y - 1/N||^2 + g. The scalings:

    A   w = 1, mu = 1    as the paper writes it: N times too small for its own step sizes
    B   w = N, mu = 1    what the published codes plot: close to the largest loss
    C   w = N, mu = N    chi-square robustness: Phi = mean(l) + Var(l) / 2 + g as long as no loss is 1 below the mean

The loss has the minus sign, so that sign(a'x) predicts b; the paper's plus sign is the same problem in -x. Exact are

    y_hat(x) = P(1/N + (w / (N mu)) l),   Phi(x) = f(x, y_hat(x)),   grad Phi(x) = grad_x f(x, y_hat(x)),

P the projection onto the simplex. A method without y weighs all samples alike, y = 1/N: y = 0 is not feasible here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar
from weakref import ref

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import logsigmoid

from robustbench_dec import data, simplex
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Size, must
from robustbench_dec.problem import Batch, Problem

CHOICES = {"scaling": ("A", "B", "C"), "x0": ("zeros", "ones"), "precision": ("double", "single")}

LARGE, SPARSE = 2**16, 0.25
"""Sparse products are faster for so many numbers a node, if not more than this share of them is other than 0; products
of fewer numbers are sums over all nodes at once."""

_known: list[tuple[ref[Tensor], tuple[Any, Any]]] = []
"""The shards that were asked for last, and their sparse matrices."""


def _sparse(signed: Tensor) -> tuple[Any, Any]:
    """The samples of all nodes (n, m, d) as a sparse matrix (n m, n d), with a block for each node; its transpose."""
    if not _known or _known[0][0]() is not signed:
        matrix = sparse.block_diag([sparse.csr_array(rows.numpy()) for rows in signed], format="csr")
        _known[:] = [(ref(signed), (matrix, matrix.T))]
    return _known[0][1]


@dataclass(frozen=True)
class RobustLogistic(Problem):
    """Which samples, how they are weighed, and where x and y start (y0 None: all samples weigh alike).

    `nodes` is part of the problem, because y has one coordinate per sample that the nodes hold, N = nodes m.
    """

    dual_settings: ClassVar[tuple[str, ...]] = ("y0",)
    whole_data: ClassVar[tuple[str, ...]] = ("table",)
    places: ClassVar[tuple[str, ...]] = ("dataset",)
    dataset: str = "breast_cancer"
    scaling: str = "C"
    split: str = "iid"
    nodes: Annotated[int, must(": a network needs at least 1 node", lambda nodes: nodes >= 1)] = 10
    theta: Size = 1e-5
    nu: Size = 10.0
    x0: str = "zeros"
    y0: tuple[float, ...] | None = None
    precision: str = "double"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise BadInput(f"no {name} {getattr(self, name)!r}; there are: {', '.join(choices)}")
        if self.y0 is not None and not (min(self.y0, default=0) >= 0 and abs(sum(self.y0) - 1) <= 1e-6):
            raise BadInput(
                "y0 must lie in the simplex, its coordinates 0 or more with the sum 1, "
                f"not have the sum {sum(self.y0):g} and the smallest coordinate {min(self.y0, default=0):g}"
            )

    @cached_property
    def table(self) -> data.Tabular:
        """The data set, in memory as sparse rows."""
        if data.identity(self.dataset, data.TABULAR) != self.data_identity:
            raise BadInput(f"{self.dataset} was edited after it was asked for; the same command starts anew")
        return data.load_tabular(self.dataset)

    @cached_property
    def data_identity(self) -> dict[str, str]:
        """What the identity of a run says of its data."""
        return data.identity(self.dataset, data.TABULAR)

    def settings(self) -> dict[str, object]:
        return super().settings() | self.data_identity

    def check(self, nodes: int) -> None:
        _ = self.m

    @cached_property
    def m(self) -> int:
        """Samples per node; the fewer than n that are left over are dropped."""
        samples = len(self.table.train_labels)
        if samples < self.nodes:
            raise BadInput(f"{self.nodes} nodes are more than the {samples} samples of {self.dataset} to share")
        return samples // self.nodes

    @cached_property
    def is_sparse(self) -> bool:
        """Whether sparse products with a node's whole share are faster; the same on all processes."""
        features = self.table.train_features
        return self.m * features.shape[1] >= LARGE and features.nnz <= SPARSE * math.prod(features.shape)

    @property
    def N(self) -> int:
        """Samples of all nodes, the length of y."""
        return self.nodes * self.m

    @property
    def w(self) -> int:
        """The weight of the data."""
        return 1 if self.scaling == "A" else self.N

    @property
    def mu(self) -> int:
        """How strongly f is concave in y."""
        return self.N if self.scaling == "C" else 1

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "double" else torch.float32

    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        """x0 and y0 as the settings say; the seed decides nothing here."""
        x0 = torch.full((self.table.train_features.shape[1] + 1,), float(self.x0 == "ones"), dtype=self.dtype)
        if self.y0 is None:
            return x0, torch.full((self.N,), 1 / self.N, dtype=self.dtype)
        if len(self.y0) != self.N:
            raise BadInput(f"y0 must have {self.N} coordinates, one per sample, not {len(self.y0)}")
        return x0, torch.tensor(self.y0, dtype=self.dtype)

    def shards(self, nodes: int, seed: int) -> Batch:
        """b a, the rows with their labels' signs, (n, m, d), and which coordinate of y is each sample's, (n, m)."""
        if nodes != self.nodes:
            raise BadInput(f"y was made for the samples of {self.nodes} nodes, not {nodes}; set nodes = {nodes}")
        assert self.is_sparse in (True, False)  # known before the table is released
        index = data.split(self.table.train_labels, nodes, self.split, seed).flatten()
        features = torch.from_numpy(self.table.train_features[index.numpy()].toarray()).to(self.dtype)
        labels = self.table.train_labels[index][:, None].to(self.dtype)
        signed = torch.cat([features * labels, labels], 1)  # the bias column of ones becomes the labels
        coordinates = torch.arange(self.N).view(nodes, self.m)
        return signed.view(nodes, self.m, -1), coordinates

    def project(self, Y: Tensor) -> Tensor:
        """The nearest point of the simplex."""
        return simplex.project(Y)

    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        """f_i(x, y; B) on one node's batch; y = None stands for y = 1/N."""
        signed, k = batch
        losses = -logsigmoid(signed @ x)
        if y is None:
            return self.w / self.N * losses.mean() + self.g(x)
        return self.w * (y[k] * losses).mean() - self.mu / 2 * (y - 1 / self.N).square().sum() + self.g(x)

    def grads(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Gx and Gy as below, and the losses f_i."""
        weights = Y.gather(1, batch[1])
        margins, losses, values = self._losses(X, weights, batch)
        Gy, penalty = self._grad_y(Y, losses, batch)
        return self._grad_x(X, weights, margins, losses, batch), Gy, values - penalty

    def grads_x(self, X: Tensor, Y: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gx = (w / |B|) sum_{k in B} y_k grad l_k + grad g, row by row, and the losses f_i; Y = None: y = 1/N."""
        k = batch[1]
        weights = torch.full_like(k, 1 / self.N, dtype=X.dtype) if Y is None else Y.gather(1, k)
        margins, losses, values = self._losses(X, weights, batch)
        if Y is not None:
            values = values - self.mu / 2 * torch.linalg.vector_norm(Y - 1 / self.N, dim=1).square()
        return self._grad_x(X, weights, margins, losses, batch), values

    def grads_y(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gy = (w / |B|) sum_{k in B} l_k e_k - mu (y - 1/N), row by row, and the losses f_i."""
        _, losses, values = self._losses(X, Y.gather(1, batch[1]), batch)
        Gy, penalty = self._grad_y(Y, losses, batch)
        return Gy, values - penalty

    # Nothing below rounds differently for 1 node and for several, else processes that share the nodes would part ways.

    def _losses(self, X: Tensor, weights: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The batch's b_k a_k'x and l_k, both (n, |B|), and the value of f_i without y's penalty (n,)."""
        margins = self._rows_times(X, batch[0])
        losses = -logsigmoid(margins)
        return margins, losses, self.w / margins.shape[1] * (weights * losses).sum(1) + self.g(X)

    def _grad_x(self, X: Tensor, weights: Tensor, margins: Tensor, losses: Tensor, batch: Batch) -> Tensor:
        # grad l_k = -sigmoid(-b_k a_k'x) b_k a_k, and log sigmoid(-t) = log sigmoid(t) - t: torch.sigmoid's last bit
        # depends on a number's place in memory.
        pull = (losses + margins).neg_().exp_().mul_(weights).mul_(-self.w / margins.shape[1])
        return self._sums_of_rows(pull, batch[0]).add_(self.grad_g(X))

    def _grad_y(self, Y: Tensor, losses: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gy, and y's penalty (mu / 2) ||y - 1/N||^2 of every node."""
        k = batch[1]
        Gy = torch.rsub(Y, self.mu / self.N, alpha=self.mu)  # mu/N - mu y, in one pass over the n N numbers
        penalty = torch.linalg.vector_norm(Gy, dim=1).square() / (2 * self.mu)
        return Gy.scatter_add_(1, k, losses * (self.w / k.shape[1])), penalty

    def _rows_times(self, X: Tensor, signed: Tensor) -> Tensor:
        """b_k a_k'x_i for every sample of a batch, (n, |B|)."""
        if self._by_sparse(signed):
            return torch.from_numpy(_sparse(signed)[0] @ X.flatten().numpy()).view(len(X), -1)
        if signed[0].numel() >= LARGE:
            return torch.stack([rows @ x for rows, x in zip(signed, X, strict=True)])
        return (signed * X[:, None]).sum(2)

    def _sums_of_rows(self, weights: Tensor, signed: Tensor) -> Tensor:
        """sum_k weights_ik b_k a_k for every node, (n, d)."""
        if self._by_sparse(signed):
            return torch.from_numpy(_sparse(signed)[1] @ weights.flatten().numpy()).view(len(weights), -1)
        if signed[0].numel() >= LARGE:
            return torch.stack([row @ rows for row, rows in zip(weights, signed, strict=True)])
        return (signed * weights[:, :, None]).sum(1)

    def _by_sparse(self, signed: Tensor) -> bool:
        return signed.shape[1] == self.m and self.is_sparse and signed.device.type == "cpu"

    def g(self, X: Tensor) -> Tensor:
        """The nonconvex regulariser, of one x or of every row."""
        squares = self.nu * X.square()
        return self.theta * (squares / (1 + squares)).sum(-1)

    def grad_g(self, X: Tensor) -> Tensor:
        """Its gradient, 2 theta nu x / (1 + nu x^2)^2; the second derivative is 2 theta nu at most."""
        return 2 * self.theta * self.nu * X / (1 + self.nu * X.square()).square()

    def accuracy(self, x: Tensor, part: str = "test") -> float:
        """The share of the samples of a part, "train" or "test", whose label is the sign of a'x (0 counts as -1).

        NaN where there is no test part (phishing). The training part is the whole one, with what no node holds.
        """
        features, labels = getattr(self.table, f"{part}_features"), getattr(self.table, f"{part}_labels")
        *weights, bias = x.double().tolist()
        positive = torch.from_numpy(features @ np.array(weights) + bias) > 0
        return (positive == (labels > 0)).double().mean().item()

    def gauge(self, shards: Batch) -> Callable[[Tensor], dict[str, float]]:
        """Phi, ||grad Phi|| and the accuracy on the training part and, where there is one, on the test part."""
        exact = self.exact(shards)
        parts = [part for part in ("train", "test") if len(getattr(self.table, f"{part}_labels"))]

        def measure(x: Tensor) -> dict[str, float]:
            measured = {"phi": exact.phi(x).item(), "grad_phi": exact.grad_phi(x).norm().item()}
            return measured | {f"{part}_acc": self.accuracy(x, part) for part in parts}

        return measure

    def exact(self, shards: Batch) -> "Exact":
        """Phi and its gradient for the samples that all nodes together hold, in float64."""
        return Exact(self, shards[0].double())


@dataclass(frozen=True, eq=False)
class Exact:
    """What can be computed exactly of f, the mean of all nodes' f_i."""

    problem: RobustLogistic
    signed: Tensor = field(repr=False)  # (n, m, d)

    @property
    def mu(self) -> float:
        """The strong-concavity constant in y."""
        return float(self.problem.mu)

    @cached_property
    def l(self) -> float:  # noqa: E743 (the paper's letter)
        """An upper bound on the smoothness constant of every node's f_i for y in the simplex.

        The norm of [[L_xx, L_xy], [L_xy, mu]], L_xx = (w / m) max_k ||a_k||^2 / 4 + 2 theta nu, L_xy = (w / m) ||A_i||.
        """
        problem = self.problem
        scale = problem.w / problem.m
        L_xx = scale * self.signed.square().sum(2).max().item() / 4 + 2 * problem.theta * problem.nu
        squared = max(torch.linalg.eigvalsh(rows.T @ rows)[-1].item() for rows in self.signed)
        L_xy = scale * math.sqrt(squared)
        return float(np.linalg.norm([[L_xx, L_xy], [L_xy, problem.mu]], 2))

    @property
    def kappa(self) -> float:
        """The condition number l / mu, or rather a bound on it."""
        return self.l / self.mu

    def y_hat(self, x: Tensor) -> Tensor:
        """The maximiser of f(x, .) on the simplex."""
        return self._best(self._margins(x))[0]

    def phi(self, x: Tensor) -> Tensor:
        """Phi(x) = max over the simplex of f(x, y)."""
        problem = self.problem
        y, losses = self._best(self._margins(x))
        penalty = problem.mu / 2 * (y - 1 / problem.N).square().sum()
        return problem.w / problem.N * (y @ losses) - penalty + problem.g(x.double())

    def grad_phi(self, x: Tensor) -> Tensor:
        """grad Phi(x) = grad_x f(x, y_hat(x)), by Danskin's theorem."""
        problem = self.problem
        margins = self._margins(x)
        y, _ = self._best(margins)
        pull = y * torch.sigmoid(-margins) * (-problem.w / problem.N)
        return pull @ self.signed.flatten(0, 1) + problem.grad_g(x.double())

    def _margins(self, x: Tensor) -> Tensor:
        return self.signed.flatten(0, 1) @ x.double()  # b_k a_k'x, (N,)

    def _best(self, margins: Tensor) -> tuple[Tensor, Tensor]:
        """y_hat and the losses l, both (N,)."""
        problem = self.problem
        losses = -logsigmoid(margins)
        return simplex.project(1 / problem.N + problem.w / (problem.N * problem.mu) * losses), losses

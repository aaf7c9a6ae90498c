"""Quadratic: a heterogeneous minimax problem whose solution is known in closed form, the test bench of every trainer.

A sample is (A, B, C, a, c), with A and C symmetric, and its loss is

    f(x, y) = 1/2 x'Ax + x'By - 1/2 y'Cy + a'x + c'y + g(x),   g(x) = amplitude sum_k cos x_k.

With bars for the averages over all samples of all nodes, and s = Bbar'x + cbar:

    y_hat(x) = Cbar^-1 s,   Phi(x) = max_y f = 1/2 x'Abar x + abar'x + g(x) + 1/2 s'Cbar^-1 s,
    grad Phi(x) = Abar x + abar + grad g(x) + Bbar y_hat(x),   Hess Phi = Abar + Bbar Cbar^-1 Bbar' + Hess g,
    x* = -(Abar + Bbar Cbar^-1 Bbar')^-1 (abar + Bbar Cbar^-1 cbar)   if g = 0.

Abar is indefinite, so f is nonconvex in x, but Bbar covers its negative eigenspace, so Phi has a minimum. In a box
|y| <= bound that cover is lost and Phi would fall for ever: there, A must be `coercive` (positive definite on average)
and g, which is bounded, supplies the nonconvexity; grad Phi is then Danskin's, the same formula at the box's y_hat.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Count, Seed, Settings, Size, must
from robustbench_dec.problem import Batch, Problem

BOUND = must(" must be 0 or a positive number, or None for an unconstrained y", lambda bound: bound >= 0)

# Root mean square, over the nodes, of the Frobenius norm of A_i - Abar, ..., c_i - cbar when heterogeneity is 1.
SPREAD = (1.5, 1.0, 0.12, 3.0, 1.5)

# Ranges of Abar's eigenvalues (the first min(d, q) // 2, at least 1, are negative unless it is coercive), of Bbar's
# singular values and of Cbar's eigenvalues. Hess Phi > 0 because NEGATIVE[0] + COUPLING[0]^2 / CONCAVITY[1] > 0.
NEGATIVE, POSITIVE, COERCIVE = (-0.5, -0.25), (0.5, 1.5), (0.4, 1.2)
COUPLING, CONCAVITY = (1.2, 1.6), (0.5, 1.2)


@dataclass(frozen=True)
class Quadratic(Problem):
    """The problem's settings.

    `heterogeneity` scales how far the nodes' means are from each other (0: all nodes equal), `noise` how far a node's m
    samples are from that node's mean: at x = y = 0 each block's gradient has variance noise^2 over a node's samples.
    Both kinds of deviation average to zero, so that neither moves the solution. `instance` is the seed of it all.
    """

    d: Count = 6
    q: Count = 4
    m: Count = 1
    heterogeneity: Size = 1.0
    noise: Size = 0.0
    bound: Annotated[float, BOUND] | None = None
    coercive: bool = False
    amplitude: Size = 0.0
    instance: Seed = 0
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise and self.m == 1:
            raise BadInput(
                "a node's only sample is its mean, so noise needs m of 2 or more samples per node, not m = 1"
            )
        if self.bound is not None and not self.coercive:
            raise BadInput("Phi has no minimum when y is bounded and A indefinite; set coercive to true, or no bound")

    def settings(self) -> Settings:
        return super().settings() | {"dtype": str(self.dtype)}  # settings are told in JSON

    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        """x0 of standard normal entries; y0 = 0, which is feasible whatever the bound."""
        x0 = np.random.default_rng(seed).standard_normal(self.d)
        return torch.tensor(x0, dtype=self.dtype), torch.zeros(self.q, dtype=self.dtype)

    def project(self, Y: Tensor) -> Tensor:
        """The nearest point of the box |y| <= bound."""
        return Y if self.bound is None else Y.clamp(-self.bound, self.bound)

    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        """The mean of f(x, y) over one node's samples; y = None stands for y = 0."""
        A, B, C, a, c = (part.mean(0) for part in batch)
        loss = x @ A @ x / 2 + a @ x + self.amplitude * x.cos().sum()
        return loss if y is None else loss + x @ B @ y - y @ C @ y / 2 + c @ y

    def grads(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Gx = A x + a + grad g + B y and Gy = B'x + c - C y, row by row, and the losses."""
        Gx, losses = self.grads_x(X, Y, batch)
        _, B, C, _, c = (part.mean(1) for part in batch)
        return Gx, _rows(B.mT, X) + c - _rows(C, Y), losses

    def grads_x(self, X: Tensor, Y: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gx alone and the losses; Y = None stands for Y = 0, and gives the same bits."""
        A, B, C, a, c = (part.mean(1) for part in batch)
        AX = _rows(A, X)
        Gx = AX + a - self.amplitude * X.sin()
        losses = (X * (AX / 2 + a) + self.amplitude * X.cos()).sum(1)
        if Y is None:
            return Gx, losses
        BY, CY = _rows(B, Y), _rows(C, Y)
        return Gx + BY, losses + (X * BY).sum(1) + (Y * (c - CY / 2)).sum(1)

    def shards(self, nodes: int, seed: int) -> Batch:
        """A (n, m, d, d), B (n, m, d, q), C (n, m, q, q), a (n, m, d), c (n, m, q); the seed deals them to nodes."""
        if nodes < 1:
            raise BadInput(f"a network needs at least 1 node, not {nodes}")
        # Streams of their own, so that the averages do not change with n or m.
        averages = self._averages(np.random.default_rng((self.instance, 0)))
        between = self._deviations(np.random.default_rng((self.instance, 1)), groups=1, members=nodes)
        within = self._deviations(np.random.default_rng((self.instance, 2)), groups=nodes, members=self.m)
        drift = SPREAD[2] * np.linalg.norm(between[2][0], 2, axis=(1, 2)).max()
        if not self.heterogeneity * drift < CONCAVITY[0]:
            raise BadInput(
                f"heterogeneity {self.heterogeneity:g} costs a node its strong concavity in y; "
                f"{0.9 * CONCAVITY[0] / drift:.2g} would do"
            )
        deal = np.random.default_rng(seed).permutation(nodes)
        parts = []
        for average, spread, node, sample in zip(averages, SPREAD, between, within, strict=True):
            # (1, 1, ...) + (n, 1, ...) + (n, m, ...)
            means = average[None, None] + self.heterogeneity * spread * node.swapaxes(0, 1)
            parts.append(torch.from_numpy((means + self.noise * sample)[deal]).to(self.dtype))
        return tuple(parts)

    def gauge(self, shards: Batch) -> Callable[[Tensor], dict[str, float]]:
        """Phi and ||grad Phi||."""
        exact = self.exact(shards)
        return lambda x: {"phi": exact.phi(x).item(), "grad_phi": exact.grad_phi(x).norm().item()}

    def exact(self, shards: Batch) -> "Exact":
        """The solution and the constants of the problem that all nodes together hold, in float64."""
        means = [part.double().mean(1) for part in shards]
        A_i, B_i, C_i = means[:3]  # (n, ...)
        saddle = torch.cat([torch.cat([A_i, B_i], 2), torch.cat([B_i.mT, -C_i], 2)], 1)  # (n, d + q, d + q)
        l = torch.linalg.matrix_norm(saddle, 2).max().item() + self.amplitude  # noqa: E741 (the paper's letter)
        mu = torch.linalg.eigvalsh(C_i).min().item()
        A, B, C, a, c = (mean.mean(0) for mean in means)
        return Exact(A, B, C, a, c, self.bound, self.amplitude, l, mu)

    def _averages(self, generator: np.random.Generator) -> list[np.ndarray]:
        d, q, rank = self.d, self.q, min(self.d, self.q)
        U, V, T = (np.linalg.qr(generator.standard_normal((size, size)))[0] for size in (d, q, q))
        negative = max(1, rank // 2)
        indefinite = np.concatenate([np.linspace(*NEGATIVE, negative), np.linspace(*POSITIVE, d - negative)])
        A = (U * (np.linspace(*COERCIVE, d) if self.coercive else indefinite)) @ U.T
        B = (U[:, :rank] * np.linspace(*COUPLING, rank)) @ V[:, :rank].T
        C = (T * np.linspace(*CONCAVITY, q)) @ T.T
        return [(A + A.T) / 2, B, (C + C.T) / 2, generator.standard_normal(d), generator.standard_normal(q)]

    def _deviations(self, generator: np.random.Generator, groups: int, members: int) -> list[np.ndarray]:
        """For each part, arrays (groups, members, ...) whose mean over the members is 0 and mean squared norm is 1."""
        d, q = self.d, self.q
        deviations = []
        for shape, symmetric in (((d, d), True), ((d, q), False), ((q, q), True), ((d,), False), ((q,), False)):
            draws = generator.standard_normal((groups, members, *shape))
            if symmetric:
                draws = (draws + draws.swapaxes(-1, -2)) / 2
            draws -= draws.mean(1, keepdims=True)
            axes = tuple(range(2, draws.ndim))
            scale = np.sqrt((draws**2).sum(axes, keepdims=True).mean(1, keepdims=True))
            deviations.append(draws / scale if members > 1 else np.zeros_like(draws))
        return deviations


def _rows(M: Tensor, Z: Tensor) -> Tensor:
    """Row i: M_i z_i, for M (n, r, k) and Z (n, k).

    Not einsum, whose rounding changes with the number of rows: processes that share the nodes would part ways.
    """
    return (M * Z[:, None]).sum(2)


@dataclass(frozen=True, eq=False)
class Exact:
    """The averages over all nodes, and what follows from them in closed form."""

    A: Tensor
    B: Tensor
    C: Tensor
    a: Tensor
    c: Tensor
    bound: float | None
    amplitude: float
    l: float  # noqa: E741 (the paper's letter): the largest smoothness constant of a node's f_i
    mu: float
    """The smallest strong-concavity constant of a node's f_i."""

    @property
    def kappa(self) -> float:
        """The condition number l / mu."""
        return self.l / self.mu

    @property
    def x_star(self) -> Tensor | None:
        """The minimiser of Phi; None where no closed form is known, with a bound on y or with g."""
        if self.bound is not None or self.amplitude:
            return None
        return -torch.linalg.solve(self.hessian, self.a + self.B @ torch.linalg.solve(self.C, self.c))

    @property
    def hessian(self) -> Tensor:
        """Abar + Bbar Cbar^-1 Bbar', the Hessian of an unconstrained Phi without g."""
        return self.A + self.B @ torch.linalg.solve(self.C, self.B.T)

    def y_hat(self, x: Tensor) -> Tensor:
        """The maximiser of f(x, .), in the box by projected gradient ascent with step 1 / lambda_max(Cbar) to 1e-14."""
        s = self.B.T @ x.double() + self.c
        y = torch.linalg.solve(self.C, s)
        if self.bound is None:
            return y
        y = y.clamp(-self.bound, self.bound)
        step = 1 / torch.linalg.matrix_norm(self.C, 2)
        for _ in range(10_000):  # each step shrinks the error by 1 - CONCAVITY[0] / CONCAVITY[1] or more
            y_prev, y = y, (y + step * (s - self.C @ y)).clamp(-self.bound, self.bound)
            # Written so that a NaN, from a trainer that diverged, ends the loop too.
            if not (y - y_prev).abs().max() > 1e-14 * (1 + self.bound):
                break
        return y

    def phi(self, x: Tensor) -> Tensor:
        """Phi(x) = max over feasible y of f(x, y)."""
        x, y = x.double(), self.y_hat(x)
        g = self.amplitude * x.cos().sum()
        return x @ self.A @ x / 2 + self.a @ x + g + (self.B.T @ x + self.c) @ y - y @ self.C @ y / 2

    def grad_phi(self, x: Tensor) -> Tensor:
        """grad Phi(x) = grad_x f(x, y_hat(x)), by Danskin's theorem."""
        return self.grad_f_at_zero_y(x) + self.B @ self.y_hat(x)

    def grad_f_at_zero_y(self, x: Tensor) -> Tensor:
        """The gradient of f(., 0), which a method without y minimises."""
        x = x.double()
        return self.A @ x + self.a - self.amplitude * x.sin()

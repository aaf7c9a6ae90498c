"""Gradient tracking: the skeleton of GT-GDA, GT-SRVR, GT-DA, DM-HSGD and DREAM, which differ in how they estimate G.

    V = M U                                                         M is one gossip with W, or FastMix
    atc   X+ = M (X - eta_x Vx),   Y+ = P(M (Y + eta_y Vy))         adapt, then combine: two exchanges, one by one
    cta   X+ = M X - eta_x Vx,     Y+ = P(M Y + eta_y Vy)           combine, then adapt: all in one exchange
    G+ = the trainer's estimate of the gradients at (X+, Y+)         ahead: the next step is charged for it
    U+ = V + G+ - G                                                 from U = G, so that mean(U) = mean(G) for ever

U is the tracker that still has to be mixed; kept like this, it travels together with the iterates of cta. For x and y
alike: V = (Vx, Vy) and so on.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from robustbench_dec.oracle import Oracle

Order = Literal["atc", "cta"]
"""Adapt then combine, or combine then adapt."""


class Tracked(NamedTuple):
    """Iterates, unmixed trackers and gradient estimates, one row per node, and the number of steps in every row."""

    X: Tensor
    Y: Tensor
    Ux: Tensor
    Uy: Tensor
    Gx: Tensor
    Gy: Tensor
    T: Tensor


def begin(X: Tensor, Y: Tensor, Gx: Tensor, Gy: Tensor) -> Tracked:
    """The state before the first step, with the first estimates G; a state's tensors share no memory."""
    return Tracked(X, Y, Gx.clone(), Gy.clone(), Gx, Gy, steps(X))


def steps(X: Tensor) -> Tensor:
    """A count of 0 in every row: (n, 1)."""
    return torch.zeros(len(X), 1, dtype=torch.int64, device=X.device)


def move(
    state: Tracked, mix: Callable[..., Any], oracle: Oracle, eta_x: float, eta_y: float, order: Order
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X+, Y+, Vx, Vy."""
    X, Y, Ux, Uy = state[:4]
    if order == "atc":
        Vx, Vy = mix(Ux, Uy)
        X, Y = mix(torch.sub(X, Vx, alpha=eta_x), torch.add(Y, Vy, alpha=eta_y))
    else:
        Vx, Vy, MX, MY = mix(Ux, Uy, X, Y)
        X, Y = torch.sub(MX, Vx, alpha=eta_x), torch.add(MY, Vy, alpha=eta_y)
    return X, oracle.project(Y), Vx, Vy


def track(state: Tracked, X: Tensor, Y: Tensor, V: tuple[Tensor, Tensor], G: tuple[Tensor, Tensor]) -> Tracked:
    """The next state, with U+ = V + G+ - G; V is written over."""
    (Vx, Vy), (Gx, Gy) = V, G
    return Tracked(X, Y, Vx.add_(Gx).sub_(state.Gx), Vy.add_(Gy).sub_(state.Gy), Gx, Gy, state.T + 1)


def fresh(oracle: Oracle, X: Tensor, Y: Tensor, size: int | None) -> tuple[Tensor, Tensor]:
    """Gradients that remember nothing: on a new minibatch, or on all of a node's samples if size is None."""
    return oracle.full_grad(X, Y) if size is None else oracle.grad(X, Y, oracle.draw(size))

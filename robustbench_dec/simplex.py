"""The nearest point of the simplex {y >= 0, sum_k y_k = 1}, for every row of a stack at once, without sorting.

    P(y) = max(y - tau, 0),   tau the root of   s(tau) = sum_k max(y_k - tau, 0) = 1

s is convex, piecewise linear and falling, and its slope at tau is -K(tau), K the number of coordinates above tau. So
Newton's method from the left of the root never oversteps it, and ends at the exact root (Michelot 1986):

    tau = max(max_k y_k - 1, (sum_k y_k - 1) / N)     the second is the root itself if all y_k are above it
    tau <- tau + (s(tau) - 1) / K(tau)                until s is 1, or K stays the same

By convexity the ratios new / old of s - 1 and of K add up to at most 1, so a step halves one of them at least: there
are at most about 2 log2 N + 53 steps, and in training a few. A step is a few passes over the memory, where sorting
costs N log N comparisons; benchmarks/simplex_projection.py has the times.
"""

import torch
from torch import Tensor

BLOCK = 2**19
"""Coordinates that are worked on at a time: few enough to stay in cache from step to step, and not one row a call."""


def project(Y: Tensor) -> Tensor:
    """The nearest point of the simplex to one vector (N,), or to every row of a stack (n, N).

    A row's result does not depend on the rows beside it, to the last bit. A row with a NaN becomes a row of NaN.
    """
    if Y.ndim == 1:
        return project(Y[None])[0]
    projected = torch.empty_like(Y, memory_format=torch.contiguous_format)
    rows = max(1, BLOCK // Y.shape[1])
    scratch = torch.empty_like(projected[:rows])
    for part, excess in zip(Y.split(rows), projected.split(rows), strict=True):
        _newton(part, excess, scratch[: len(part)])
    return projected


def _newton(Y: Tensor, excess: Tensor, scratch: Tensor) -> None:
    """Write max(Y - tau, 0) into `excess`, which every step lowers further: so rounding stays that of small numbers."""
    N, eps = Y.shape[1], torch.finfo(Y.dtype).eps
    tau = _left((Y.sum(1, keepdim=True) - 1) / N)
    at_root = Y.amin(1, keepdim=True) > tau
    if at_root.all():  # so it is with full gradients, most of the time
        s = torch.sub(Y, tau, out=excess).sum(1, keepdim=True)
        excess.mul_(1 / s)
        return
    tau = tau.where(at_root, torch.maximum(tau, _left(Y.amax(1, keepdim=True) - 1)))
    torch.sub(Y, tau, out=excess).relu_()
    K = torch.full_like(tau, N + 1).where(~at_root, N)
    while True:
        s = excess.sum(1, keepdim=True)
        changed = s > 1 + 2 * eps  # never for a NaN
        if not changed.any():
            break
        K_prev, K = K, torch.sign(excess, out=scratch).sum(1, keepdim=True)
        changed &= K_prev > K  # at most N times, whatever the rounding
        if not changed.any():
            break
        # A row that is done moves by 0, however long the others take.
        step = ((s - 1) / K).where(changed, torch.zeros_like(s))
        excess.sub_(step).relu_()
    excess.mul_(1 / s)  # s is 1 up to rounding


def _left(tau: Tensor) -> Tensor:
    """On the left of the root in spite of rounding."""
    return tau - torch.finfo(tau.dtype).eps * tau.abs()


def project_by_sorting(Y: Tensor) -> Tensor:
    """The same by the textbook's formula, for tests and the benchmark to compare with.

    u = y sorted downwards,   rho = max{k : u_k > (sum_{j <= k} u_j - 1) / k},   tau = (sum_{j <= rho} u_j - 1) / rho.
    """
    U = Y.sort(-1, descending=True).values
    surplus = U.cumsum(-1) - 1
    k = torch.arange(1, Y.shape[-1] + 1, dtype=Y.dtype, device=Y.device)
    rho = (U * k > surplus).sum(-1, keepdim=True)
    return (Y - surplus.gather(-1, rho - 1) / rho).clamp_min(0)

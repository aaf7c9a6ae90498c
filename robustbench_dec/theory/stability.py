"""Stability: the spectral radius of a trainer's round on the quadratic, where a round with exact gradients is affine.

    s+ = A s + b,   s all of the state but its counters;   radius = max |eigenvalue of A| ^ (1 / rounds in A)

A's columns are what a round makes of a unit step in each number of the state, all at once. Where the trainer has a
period (GT-DA's descents, SPIDER's restarts), A is the product over one period. Conserved quantities, such as the mean
of corrections, have the eigenvalue 1 exactly; no run moves along them, so they are left out. Minibatches do not change
A's mean; DREAM is taken with a fresh estimate in every step. A radius of 1 or more means: run on, this diverges, even
if it passes close by a solution first.
"""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle, Toss
from robustbench_dec.problem import Batch
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.trainer import State, Trainer

CONSERVED = 1e-7
"""An eigenvalue so close to 1 is a conserved quantity."""


class ExactOracle(Oracle):
    """Every minibatch is a node's whole share, and every coin shows heads."""

    def draw(self, size: int, busy: Toss | None = None) -> Batch:
        if busy is None:
            return self.shards
        return tuple(part[busy.here[:, 0]] for part in self.shards)

    def coins(self, probability: float, but: Toss | None = None) -> Toss:
        heads = torch.ones(self.nodes, 1, dtype=torch.bool)
        return Toss(heads if but is None else heads & ~but.heads, self.rows)

    def some_grad(self, X: Tensor, Y: Tensor, batch: Batch, busy: Toss) -> tuple[Tensor, Tensor]:
        return self.full_grad(X, Y) if busy.count else (X[:0], Y[:0])


def spectral_radius(trainer: Trainer, problem: Quadratic, net: Network) -> float:
    """The largest factor by which a round can stretch the distance between two runs, in the long run."""
    if problem.bound is not None or problem.amplitude:
        raise BadInput("a round is affine only where y is free and Phi quadratic; leave out bound and amplitude")
    oracle = ExactOracle(problem, net.nodes, 0, net.ledger)
    rounds = _period(trainer)

    first: Any = trainer.init(oracle, net)  # a NamedTuple
    names = [name for name, stack in first._asdict().items() if stack.is_floating_point()]
    stacks = [getattr(first, name) for name in names]

    def after(*stacks: Tensor) -> Tensor:
        state = first._replace(**dict(zip(names, stacks, strict=True)))
        for _ in range(rounds):
            state = trainer.step(state, oracle, net)
        return _flat(state)

    sizes = [stack.numel() for stack in stacks]
    units = torch.eye(sum(sizes), dtype=stacks[0].dtype).split(sizes, 1)  # (numbers, numbers of a stack) each
    moved = [stack + unit.view(-1, *stack.shape) for stack, unit in zip(stacks, units, strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")  # of vmap, which is fast enough
        columns = torch.func.vmap(after)(*moved) - after(*stacks)
    values = np.linalg.eigvals(columns.T.numpy())
    free = np.abs(values[np.abs(values - 1) > CONSERVED])
    return float(free.max(initial=0.0) ** (1 / rounds))


def _period(trainer: Trainer) -> int:
    """Rounds after which the trainer does the same things again."""
    settings = trainer.settings()
    return next((settings[name] for name in ("period", "q") if isinstance(settings.get(name), int)), 1)


def _flat(state: State) -> Tensor:
    return torch.cat([stack.flatten() for stack in state._asdict().values() if stack.is_floating_point()])

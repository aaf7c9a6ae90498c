"""Measure what a trainer pays on the finite-sum quadratic until ||grad Phi(x-bar)|| is small, or where it stays.

A run is one record whose id is a digest of all that decides its numbers: one that exists is not computed again.
x-bar is the mean of the nodes; a method without y is judged by the gradient of f(., 0), which it minimises.
"""

import math
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from torch import Tensor

from robustbench_dec.errors import Diverged
from robustbench_dec.oracle import Oracle
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs.budget import Budget
from robustbench_dec.specs.claims import EXPLOSION, Task
from robustbench_dec.store import provenance
from robustbench_dec.store.records import SCHEMA, ClaimRecord, Costs
from robustbench_dec.store.results import Claims
from robustbench_dec.trainer import State

COSTS = ("sfo", "sfo_x", "sfo_y", "rounds", "exchanges", "messages", "bytes_per_edge", "all_reduces")
POINTS_PER_DECADE = 12
"""Of rounds, that a curve keeps."""


class _Oracle(Oracle):
    """The same draws, remembered: runs with the same seed share them, and drawing is most of the time of a run."""

    def _indices(self, node: int, size: int) -> np.ndarray:
        key = (self.seed, self.m, node, size, self.draws)
        if key not in _REMEMBERED:
            _REMEMBERED[key] = super()._indices(node, size)
        return _REMEMBERED[key]


_REMEMBERED: dict[tuple[int, ...], np.ndarray] = {}


def measured(task: Task, home: Claims, device: str = "cpu") -> ClaimRecord:
    """The run's record: from the store, or computed and kept there; one that another process computes is waited for."""
    kept = home.run(task.id)
    record = kept.usable()
    if record is None:
        with kept.claim():
            record = kept.usable(announce=True)
            if record is None:
                record = run(task, device)
                kept.write(record)
    return record


def run(task: Task, device: str = "cpu") -> ClaimRecord:
    """Train until every goal is reached, the budget is spent, or the run diverges; none is stopped as stalled."""
    began = time.perf_counter()
    trainer, problem = task.build_trainer(), task.build_problem()
    net = task.network.connect(task.seed)
    oracle = _Oracle(problem, net.nodes, task.seed, net.ledger, device)
    exact = problem.exact(oracle.shards)
    gradient: Callable[[Tensor], Tensor] = exact.grad_phi if trainer.has_dual else exact.grad_f_at_zero_y
    reached: dict[str, dict[str, int] | None] = {f"{goal:g}": None for goal in task.goals}
    norms: list[float] = []  # of every round, the one in which it diverges too
    curve: list[tuple[int, int, float]] = []

    def norm(state: State) -> float:
        norms.append(gradient(state.X.mean(0)).norm().item())
        return norms[-1]

    budget, ended = Budget(sfo=task.budget), ""
    watch = Watch(norm, "norm of the gradient", EXPLOSION, against="first")
    try:
        for at in rounds(trainer, oracle, net, budget, watch):
            for goal in task.goals:
                if at.costs["rounds"] and _judged(norms, task.window) <= goal and reached[f"{goal:g}"] is None:
                    reached[f"{goal:g}"] = {name: at.costs[name] for name in COSTS}
            ended = "reached" if all(reached.values()) else "budget" if budget.spent(at.costs) else ""
            if ended or _kept(at.costs["rounds"]):
                curve.append((at.costs["rounds"], at.costs["sfo"], _short(at.value)))
            if ended:
                break
    except Diverged:
        ended = "diverged"
        curve.append((net.ledger.rounds, net.ledger.sfo, _short(norms[-1])))
    last = norms[len(norms) * 3 // 4 :]
    return ClaimRecord(
        schema_version=SCHEMA,
        id=task.id,
        method=task.method,
        seed=task.seed,
        settings=task.settings,
        measure="||grad Phi||" if trainer.has_dual else "||grad f(., 0)||",
        l=exact.l,
        mu=exact.mu,
        kappa=exact.kappa,
        spectral_rate=net.spectral_rate,
        ended=ended,
        reached=reached,
        floor=None if ended == "diverged" else median(last),
        ledger=Costs(**net.ledger.row()),
        curve_columns=("round", "sfo", "norm"),
        curve=tuple((t, sfo, norm if math.isfinite(norm) else None) for t, sfo, norm in curve),
        **provenance.stamp(time.perf_counter() - began),
    )


def _judged(norms: list[float], window: int) -> float:
    """The last norm, or the median of the last `window`; infinite before there are so many."""
    if window == 1:
        return norms[-1]
    return median(norms[-window:]) if len(norms) > window else math.inf


def _kept(t: int) -> bool:
    """Whether round t is the start, or the first in its part of a decade."""
    return t == 0 or math.floor(POINTS_PER_DECADE * math.log10(t)) != math.floor(POINTS_PER_DECADE * math.log10(t + 1))


def _short(norm: float) -> float:
    return float(f"{norm:.4g}")

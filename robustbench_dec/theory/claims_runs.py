"""Measure what a trainer pays on the finite-sum quadratic until ||grad Phi(x-bar)|| is small, or where it stays.

A run is one small JSON file whose name is a digest of all that decides its numbers: a file that exists is not computed
again. x-bar is the mean of the nodes; a method without y is judged by the gradient of f(., 0), which it minimises.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import Tensor

from robustbench_dec import files, shelf
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs.budget import Budget
from robustbench_dec.specs.table import NetworkSpec
from robustbench_dec.store import provenance
from robustbench_dec.trainer import Trainer

SCHEMA = 1
"""Raised when a change of the code changes numbers: every id changes with it."""

COSTS = ("sfo", "sfo_x", "sfo_y", "rounds", "exchanges", "messages", "bytes_per_edge", "all_reduces")
EXPLOSION = 1e4
"""A norm so many times the first one will not come back."""

FIRST_LOOK, EVERY, LITTLE, DOWN = 200, 100, 0.9, 0.1
"""A run has stalled if in round 200, 300, 400, ... the median norm of its second half is more than 0.9 times that of
its second quarter, and less than a tenth of its first norm: it has come down to a noise floor, or to a bias."""

POINTS_PER_DECADE = 12
"""Of rounds, that a curve keeps."""


@dataclass(frozen=True)
class Task:
    """One run: a trainer by name with its settings, the bench's settings, a seed, and when to stop."""

    trainer: str
    trainer_settings: dict[str, Any]
    bench: dict[str, Any]
    network: NetworkSpec
    seed: int
    goals: tuple[float, ...]
    budget: int

    def __post_init__(self) -> None:
        for goal in self.goals:
            if not 0 < goal < math.inf:
                raise BadInput(f"a goal for ||grad Phi|| must be a positive number such as 1e-2, not {goal}")
        if self.budget < 1:
            raise BadInput(f"a budget must be at least 1 SFO call per node, not {self.budget}")

    def build_trainer(self) -> Trainer:
        """The trainer, with every setting checked."""
        return shelf.make(shelf.find("trainer", self.trainer, Trainer), self.trainer_settings)  # type: ignore[type-abstract]

    def build_problem(self) -> Quadratic:
        """The bench; for a method without y, a coercive one, because without y an indefinite one has no minimum."""
        return shelf.make(Quadratic, {"coercive": not self.build_trainer().has_dual, **self.bench})

    def settings(self) -> dict[str, Any]:
        """All that decides the numbers."""
        trainer = self.build_trainer()
        return {
            "bench": self.build_problem().settings(),
            "network": self.network.settings(),
            "trainer": {**trainer.source.identity(), **trainer.settings()},
            "goals": list(self.goals),
            "budget": self.budget,
            "seed": self.seed,
        }

    @property
    def id(self) -> str:
        """Readable, and different for different numbers."""
        name = Path(self.trainer.partition(":")[0]).stem
        rule = [SCHEMA, EXPLOSION, FIRST_LOOK, EVERY, LITTLE, DOWN]
        return f"{name}-s{self.seed}-{files.digest([rule, self.settings()])[:12]}"


class _Oracle(Oracle):
    """The same draws, remembered: runs with the same seed share them, and drawing is most of the time of a run."""

    def _indices(self, node: int, size: int) -> np.ndarray:
        key = (self.seed, self.m, node, size, self.draws)
        if key not in _REMEMBERED:
            _REMEMBERED[key] = super()._indices(node, size)
        return _REMEMBERED[key]


_REMEMBERED: dict[tuple[int, ...], np.ndarray] = {}


def measured(task: Task, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """The run's record: from its file, or computed and written."""
    path = _path(task, folder)
    if not path.is_file():
        files.write_json(path, run(task, device))
    record: dict[str, Any] = files.read_json(path)
    return record


def recorded(task: Task, folder: Path) -> bool:
    """Whether the run has its file."""
    return _path(task, folder).is_file()


def _path(task: Task, folder: Path) -> Path:
    return folder / f"{task.id}.json"


def run(task: Task, device: str = "cpu") -> dict[str, Any]:
    """Train until every goal is reached, the budget is spent, the run has stalled, or it diverges."""
    began = time.perf_counter()
    trainer, problem = task.build_trainer(), task.build_problem()
    net = task.network.connect(task.seed)
    oracle = _Oracle(problem, net.nodes, task.seed, net.ledger, device)
    exact = problem.exact(oracle.shards)
    gradient: Callable[[Tensor], Tensor] = exact.grad_phi if trainer.has_dual else exact.grad_f_at_zero_y
    reached: dict[str, dict[str, int] | None] = {f"{goal:g}": None for goal in task.goals}
    norms: list[float] = []  # of every round, the one in which it diverges too
    curve: list[tuple[int, int, float]] = []

    def norm(state: Any) -> float:
        norms.append(gradient(state.X.mean(0)).norm().item())
        return norms[-1]

    budget, ended = Budget(sfo=task.budget), ""
    watch = Watch(norm, "norm of the gradient", EXPLOSION, against="first")
    try:
        for at in rounds(trainer, oracle, net, budget, watch):
            for goal in task.goals:
                if at.costs["rounds"] and at.value <= goal and reached[f"{goal:g}"] is None:
                    reached[f"{goal:g}"] = {name: at.costs[name] for name in COSTS}
            ended = _ended(norms, all(reached.values()), budget.spent(at.costs))
            if ended or _kept(at.costs["rounds"]):
                curve.append((at.costs["rounds"], at.costs["sfo"], _short(at.value)))
            if ended:
                break
    except Diverged:
        ended = "diverged"
        curve.append((net.ledger.rounds, net.ledger.sfo, _short(norms[-1])))
    last = norms[len(norms) * 3 // 4 :]
    return {
        "schema": SCHEMA,
        "id": task.id,
        "method": Path(task.trainer.partition(":")[0]).stem,
        "seed": task.seed,
        "settings": task.settings(),
        "measure": "||grad Phi||" if trainer.has_dual else "||grad f(., 0)||",
        "l": exact.l,
        "mu": exact.mu,
        "kappa": exact.kappa,
        "spectral_rate": net.spectral_rate,
        "ended": ended,
        "reached": reached,
        "floor": None if ended == "diverged" else median(last),
        "ledger": net.ledger.row(),
        "curve_columns": ["round", "sfo", "norm"],
        "curve": [[t, sfo, norm if math.isfinite(norm) else None] for t, sfo, norm in curve],
        **provenance.stamp(time.perf_counter() - began),
    }


def _ended(norms: list[float], all_reached: bool, spent: bool) -> str:
    """Why a run that has not diverged ends here: reached, budget or stalled; nothing if it goes on."""
    if all_reached:
        return "reached"
    if spent:
        return "budget"
    t = len(norms) - 1
    if t >= FIRST_LOOK and t % EVERY == 0:
        before, after = median(norms[t // 4 : t // 2]), median(norms[t // 2 :])
        return "stalled" if LITTLE * before < after < DOWN * norms[0] else ""
    return ""


def _kept(t: int) -> bool:
    """Whether round t is the start, or the first in its part of a decade."""
    return t == 0 or math.floor(POINTS_PER_DECADE * math.log10(t)) != math.floor(POINTS_PER_DECADE * math.log10(t + 1))


def _short(norm: float) -> float:
    return float(f"{norm:.4g}")

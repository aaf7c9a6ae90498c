"""The curve of a run: what is measured of x-bar whenever a point of the budget is passed."""

from collections.abc import Callable

from torch import Tensor

from robustbench_dec.attack import accuracy
from robustbench_dec.attacking.evaluate import attacked
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.networks.crew import Crew
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.running.journal import CurveRow
from robustbench_dec.running.loop import At
from robustbench_dec.specs.run import RunSpec

FIXED = ("nodes", "directed_edges", "rounds")
"""Entries of the ledger that do not grow with the rounds, or are them."""


class Curve:
    """One row per point: the round, the costs until then, the training loss and, where it is written, measurements."""

    def __init__(self, run: RunSpec, oracle: Oracle, crew: Crew, rows: list[CurveRow]) -> None:
        self.rows = rows
        self._budget, self._points = run.budget, run.curve_points
        self._crew = crew
        self._measure = _gauge(run, oracle) if crew.writes else None

    def due(self, at: At) -> bool:
        """Whether a point was passed since the last row."""
        if not self.rows:
            return True
        last = {"rounds": self.rows[-1]["round"]} | self.rows[-1]
        return self._passed(at.costs) != self._passed({name: int(last[name]) for name in at.costs if name in last})

    def add(self, at: At) -> dict[str, float]:
        """Measure and write a row; what was measured, which is nothing on a process that does not write."""
        X = self._crew.gather(at.state.X)
        measured = {} if self._measure is None or X is None else self._measure(X.mean(0))
        growing = {name: count for name, count in at.costs.items() if name not in FIXED}
        self.rows.append({"round": at.costs["rounds"], **growing, "train_loss": at.value, **measured})
        return measured

    def _passed(self, costs: dict[str, int]) -> tuple[int, ...]:
        return self._budget.passed(costs, self._points)


def _gauge(run: RunSpec, oracle: Oracle) -> Callable[[Tensor], dict[str, float]]:
    """What the curve shows of x-bar; of a classifier, its accuracies on the first test images, clean and attacked.

    Of a blind run, on the first held-out images.
    """
    problem: Problem = oracle.problem
    if not isinstance(problem, Classifier):
        whole = len(oracle.rows) == oracle.nodes
        return problem.gauge(oracle.shards if whole else problem.shards(oracle.nodes, run.seed))
    part = "validation" if run.blind else "test"
    images, labels = (getattr(problem.images, f"{part}_{what}")[: run.curve_examples] for what in ("images", "labels"))
    attacks = [(f"{label}@{attack.eps:g}", attack) for label, attack in run.curve_attacks]

    def measure(x: Tensor) -> dict[str, float]:
        model = problem.module(x)
        clean = {"clean_acc": accuracy(model, images, labels)}
        if not attacks:
            return clean
        scene = Scene(model, images, labels, seed=run.seed)
        return clean | {name: attacked(attack, scene).robust_accuracy for name, attack in attacks}

    return measure

"""Tuning: short runs over a grid of settings, judged on the validation part, one row of a CSV each."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustbench_dec import files
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.problem import Classifier
from robustbench_dec.running import cells
from robustbench_dec.running.pool import side_by_side
from robustbench_dec.running.train import train
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.specs.table import Spec
from robustbench_dec.store.results import Results


class Trial(NamedTuple):
    """One point of a grid: a short run, and the cells that judge it."""

    point: dict[str, Any]
    run: RunSpec
    attacks: list[cells.Request]


def tune(
    specification: Spec,
    stem: str,
    results: Results,
    tables: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    progress: bool = True,
) -> Path:
    """Short runs over the grids of [tune]; a CSV with one row per grid point.

    Classifiers are judged on the validation part only, other problems by what their curves end with, such as Phi.
    """
    work = functools.partial(_row, results=results, device=device, progress=progress)
    rows = side_by_side(work, list(_trials(specification)), jobs, f"tune {specification.title}", progress)
    path = tables / f"{stem}-tune.csv"
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return path


def _trials(specification: Spec) -> Iterator[Trial]:
    short = specification.tune
    if short is None:
        raise BadInput("this specification has no [tune] part; see tables/table2.toml for one")
    seed = specification.seeds[0] if short.seed is None else short.seed
    end = {"rounds": short.rounds, "sfo": short.sfo, "exchanges": short.exchanges}
    for block in specification.blocks:
        attacks = [(attack.name, at) for attack in short.attacks.get(block.title, []) for at in attack.build()]
        judges = cells.requests(attacks, seed, part="validation")
        for name, grid in short.grids.get(block.title, {}).items():
            for values in itertools.product(*grid.values()):
                point = dict(zip(grid, values, strict=True))
                of_problem = {key[8:]: value for key, value in point.items() if key.startswith("problem.")}
                of_trainer = {key: value for key, value in point.items() if not key.startswith("problem.")}
                changes = {"problem": block.problem | of_problem, "trainer_settings": block.trainers[name] | of_trainer}
                run = specification.run(block, name, seed, **changes, curve=[], curve_points=1, **end)
                yield Trial(point, run, judges)


def _row(trial: Trial, results: Results, device: str, progress: bool) -> dict[str, Any]:
    """One row of the CSV."""
    run, problem = trial.run, trial.run.build_problem()
    row: dict[str, Any] = {"dataset": run.data_set, "method": run.trainer, **run.budget.named, **trial.point}
    try:
        trained = train(run, results, device=device, progress=progress)
        record = trained.record
        if record.classifier is None or not isinstance(problem, Classifier):
            ends = {key: value for key, value in record.final.items() if isinstance(value, float)}
            return row | {"diverged": False, **ends}
        row |= {"diverged": False, "validation_clean": record.classifier.clean.validation}
        for cell in cells.attack(trained, trial.attacks, problem=problem, device=device, progress=progress):
            row[f"{cell.attack}@{cell.eps:g}"] = cell.robust_acc
    except Diverged:
        row |= {"diverged": True}
    return row

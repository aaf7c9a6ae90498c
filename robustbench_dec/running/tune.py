"""Tuning: short runs over a grid of settings, judged on the validation part, one row of a CSV each."""

import functools
import itertools
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import files
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.problem import Classifier
from robustbench_dec.running import cells
from robustbench_dec.running.pool import side_by_side
from robustbench_dec.running.train import train
from robustbench_dec.specs import table as spec


def tune(
    specification: spec.Spec,
    stem: str,
    results: Path,
    tables: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    progress: bool = True,
) -> Path:
    """Short runs over the grids of [tune]; a CSV with one row per grid point.

    Classifiers are judged on the validation part only, other problems by what their curves end with, such as Phi.
    """
    if specification.tune is None:
        raise BadInput("this specification has no [tune] part; see tables/table2.toml for one")
    grids = specification.tune.grids
    trials = [
        (block, name, dict(zip(grid, values, strict=True)))
        for block in specification.blocks
        for name, grid in grids.get(block.title, {}).items()
        for values in itertools.product(*grid.values())
    ]
    work = functools.partial(_try, specification=specification, results=results, device=device, progress=progress)
    rows = side_by_side(work, trials, jobs, f"tune {specification.title}", progress)
    path = tables / f"{stem}-tune.csv"
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return path


def _try(
    trial: tuple[spec.BlockSpec, str, dict[str, Any]],
    specification: spec.Spec,
    results: Path,
    device: str,
    progress: bool,
) -> dict[str, Any]:
    """One row of the tuning's CSV."""
    block, name, point = trial
    short = specification.tune
    assert short is not None
    problem = block.problem | {key[8:]: value for key, value in point.items() if key.startswith("problem.")}
    settings = block.trainers[name] | {key: value for key, value in point.items() if not key.startswith("problem.")}
    end = {"rounds": short.rounds, "sfo": short.sfo, "exchanges": short.exchanges}
    one = specification.run(
        block, name, specification.seeds[0],
        problem=problem, trainer_settings=settings, curve=[], curve_points=1, **end,
    )  # fmt: skip
    row: dict[str, Any] = {"dataset": one.data_set, "method": name, **one.budget.named, **point}
    built = one.build_problem()
    try:
        folder = train(one, results, device=device, progress=progress)
        record = files.read_sealed(folder / "run.json")
        if not isinstance(built, Classifier):
            ends = {key: value for key, value in record["final"].items() if isinstance(value, float)}
            return row | {"diverged": False, **ends}
        row |= {"diverged": False, "validation_clean": record["clean"]["validation"]}
        attacks = [(attack.name, at) for attack in short.attacks.get(block.title, []) for at in attack.build()]
        for cell in cells.attack(folder, attacks, problem=built, part="validation", device=device, progress=progress):
            row[f"{cell['attack']}@{cell['eps']:g}"] = cell["robust_acc"]
    except Diverged:
        row |= {"diverged": True}
    return row

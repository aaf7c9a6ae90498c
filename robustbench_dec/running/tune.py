"""Tuning: short runs over a grid of settings, judged on the validation part, one row of a CSV each."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustbench_dec import files, shelf
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
    names: dict[str, str]


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
                names = {"dataset": run.data_set, "method": name}
                names |= {} if short.seed is None else {"block": block.title}
                yield Trial(point, run, judges, names)


def _row(trial: Trial, results: Results, device: str, progress: bool) -> dict[str, Any]:
    """One row of the CSV."""
    run, problem = trial.run, trial.run.build_problem()
    row: dict[str, Any] = {**trial.names, **run.budget.named, **trial.point}
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


def taken(specification: Spec, path: Path) -> tuple[Spec, list[str]]:
    """The specification with the point of each grid that has the smallest Phi; a sentence for each at the edge."""
    if specification.tune is None:
        raise BadInput("this specification has no [tune] part to take step sizes from")
    if not path.is_file():
        raise BadInput(f"no step sizes in {path}; `robustbench-dec tune` tries the grids and writes it")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    blocks, edges = [], []
    for block in specification.blocks:
        trainers = dict(block.trainers)
        for entry, grid in specification.tune.grids[block.title].items():
            here = frame[(frame["block"] == block.title) & (frame["method"] == entry) & (frame["diverged"] == "False")]
            if here.empty:
                where = f"{entry} on {block.title}"
                raise BadInput(f"{path} has no step sizes for {where}; `robustbench-dec tune` adds them")
            best = here.loc[here["phi"].astype(float).idxmin()]
            point = {name: _same(best[name], values) for name, values in grid.items()}
            trainers[entry] = block.trainers[entry] | point
            for name, value in point.items():
                if value in (grid[name][0], grid[name][-1]):
                    edges.append(f"{block.title}, {entry}: the best {name}, {value}, is at the edge of the box")
        blocks.append(block.model_copy(update={"trainers": trainers}))
    return specification.model_copy(update={"blocks": blocks}), edges


def _same(text: str, values: list[Any]) -> Any:
    """The value as the grid has it: a CSV may make 2.0 of 2."""
    return next(value for value in values if shelf.number(value) == shelf.number(text))

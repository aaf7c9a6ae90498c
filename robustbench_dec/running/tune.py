"""Tuning: short runs over a grid of settings, judged on the validation part, one row of a CSV each."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

import pandas as pd
from scipy.stats import qmc

from robustbench_dec import files, shelf
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.parts import Settings
from robustbench_dec.problem import Classifier
from robustbench_dec.running import cells
from robustbench_dec.running.pool import side_by_side
from robustbench_dec.running.train import Habits, train
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.specs.table import DrawnSpec, Spec
from robustbench_dec.store.results import Results
from robustbench_dec.trainer import Trainer

LETTERS: Mapping[Literal["x", "y"], tuple[str, ...]] = {"x": ("eta_c", "eta_x"), "y": ("eta_d", "eta_y")}
"""What methods call their step sizes in x and in y."""


class Trial(NamedTuple):
    """One point of a grid: a short run, and the cells that judge it."""

    point: Settings
    run: RunSpec
    attacks: list[cells.Request]
    names: dict[str, str]


def tune(
    specification: Spec,
    stem: str,
    results: Results,
    tables: Path,
    how: Habits = Habits(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
) -> Path:
    """Short runs over the grids of [tune]; a CSV with one row per grid point.

    Classifiers are judged on the validation part only, other problems by what their curves end with, such as Phi.
    """
    work = functools.partial(_row, results=results, how=how)
    rows = side_by_side(work, list(_trials(specification)), jobs, f"tune {specification.title}", how.progress)
    path = tables / f"{stem}-tune.csv"
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return path


def _trials(specification: Spec) -> Iterator[Trial]:
    short = specification.tune
    if short is None:
        raise BadInput("this specification has no [tune] part; see tables/table2.toml for one")
    seed = specification.seeds[0] if short.seed is None else short.seed
    end = {"rounds": short.rounds, "sfo": short.sfo, "exchanges": short.exchanges}
    if short.drawn is not None:
        yield from _drawn(specification, short.drawn, seed, {name: most for name, most in end.items() if most})
        return
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


def _drawn(specification: Spec, drawn: DrawnSpec, seed: int, end: Mapping[str, int]) -> Iterator[Trial]:
    """As many trials for every method, on one block, at the same points of the box."""
    block = next((each for each in specification.blocks if each.title == drawn.block), None)
    if block is None:
        there = ", ".join(each.title for each in specification.blocks)
        raise BadInput(f"no block '{drawn.block}' to tune on; there are: {there}")
    asked = [] if specification.tune is None else specification.tune.attacks.get(block.title, [])
    attacks = [(each.name, attack) for each in asked for attack in each.build()]
    judges = cells.requests(attacks, seed, part="validation", n_examples=drawn.images)
    for entry in block.trainers:
        for point in points(drawn, entry):
            settings = block.trainers[entry] | point
            run = specification.run(
                block, entry, seed, trainer_settings=settings, curve=[], curve_points=1, blind=True, **end
            )
            names = {"dataset": run.data_set, "method": entry, "block": block.title}
            yield Trial(point, run, judges, names)


def points(drawn: DrawnSpec, entry: str) -> list[dict[str, float]]:
    """The points of a method: the first ones of a scrambled Sobol sequence in the box, in the method's own letters."""
    trainer = shelf.find("trainer", entry.partition(" ")[0], Trainer)  # type: ignore[type-abstract]
    fields = trainer.__dataclass_fields__
    power = max(1, math.ceil(math.log2(drawn.trials)))
    sequence = qmc.Sobol(2, scramble=True, rng=drawn.sequence_seed).random_base2(power)[: drawn.trials]
    letters = {axis: next((name for name in LETTERS[axis] if name in fields), None) for axis in LETTERS}
    found = []
    for row in sequence.tolist():
        point = {}
        for (axis, name), u in zip(letters.items(), row, strict=True):
            if name is not None:
                low, high = drawn.box[axis]
                point[name] = float(f"{math.exp(math.log(low) + u * math.log(high / low)):.{drawn.digits}g}")
        found.append(point)
    return found


def _row(trial: Trial, results: Results, how: Habits) -> dict[str, object]:
    """One row of the CSV."""
    run, problem = trial.run, trial.run.build_problem()
    row: dict[str, object] = {**trial.names, **run.budget.named, **trial.point}
    try:
        trained = train(run, results, how)
        record = trained.record
        if record.classifier is None or not isinstance(problem, Classifier):
            ends = {key: value for key, value in record.final.items() if isinstance(value, float)}
            return row | {"diverged": False, **ends}
        row |= {"diverged": False, "validation_clean": record.classifier.clean.validation}
        for cell in cells.attack(trained, trial.attacks, problem=problem, device=how.device, progress=how.progress):
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
    if specification.tune.drawn is not None:
        return _taken_of_drawn(specification, specification.tune.drawn, frame, path), []
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


def _taken_of_drawn(specification: Spec, drawn: DrawnSpec, frame: pd.DataFrame, path: Path) -> Spec:
    """Each method's best point on the block that it was tuned on, in every block; the first of equals.

    Where every trial of a method diverged, its first point is taken, and its row will say what comes of it.
    """
    best: dict[str, dict[str, float]] = {}
    for entry in dict.fromkeys(entry for block in specification.blocks for entry in block.trainers):
        tried = frame[(frame["block"] == drawn.block) & (frame["method"] == entry)]
        if len(tried) != drawn.trials:
            raise BadInput(
                f"{path} has {len(tried)} of the {drawn.trials} trials of {entry}; `robustbench-dec tune` makes them"
            )
        scores = [score(row) for row in tried.to_dict("records")]
        best[entry] = points(drawn, entry)[max(range(len(scores)), key=lambda place: (scores[place], -place))]
    blocks = [
        block.model_copy(update={"trainers": {entry: given | best[entry] for entry, given in block.trainers.items()}})
        for block in specification.blocks
    ]
    return specification.model_copy(update={"blocks": blocks})


def score(row: Mapping[str, str]) -> float:
    """The mean accuracy under the tuning attacks on held-out images; -1 where the trial diverged."""
    if row["diverged"] == "True":
        return -1.0
    attacked = [float(value) for name, value in row.items() if "@" in name and value]
    return mean(attacked) if attacked else float(row["validation_clean"])


def _same(text: str, values: list[Any]) -> Any:
    """The value as the grid has it: a CSV may make 2.0 of 2."""
    return next(value for value in values if shelf.number(value) == shelf.number(text))

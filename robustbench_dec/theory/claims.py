"""Table 1: what the paper says of each method beside what the method pays on a bench with a known solution.

    tables/table1.toml        claims, variants, bench, goals, grid                          (written by hand)
    tables/table1-tune.csv    what every point of the grid gave, and which one was taken    (--tune)
    the store                 one measured run each
    tables/table1.{csv,md,tex}

Each step reads only the files of the steps before it.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.specs.claims import GridSpec, Place, Spec, Steps
from robustbench_dec.store.results import Claims
from robustbench_dec.theory.claims_runs import measured
from robustbench_dec.theory.stability import spectral_radius

MEASURED = ("sfo", "rounds", "exchanges", "all_reduces")


Choice = dict[Place, Steps]
"""The step sizes for each place."""


def tune(
    specification: Spec, stem: str, results: Claims, tables: Path, *, device: str = "cpu", progress: bool = True
) -> Path:
    """Try the grid in every place, and write the CSV of what came out; runs that exist are not computed again.

    Where the best point of a place lies at an edge of the grid, the grid grows there by a factor of 2, for all places,
    until all best points lie inside or it has grown `extensions` times on that side.
    """
    places, grid = list(specification.places()), specification.tune
    tried: dict[Place, list[dict[str, Any]]] = {place: [] for place in places}
    added: dict[str, int] = {}
    while True:
        for place in progress_bars.bar(places, desc=f"tune {stem}", unit="place", show=progress):
            _try(specification, grid, place, tried[place], results, device)
        edges = {side for place in places for side in _edges(specification, place, tried[place], grid)}
        growing = [side for side in sorted(edges) if added.get(side, 0) < grid.extensions]
        if not growing:
            break
        for side in growing:
            added[side] = added.get(side, 0) + 1
            grid = _grown(grid, side)
    rows = []
    for here in tried.values():
        best = min(here, key=_merit)
        rows += [row | {"taken": "yes" if row is best else ""} for row in here]
    path = tables / f"{stem}-tune.csv"
    frame = pd.DataFrame(rows).astype({"sfo": "Int64"})
    files.write_text(path, frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    return path


def _edges(specification: Spec, place: Place, rows: list[dict[str, Any]], grid: GridSpec) -> Iterator[str]:
    """The sides of the grid at which the best point lies; a method without y has one axis, its step size in x."""
    best = min(rows, key=_merit)
    if not specification.method(place).trainer.has_dual:
        sizes = [row["eta_x"] for row in rows]
        yield from (f"eta_y {side}" for side in _ends(best["eta_x"], sizes))
        return
    yield from (f"eta_y {side}" for side in _ends(best["eta_y"], grid.eta_y))
    yield from (f"ratio {side}" for side in _ends(best["eta_x"] / best["eta_y"], grid.ratio))


def _ends(value: float, values: Sequence[float]) -> Iterator[str]:
    if value >= max(values) * (1 - 1e-9):
        yield "up"
    if value <= min(values) * (1 + 1e-9):
        yield "down"


def _grown(grid: GridSpec, side: str) -> GridSpec:
    name, _, way = side.partition(" ")
    values = getattr(grid, name)
    return grid.model_copy(update={name: [*values, 2 * max(values) if way == "up" else min(values) / 2]})


def _try(
    specification: Spec, grid: GridSpec, place: Place, rows: list[dict[str, Any]], results: Claims, device: str
) -> None:
    """Add a row for each new point of the grid; one that has paid more than another one needed is beaten, and stops."""
    goal = specification.goals[0]
    least = min([grid.budget, *(row["sfo"] for row in rows if row["sfo"] is not None)])
    known = [(row["eta_x"], row["eta_y"]) for row in rows]
    has_dual = specification.method(place).trainer.has_dual
    for ratio, eta_y in itertools.product(grid.ratio, grid.eta_y):
        steps = Steps(ratio * eta_y, eta_y)
        # Without y, points that differ only in eta_y are one.
        if any(steps.eta_x == eta_x and (steps.eta_y == other or not has_dual) for eta_x, other in known):
            continue
        known.append((steps.eta_x, steps.eta_y))
        task = replace(specification.task(place, steps, grid.seed), goals=(goal,), budget=least)
        net = task.network.connect(grid.seed)
        radius = spectral_radius(task.build_trainer(), task.build_problem(), net)
        if not radius < 1:
            refused: dict[str, Any] = {"goal": goal, "ended": "unstable", "rounds": 0, "sfo": None, "floor": None}
            rows.append({**place._asdict(), **steps._asdict(), **refused, "radius": radius})
            continue
        record = measured(task, results, device)
        costs = record.reached[f"{goal:g}"]
        beaten = record.ended == "budget" and least < grid.budget
        rows.append(
            {
                **place._asdict(),
                **steps._asdict(),
                "goal": goal,
                "ended": "beaten" if beaten else record.ended,
                "rounds": record.ledger.rounds,
                "sfo": costs and costs["sfo"],
                "floor": record.floor,
                "radius": radius,
            }
        )
        least = min(least, costs["sfo"]) if costs else least


def _merit(row: Mapping[str, Any]) -> tuple[float, float]:
    """Small is good: SFO calls to the goal, or else the norm that was left over."""
    return (math.inf if row["sfo"] is None else row["sfo"], math.inf if row["floor"] is None else row["floor"])


def chosen(specification: Spec, path: Path) -> Choice:
    """The step sizes that the grid's CSV says to take, for every place of the table."""
    if not path.is_file():
        raise BadInput(
            f"no step sizes in {path}; `robustbench-dec tune tables/table1.toml` tries the grid and writes it"
        )
    frame = pd.read_csv(path, dtype={"taken": str, "variant": str}, keep_default_na=False)
    taken = frame[frame["taken"] == "yes"]
    choice = {
        Place(row.method, row.variant, float(row.heterogeneity)): Steps(float(row.eta_x), float(row.eta_y))
        for row in taken.itertuples()
    }
    for place in specification.places():
        if place not in choice:
            where = f"{place.method} '{place.variant}' at heterogeneity {place.heterogeneity:g}"
            raise BadInput(f"{path} has no step sizes for {where}; `robustbench-dec tune tables/table1.toml` adds them")
    return choice


def missing(specification: Spec, choice: Choice, results: Claims) -> int:
    """How many runs of the table are not measured yet."""
    runs = itertools.product(specification.seeds, specification.places())
    return sum(not results.run(specification.task(place, choice[place], seed).id).exists for seed, place in runs)


def make(
    specification: Spec, choice: Choice, results: Claims, *, device: str = "cpu", progress: bool = True
) -> pd.DataFrame:
    """Measure what is missing; one row per run and goal: the place, the goal, the seed, the costs or the floor."""
    runs = list(itertools.product(specification.seeds, specification.places()))
    rows = []
    for seed, place in progress_bars.bar(runs, desc=specification.title, unit="run", show=progress):
        record = measured(specification.task(place, choice[place], seed), results, device)
        for goal in specification.goals:
            costs = record.reached[f"{goal:g}"] or {}
            rows.append(
                {
                    **place._asdict(),
                    **choice[place]._asdict(),
                    "goal": goal,
                    "seed": seed,
                    "reached": bool(costs),
                    **{name: costs.get(name) for name in MEASURED},
                    "floor": record.floor,
                    "ended": record.ended,
                    "run_id": record.id,
                }
            )
    return pd.DataFrame(rows)

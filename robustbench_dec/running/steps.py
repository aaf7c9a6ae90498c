"""Step sizes by a rule: one box for every entry of a block, tried on a seed apart, the best point for each horizon.

A horizon is a cost at which methods are compared, such as 10,000 oracle calls. A trial goes on until all horizons are
passed, and is judged at each of them by the mean of Phi over the last tenth of it (`judged`), as the figures are. Where
the best point of an entry lies at an edge of the box, the box grows there by one value, for every entry of the block,
until all best points lie inside or it has grown `extensions` times on that side. So entries have equal trials.

eta_x and eta_y are what a round moves: a method with K local steps has eta_x / K and eta_y / K. eta_y is over N, the
number of samples, because y has one coordinate for each.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from torch import Tensor, as_tensor

from robustbench_dec import bars, files, shelf
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import LocalSteps, Settings
from robustbench_dec.problems.robust_logistic import RobustLogistic
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs.budget import cost
from robustbench_dec.specs.table import BlockSpec, Spec, StepsSpec
from robustbench_dec.trainer import State, Trainer

HORIZONS = ("sfo", "exchanges")
WINDOW, POINTS = 0.1, 6
"""The part of a horizon over which Phi is averaged, and at how many costs."""

Point = tuple[float, float]
"""eta_x and N eta_y."""


class Found(NamedTuple):
    """A trial's Phi at each horizon; infinite where it has diverged before."""

    point: Point
    phi: dict[str, float]


def judged(costs: Sequence[float], horizon: int, phi: Callable[[int], float]) -> float:
    """The mean of Phi over the last tenth of a horizon: at each cost, of the last measured iterate that it pays for.

    `costs` are the iterates' in their order, `phi` is asked for their places.
    """
    if not costs[-1] >= horizon:
        return math.inf
    wanted = np.linspace((1 - WINDOW) * horizon, horizon, POINTS)
    places = np.searchsorted(np.asarray(costs), wanted * (1 + 1e-12), side="right") - 1
    known = {place: phi(int(place)) for place in dict.fromkeys(places)}
    return float(np.mean([known[place] for place in places]))


def tune(specification: Spec, stem: str, tables: Path, *, device: str = "cpu", progress: bool = True) -> list[Path]:
    """Try the box of every block; <stem>-tune.csv has all trials, <stem>-sets.csv what is known of each data set."""
    steps = _rule(specification)
    rows, sets = [], []
    for block in specification.blocks:
        entry, settings = next(iter(block.trainers.items()))
        any_steps = settled(settings, trainer_class(entry), (1.0, 1.0), 1)
        problem = specification.run(block, entry, steps.seed, trainer_settings=any_steps).build_problem()
        if not isinstance(problem, RobustLogistic):
            raise BadInput(f"step sizes over N are for robust_logistic, not for the problem of '{block.title}'")
        trial = Trial(specification, block, problem, steps.seed, device)
        found, values = _search(block, steps, trial, progress)
        rows += list(_lines(block, found, values, problem.N))
        sets.append({"dataset": block.title, **_known(problem, trial)})
    written = {"tune": rows, "sets": sets}
    contents = {
        tables / f"{stem}-{name}.csv": pd.DataFrame(lines).to_csv(index=False, lineterminator="\n").encode()
        for name, lines in written.items()
    }
    return files.write_all(contents)


def _rule(specification: Spec) -> StepsSpec:
    if specification.steps is None:
        raise BadInput("this specification has no [steps] part to tune by; see tables/figures.toml for one")
    return specification.steps


class Trial:
    """One point for one entry of a block, on one seed; every iterate counts."""

    def __init__(
        self, specification: Spec, block: BlockSpec, problem: RobustLogistic, seed: int, device: str = "cpu"
    ) -> None:
        self._specification, self._block, self._problem, self._device = specification, block, problem, device
        self._seed = seed
        net = specification.network_of(block).connect(self._seed)
        shards = Oracle(problem, net.nodes, self._seed, net.ledger, device).shards
        self.exact = problem.exact(shards)

    def __call__(self, entry: str, point: Point) -> Found:
        settings = settled(self._block.trainers[entry], trainer_class(entry), point, self._problem.N)
        run = self._specification.run(self._block, entry, self._seed, trainer_settings=settings)
        net = run.network.connect(self._seed)
        oracle = Oracle(self._problem, net.nodes, self._seed, net.ledger, self._device, net.rows)
        means: list[Tensor] = []
        costs: dict[str, list[float]] = {name: [] for name in HORIZONS}

        def loss(state: State) -> float:
            return oracle.losses.mean().item() if bool(state.X.isfinite().all()) else math.nan

        try:
            for at in rounds(run.build_trainer(), oracle, net, run.budget, Watch(loss)):
                means.append(at.state.X.mean(0))
                for name, paid in costs.items():
                    paid.append(cost(at.costs, name))
        except Diverged:
            pass
        ends = {name: getattr(self._block, name) for name in HORIZONS}
        phi = {
            name: judged(costs[name], end, lambda place: self.exact.phi(means[place]).item())
            for name, end in ends.items()
            if end is not None
        }
        return Found(point, phi)


def settled(settings: Settings, trainer: type[Trainer], point: Point, N: int) -> dict[str, object]:
    """An entry's settings with the step sizes of a point."""
    x, y = ("eta_c", "eta_d") if "eta_c" in trainer.__dataclass_fields__ else ("eta_x", "eta_y")
    local_steps = get_type_hints(trainer, include_extras=True).get("K") == LocalSteps  # DREAM's K are gossips
    local = settings.get("K", 1) if local_steps else 1
    return {**settings, x: point[0] / local, y: point[1] / (N * local)}


def trainer_class(entry: str) -> type[Trainer]:
    """Of an entry such as "gt_gda cta"."""
    return shelf.find("trainer", entry.partition(" ")[0], Trainer)  # type: ignore[type-abstract]


Values = tuple[list[float], list[float]]
"""Of eta_x and of N eta_y, that were tried, ascending."""


def _search(block: BlockSpec, steps: StepsSpec, trial: Trial, progress: bool) -> tuple[dict[str, list[Found]], Values]:
    """The trials of every entry, in a box that grows until the best points lie inside, and the box."""
    values: Values = (sorted(steps.eta_x), sorted(steps.eta_y))
    added: dict[tuple[int, int], int] = {}
    found: dict[str, list[Found]] = {entry: [] for entry in block.trainers}
    while True:
        tried = {each.point for trials in found.values() for each in trials}
        new = [point for point in itertools.product(*values) if point not in tried]
        work = [(entry, point) for entry in block.trainers for point in new]
        for entry, point in bars.bar(work, desc=f"tune {block.title}", unit="trial", show=progress):
            found[entry].append(trial(entry, point))
        edges = {
            side for each in found.values() for _, best in _best(each, values) for side in _edges(best.point, values)
        }
        growing = [side for side in sorted(edges) if added.get(side, 0) < steps.extensions[side[0]]]
        if not growing:
            return found, values
        for axis, way in growing:
            added[axis, way] = added.get((axis, way), 0) + 1
            ends = values[axis][::-1][:2] if way > 0 else values[axis][:2]
            further = float(f"{ends[0] ** 2 / ends[1]:.6g}")
            values[axis].insert(len(values[axis]) if way > 0 else 0, further)


def _edges(point: Point, values: Values) -> Iterator[tuple[int, int]]:
    """The sides of the box at which a point lies: axis, and up (1) or down (-1)."""
    for axis, (value, tried) in enumerate(zip(point, values, strict=True)):
        if value == tried[-1]:
            yield axis, 1
        if value == tried[0]:
            yield axis, -1


def _best(found: Sequence[Found], values: Values) -> Iterator[tuple[str, Found]]:
    """The point with the smallest Phi at each horizon; among equals, one inside the box."""
    for horizon in found[0].phi:
        yield horizon, min(found, key=lambda each: (each.phi[horizon], len([*_edges(each.point, values)])))


def _lines(block: BlockSpec, found: Mapping[str, list[Found]], values: Values, N: int) -> Iterator[dict[str, object]]:
    """The CSV's rows of one block."""
    for entry, trials in found.items():
        best = dict(_best(trials, values))
        for each in trials:
            row: dict[str, object] = {"block": block.title, "method": entry, "N": N}
            row |= {"eta_x": each.point[0], "eta_y_N": each.point[1]}
            for horizon, phi in each.phi.items():
                taken = each is best[horizon]
                inside = not [*_edges(each.point, values)]
                row[f"phi_{horizon}"] = float(f"{phi:.7g}") if math.isfinite(phi) else None
                row[f"taken_{horizon}"] = ("inside" if inside else "edge") if taken else ""
            yield row


def _known(problem: RobustLogistic, trial: Trial) -> dict[str, object]:
    """Of a data set: the smallest Phi that L-BFGS finds, ||grad Phi|| there, and the share of the larger class."""
    exact = trial.exact

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = as_tensor(x)
        return exact.phi(at).item(), exact.grad_phi(at).numpy()

    start = problem.start(0)[0].double().numpy()
    best = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 600, "ftol": 1e-13, "gtol": 1e-7})
    part = "test" if len(problem.table.test_labels) else "train"
    positive = (getattr(problem.table, f"{part}_labels") > 0).double().mean().item()
    return {
        "samples": problem.N,
        "features": len(start) - 1,
        "phi_best": float(best.fun),
        "grad_phi": float(f"{np.linalg.norm(best.jac):.3g}"),
        "part": part,
        "majority": round(max(positive, 1 - positive), 6),
    }


def taken(specification: Spec, stem: Path) -> tuple[Spec, list[str]]:
    """The specification with a block for each horizon and the step sizes that <stem>-tune.csv says to take there.

    Also a sentence for each of them that lies at an edge of the box.
    """
    steps = _rule(specification)
    tuned, sets = (stem.with_name(f"{stem.name}-{name}.csv") for name in ("tune", "sets"))
    for path in (tuned, sets):
        if not path.is_file():
            raise BadInput(f"no step sizes in {path}; `robustbench-dec tune` tries the box and writes it")
    frame = pd.read_csv(tuned, keep_default_na=False)
    blocks, edges = [], []
    for block in specification.blocks:
        for horizon in (name for name in HORIZONS if getattr(block, name) is not None):
            trainers = {}
            for entry, settings in block.trainers.items():
                here = frame[(frame["block"] == block.title) & (frame["method"] == entry)]
                best = here[here[f"taken_{horizon}"] != ""]
                if len(best) != 1:
                    where = f"{entry} on {block.title}"
                    raise BadInput(f"{tuned} has no step sizes for {where}; `robustbench-dec tune` adds them")
                row = best.iloc[0]
                point = float(row["eta_x"]), float(row["eta_y_N"])
                trainers[entry] = settled(settings, trainer_class(entry), point, int(row["N"]))
                if row[f"taken_{horizon}"] == "edge":
                    at = f"{point[0]:g} and {point[1]:g}/N"
                    edges.append(f"{block.title}, {entry}, {horizon}: the best steps, {at}, lie at the edge of the box")
            only = {name: getattr(block, name) if name == horizon else None for name in HORIZONS}
            blocks.append(block.model_copy(update={"trainers": trainers, **only}))
    known = pd.read_csv(sets).set_index("dataset").to_dict("index")
    update = {"blocks": blocks, "steps": steps.model_copy(update={"known": known})}
    return specification.model_copy(update=update), edges

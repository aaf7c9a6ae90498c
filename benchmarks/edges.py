"""Best step sizes at an edge of what was tried: what lies beyond it?

    python benchmarks/edges.py           writes benchmarks/figures_edges.csv

Figures 1 and 2: where the best point of an entry lies at the lower end of eta_y and the last tenfold decrease still
lowered Phi by more than FLAT, three more decades are tried at every eta_x of the box, on the trials' seed; the best of
all is then run on the seeds that are reported. These entries get more trials than the others, so the figures do not
take them: they say what the edge hides. (Table 1's grid grows until no best point lies at an edge.)
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from robustbench_dec import files
from robustbench_dec.problems.robust_logistic import RobustLogistic
from robustbench_dec.running import steps
from robustbench_dec.specs import table as specs

HERE = Path(__file__).parent
TABLES = HERE.parent / "tables"
FLAT = 1e-3
"""A relative change of Phi that is none."""


def figures() -> Iterator[dict[str, Any]]:
    """Trials beyond the edge and, for the best of all, the reported seeds."""
    specification = specs.read(TABLES / "figures.toml")
    tuned = pd.read_csv(TABLES / "figures-tune.csv").fillna({"taken_sfo": "", "taken_exchanges": ""})
    assert specification.steps is not None
    for block, axis in ((block, axis) for block in specification.blocks for axis in steps.HORIZONS):
        box = tuned[tuned["block"] == block.title]
        ends = {name: getattr(block, name) if name == axis else None for name in steps.HORIZONS}
        only = block.model_copy(update=ends)
        for edge in box[box[f"taken_{axis}"] == "edge"].itertuples():
            mine = box[box["method"] == edge.method].set_index(["eta_x", "eta_y_N"])[f"phi_{axis}"]
            low = sorted(box["eta_y_N"].unique())[:2]
            if edge.eta_y_N != low[0] or mine[edge.eta_x, low[1]] - mine.min() <= FLAT * mine.min():
                continue
            further = [float(f"{low[0] / 10**k:.6g}") for k in (1, 2, 3)]
            points = [(float(x), y) for x in sorted(box["eta_x"].unique()) for y in further]
            where = {"dataset": block.title, "axis": axis, "method": edge.method}
            found = {(edge.eta_x, edge.eta_y_N): float(mine.min())}
            trial = _trial(specification, only, edge.method, specification.steps.seed)
            for point in points:
                found[point] = trial(edge.method, point).phi[axis]
                yield _row(where, point, specification.steps.seed, found[point])
            best = min(found, key=lambda point: found[point])
            for seed in specification.seeds:
                trial = _trial(specification, only, edge.method, seed)
                yield _row(where, best, seed, trial(edge.method, best).phi[axis])


def _trial(specification: specs.Spec, block: specs.BlockSpec, entry: str, seed: int) -> steps.Trial:
    settings = steps.settled(block.trainers[entry], steps.trainer_class(entry), (1.0, 1.0), 1)
    problem = specification.run(block, entry, seed, trainer_settings=settings).build_problem()
    assert isinstance(problem, RobustLogistic)
    return steps.Trial(specification, block, problem, seed)


def _row(where: dict[str, Any], point: steps.Point, seed: int, phi: float) -> dict[str, Any]:
    return where | {"eta_x": point[0], "eta_y_N": point[1], "seed": seed, "phi": float(f"{phi:.7g}")}


def main() -> None:
    torch.set_num_threads(1)
    lines = []
    for line in figures():
        lines.append(line)
        print(line, flush=True)
    files.write_text(HERE / "figures_edges.csv", pd.DataFrame(lines).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

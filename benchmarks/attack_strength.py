"""Are Table 2's attacks at full strength? The table's stored outcomes against the same attacks with 4x the steps.

Attacks the checkpoints of seed 0 in results/runs (train them with `make table2` first) at every radius of the
table, and at the middle radius with other kinds of universal steps, on the first test images; the table's own accuracy
on those images comes from the stored cells. Writes benchmarks/attack_strength.csv.
"""

import argparse
import base64
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from robustbench_dec import attack, files, run, spec
from robustbench_dec.problem import Classifier

ROOT = Path(__file__).resolve().parents[1]
UAP_VARIANTS: list[dict[str, Any]] = [
    {"step": "sign", "rel_alpha": 0.02},
    {"step": "adam", "rel_alpha": 0.1},
    {"step": "gradient", "alpha": 10.0},
]


def stronger(asked: spec.AttackSpec) -> list[spec.AttackSpec]:
    """The same attack with changes that should not matter if it has converged."""
    if asked.name == "fgsm":
        return []
    more_steps = asked.model_copy(update={"steps": 4 * (asked.model_extra or {})["steps"]})
    middle = [asked.eps[len(asked.eps) // 2]]
    variants = [asked.model_copy(update={"eps": middle, **change}) for change in UAP_VARIANTS]
    return [more_steps, *(variants if asked.name == "uap" else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--n-examples", type=int, default=1000, help="first so many test images")
    parser.add_argument("--dataset", help="only this one; its rows replace those of the CSV")
    arguments = parser.parse_args()
    table = spec.read(ROOT / "tables" / "table2.toml")
    first = [pair for pair in table.runs() if pair[1].seed == table.seeds[0]]
    jobs = [
        (one, asked, changed)
        for block, one in first
        if arguments.dataset in (None, one.data_set)
        for asked in block.attacks
        for changed in stronger(asked)
    ]
    rows = []
    for one, asked, changed in tqdm(jobs, disable=None):
        problem = cast(Classifier, one.build_problem())
        folder = arguments.results / "runs" / one.id
        images, n = problem.images, arguments.n_examples
        stored = run.attack(folder, [(asked.name, at) for at in asked.build()], problem=problem, progress=False)
        reference = {cell["eps"]: outcomes(cell)[:n].mean() for cell in stored}
        model = run.mean_model(folder)
        for at in changed.build():
            outcome = attack.evaluate(
                at, model, images.test_images[:n], images.test_labels[:n], seed=one.seed,
                train=(images.train_images, images.train_labels),
            )  # fmt: skip
            given, usual = changed.model_extra or {}, asked.model_extra or {}
            change = ", ".join(f"{name} = {value}" for name, value in given.items() if usual.get(name) != value)
            rows.append(
                {
                    "dataset": one.data_set,
                    "method": one.trainer,
                    "attack": asked.name,
                    "eps": at.eps,
                    "change": change,
                    "n_examples": n,
                    "table": reference[at.eps],
                    "changed": outcome.robust_accuracy,
                    "points_below_table": round(100 * (reference[at.eps] - outcome.robust_accuracy), 2),
                }
            )
    path = ROOT / "benchmarks" / "attack_strength.csv"
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False))
    if arguments.dataset and path.is_file():
        others = pd.read_csv(path)
        frame = pd.concat([others[others["dataset"] != arguments.dataset], frame])
    files.write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def outcomes(cell: dict[str, Any]) -> np.ndarray:
    """Which images were still right, one bit each."""
    return np.unpackbits(np.frombuffer(base64.b64decode(cell["bits"]), np.uint8))[: cell["n_examples"]]


if __name__ == "__main__":
    main()

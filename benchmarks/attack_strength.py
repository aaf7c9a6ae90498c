"""Are Table 2's attacks at full strength? The table's stored outcomes against the same attacks with 4x the steps.

Attacks the checkpoints of seed 0 in results/runs (train them with `make table2` first) on the first test images: PGD at
every radius of the table, UAP at the middle one, there with other kinds of steps too. The table's own accuracy on those
images comes from the stored cells. Writes benchmarks/attack_strength.csv.
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
    {"step": "sign", "rel_alpha": 0.05},
    {"step": "adam", "rel_alpha": 0.1},
    {"step": "gradient", "alpha": 10.0},
]


def stronger(asked: spec.AttackSpec) -> list[spec.AttackSpec]:
    """The same attack with changes that should not matter if it has converged; UAPs, which are slow, at one radius."""
    if asked.name == "fgsm":
        return []
    usual = asked.model_extra or {}
    more = {"steps": 4 * usual["steps"]}
    if asked.name != "uap":
        return [asked.model_copy(update=more)]
    kind = usual.get("step", "sign")
    changes = [more, *(variant for variant in UAP_VARIANTS if variant["step"] != kind)]
    middle = {"eps": [asked.eps[len(asked.eps) // 2]]}
    return [asked.model_copy(update=middle | change) for change in changes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--n-examples", type=int, default=1000, help="first so many test images")
    parser.add_argument("--dataset", help="only this one; its rows replace those of the CSV")
    parser.add_argument("--method", help="only this one, likewise")
    arguments = parser.parse_args()
    table = spec.read(ROOT / "tables" / "table2.toml")
    first = [pair for pair in table.runs() if pair[1].seed == table.seeds[0]]
    jobs = [
        (one, asked, changed)
        for block, one in first
        if arguments.dataset in (None, one.data_set) and arguments.method in (None, one.trainer)
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
    if (arguments.dataset or arguments.method) and path.is_file():
        others = pd.read_csv(path)
        done = pd.MultiIndex.from_frame(frame[["dataset", "method"]])
        keep = ~pd.MultiIndex.from_frame(others[["dataset", "method"]]).isin(done)
        frame = pd.concat([others[keep], frame]).sort_values(["dataset", "method"], kind="stable")
    files.write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def outcomes(cell: dict[str, Any]) -> np.ndarray:
    """Which images were still right, one bit each."""
    return np.unpackbits(np.frombuffer(base64.b64decode(cell["bits"]), np.uint8))[: cell["n_examples"]]


if __name__ == "__main__":
    main()

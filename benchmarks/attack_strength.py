"""Are Table 2's attacks at full strength? Accuracy with the table's settings against the same attack with 4x the steps.

Attacks the checkpoints of seed 0 in results/runs (train them with `make table2` first) at every radius of the table,
and for the universal attack with other kinds of steps and restarts too. Writes benchmarks/attack_strength.csv.
"""

import argparse
from pathlib import Path
from typing import Any, cast

import pandas as pd
from tqdm.auto import tqdm

from robustbench_dec import attack, files, run, spec
from robustbench_dec.problems.universal import Universal

ROOT = Path(__file__).resolve().parents[1]
UAP_VARIANTS: list[dict[str, Any]] = [
    {"step": "sign", "rel_alpha": 0.02},
    {"step": "adam", "rel_alpha": 0.1},
    {"step": "gradient", "alpha": 1.0},
    {"step": "gradient", "alpha": 10.0},
    {"restarts": 3},
]


def stronger(attack_spec: spec.AttackSpec) -> list[dict[str, Any]]:
    """Changes of settings that should not matter if the table's attack has converged."""
    if attack_spec.name == "fgsm":
        return []
    steps = (attack_spec.model_extra or {}).get("steps", 20)
    changes: list[dict[str, Any]] = [{"steps": 4 * steps}]
    return changes + (UAP_VARIANTS if attack_spec.name == "uap" else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--n-examples", type=int, default=2000, help="first so many test images")
    arguments = parser.parse_args()
    table = spec.read(ROOT / "tables" / "table2.toml")
    rows = []
    for block, one in tqdm([pair for pair in table.runs() if pair[1].seed == table.seeds[0]], disable=None):
        problem = cast(Universal, one.build_problem())
        model = run.mean_model(arguments.results / "runs" / one.id)
        images = problem.images
        test = images.test_images[: arguments.n_examples], images.test_labels[: arguments.n_examples]
        train = images.train_images, images.train_labels
        for asked in block.attacks:
            for change in [{}, *stronger(asked)]:
                for at in asked.model_copy(update=change).build():
                    outcome = attack.evaluate(at, model, *test, train=train, seed=one.seed)
                    row = {"dataset": images.name, "method": one.trainer, "attack": asked.name, "eps": at.eps}
                    row |= {
                        "change": ", ".join(f"{name} = {value}" for name, value in change.items()) or "as in the table"
                    }
                    rows.append(row | {"n_examples": len(test[1]), "accuracy": outcome.robust_accuracy})
    frame = pd.DataFrame(rows)
    keys = ["dataset", "method", "attack", "eps"]
    reference = frame[frame["change"] == "as in the table"].set_index(keys)["accuracy"]
    frame["points_below_table"] = [
        100 * (reference[tuple(row[k] for k in keys)] - row["accuracy"]) for row in frame.to_dict("records")
    ]
    frame["points_below_table"] = frame["points_below_table"].round(2)
    print(frame.to_string(index=False))
    files.write_text(ROOT / "benchmarks" / "attack_strength.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

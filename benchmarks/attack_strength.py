"""Are Table 2's attacks at full strength? The table's stored outcomes against stronger versions of its attacks.

Attacks the zoo's networks of seed 0, or, with --seed, runs whose checkpoints are there, on the first test images: PGD
and UAP at every radius of the table with twice the steps (of UAP's search too), and UAP at the middle one as an ascent
from y = 0 by sign steps, by Adam and by SGA alone. The table's own accuracy on those images comes from the
stored cells. Writes benchmarks/attack_strength.csv; rows that are not made again stay if they are about today's
networks and attacks.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, cast

import pandas as pd
from tqdm.auto import tqdm

from robustbench_dec import files
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.problem import Classifier
from robustbench_dec.running.cells import Request
from robustbench_dec.specs import table as spec
from robustbench_dec.store import locks, zoo
from robustbench_dec.store.results import Results

ROOT = Path(__file__).resolve().parents[1]
KEYS = ["dataset", "method", "seed", "attack", "eps", "change", "checkpoint"]
ALONE: dict[str, Any] = {"search": 0, "restarts": 1, "anchor": None}
ASCENTS: list[dict[str, Any]] = [
    ALONE | {"step": "sign", "rel_alpha": 0.05, "decay": False, "sga": 0},
    ALONE | {"step": "adam", "rel_alpha": 0.1, "decay": False, "sga": 0},
    ALONE | {"step": "sign", "rel_alpha": 0.1, "decay": False, "sga": 1},
]


def stronger(asked: spec.AttackSpec) -> list[spec.AttackSpec]:
    """The same attack with changes that should not matter if it has converged; other ascents at one radius."""
    if asked.name == "fgsm":
        return []
    usual = asked.build()[0].settings()
    more: dict[str, Any] = {name: 2 * usual[name] for name in ("steps", "search") if name in usual}
    if asked.name != "uap":
        return [asked.model_copy(update=more)]
    middle = {"eps": [asked.eps[len(asked.eps) // 2]]}
    return [asked.model_copy(update=change) for change in (more, *(middle | ascent for ascent in ASCENTS))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--n-examples", type=int, default=1000, help="first so many test images")
    parser.add_argument("--seed", type=int, default=0, help="of the runs; others than 0 are not in the zoo")
    parser.add_argument("--dataset", help="only this one")
    parser.add_argument("--method", help="only this one")
    parser.add_argument("--device", default="cpu", help="where to attack")
    parser.add_argument("--eps", type=float, help="only this radius")
    parser.add_argument("--change", default="", help="only changes whose description has this in it")
    arguments = parser.parse_args()
    table, n = spec.read(ROOT / "tables" / "table2.toml"), arguments.n_examples
    jobs, results = {}, Results(arguments.results)
    for block, run in table.runs():
        home = results.run(run.id)
        sha256 = home.record.checkpoint_sha256
        for asked in block.attacks:
            for changed in stronger(asked):
                for at in changed.build():
                    what = (run.seed, asked.name, at.eps, described(asked, changed), sha256[:12])
                    jobs[run.data_set, run.trainer, *what] = run, home, asked, at
    chosen = [
        key
        for key in jobs
        if arguments.dataset in (None, key[0])
        if arguments.method in (None, key[1])
        if arguments.seed == key[2]
        if arguments.eps in (None, key[4])
        if arguments.change in key[5]
    ]
    rows = []
    for key in tqdm(chosen, disable=None):
        run, home, asked, at = jobs[key]
        if run.seed == 0:
            (entry,) = zoo.entries(f"{run.data_set}/{run.trainer}", results.zoo)
            same, model = entry.record.checkpoint_sha256 == home.record.checkpoint_sha256, entry.model(arguments.device)
        else:
            same, model = True, home.model(arguments.device)
        images = cast(Classifier, run.build_problem()).images
        (usual,) = (like for like in asked.build() if like.eps == at.eps)
        stored = home.cell(Request(asked.name, usual, run.seed, table.n_examples, schema=run.schema).key).known()
        if stored is None or not same:
            sys.exit(f"{home.id} has no cell of {asked.name} on the zoo's network; make Table 2 and that entry again")
        outcome = evaluate(
            at, model, images.test_images[:n], images.test_labels[:n], seed=run.seed,
            train=(images.train_images, images.train_labels),
        )  # fmt: skip
        reference = stored.right[:n].double().mean().item()
        points = round(100 * (reference - outcome.robust_accuracy), 2)
        rows.append([*key, n, reference, outcome.robust_accuracy, points])
    path = ROOT / "benchmarks" / "attack_strength.csv"
    frame = pd.DataFrame(rows, columns=[*KEYS, "n_examples", "table", "changed", "points_below_table"])
    print(frame.to_string(index=False))
    with locks.claim(path):  # another process may measure another method
        frame = pd.concat([pd.read_csv(path), frame] if path.is_file() else [frame])
        frame = frame[[key in jobs for key in frame[KEYS].itertuples(index=False, name=None)]]
        frame = frame.drop_duplicates(KEYS, keep="last").sort_values(KEYS[:4], kind="stable")
        files.write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def described(asked: spec.AttackSpec, changed: spec.AttackSpec) -> str:
    """What differs from the table's attack."""
    given, usual = changed.model_extra or {}, asked.model_extra or {}
    return ", ".join(f"{name} = {value}" for name, value in given.items() if usual.get(name) != value)


if __name__ == "__main__":
    main()

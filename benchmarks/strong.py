"""The ensemble `strong` on every network of Table 2, by training radius too, and of the zoo: what it leaves right.

    python benchmarks/strong.py [--backwards]

On the first 1,000 test images, at Table 2's middle radius of FGSM and PGD. Cells are made where they are missing, into
the networks' own runs, so that they count in every worst case; two processes, one of them backwards, share the work.
They go on the list of what the leaderboard shows, as the suite's own. Writes benchmarks/strong.csv: accuracy on these
images under each attack, and in the worst case of all stored cells.
"""

import argparse
from pathlib import Path

import pandas as pd

from robustbench_dec import bars, files, shelf
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.leaderboard.worst_case import within, worst_case
from robustbench_dec.running import cells
from robustbench_dec.store import publishing, zoo
from robustbench_dec.store.problems import problem_of
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Results, Run

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "strong.csv"
RADII = {"mnist": 0.1, "cifar10": 0.005}
IMAGES = 1000
NAMES = ("fgsm", "pgd", "strong")


def networks(results: Results) -> list[Run]:
    """The runs whose network comes along: Table 2's, also those by training radius, and the zoo's."""
    kept = [run for run in results.runs() if (run.folder / "network.json").is_file()]
    also = [results.run(entry.record.id) for entry in zoo.entries("*", results.zoo)]
    return list({run.id: run for run in [*kept, *also]}.values())


def made(run: Run) -> None:
    """The cell of `strong`, where it is missing."""
    record = run.record
    attack = shelf.make(attack_named("strong"), {"eps": RADII[record.dataset]})
    wanted = cells.requests([("strong", attack)], record.seed, n_examples=IMAGES)
    if run.cell(wanted[0].key).usable() is None:
        cells.attack(run, wanted, problem=problem_of(record), model=zoo.of_run(run).model())


def published(runs: list[Run], results: Results) -> None:
    """Put the cells on the list of the leaderboard; `robustbench-dec render` then shows them."""
    with results.claim_leaderboard():
        made_here = [cell for run in runs for cell in run.cells() if cell.record.attack == "strong"]
        files.write_bytes(results.publication, publishing.with_own(results, made_here).content())


def row(run: Run) -> dict[str, object]:
    """A network's accuracies on the images that `strong` was given."""
    record, radius = run.record, RADII[run.record.dataset]
    there = within([cell.record for cell in run.cells()], "Linf", radius)

    def left(cell: CellRecord) -> float:
        return round(cell.right[:IMAGES].double().mean().item(), 6)

    under = {name: min(left(cell) for cell in there if cell.attack == name and cell.eps == radius) for name in NAMES}
    joined = worst_case(there, IMAGES)
    what = {"dataset": record.dataset, "method": record.method, "seed": record.seed, "run": record.id, "eps": radius}
    alone = {f"only_{name}": joined.alone[name] for name in NAMES}
    return what | {"images": IMAGES} | under | {"worst_case": round(joined.accuracy, 6)} | alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backwards", action="store_true", help="from the last network to the first")
    order = -1 if parser.parse_args().backwards else 1
    results = Results(ROOT / "results")
    runs = networks(results)
    for run in bars.bar(runs[::order], desc="strong", unit="network"):
        made(run)
    published(runs, results)
    frame = pd.DataFrame([row(run) for run in runs]).sort_values(["dataset", "method", "seed", "run"])
    files.write_text(FILE, frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

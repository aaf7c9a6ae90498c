"""Does a run of Table 2 on MNIST survive its first rounds, and is that a property of the settings or of last bits?

    python benchmarks/divergence.py [--seeds 4] [--rounds 24]

The first rounds of every run, by 1 and by 2 threads: the same sums, some of them in another order. Writes
benchmarks/divergence.csv: the round in which training diverged (none: it did not), the largest loss on the way, and
whether the published run diverged.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch

from robustbench_dec import bars, files
from robustbench_dec.errors import Diverged
from robustbench_dec.oracle import Oracle
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs import table as specs
from robustbench_dec.specs.budget import Budget
from robustbench_dec.store import provenance
from robustbench_dec.store.results import Results, Run

ROOT = Path(__file__).resolve().parents[1]


def survival(run: specs.RunSpec, most: int) -> tuple[int | None, float]:
    """The round in which a run diverges, if it does in so many, and its largest loss."""
    net = run.network.connect(run.seed)
    oracle, largest = Oracle(run.build_problem(), net.nodes, run.seed, net.ledger), 0.0
    try:
        for at in rounds(run.build_trainer(), oracle, net, Budget(rounds=most), Watch(lambda _: oracle.last_loss)):
            largest = max(largest, at.value)
    except Diverged:
        return net.ledger.rounds, max(largest, oracle.last_loss)
    return None, largest


def published(run: Run) -> str:
    return "diverged" if run.divergence else "finished" if run.exists else "not made"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=24)
    arguments = parser.parse_args()
    table, results = specs.read(ROOT / "tables" / "table2.toml"), Results(ROOT / "results")
    asked = [run for _, run in table.runs() if run.data_set == "mnist" and run.seed < arguments.seeds]
    rows = []
    for run in bars.bar(asked, desc="first rounds", unit="run"):
        state = published(results.run(run.id))
        for threads in (1, 2):
            torch.set_num_threads(threads)
            ended, largest = survival(run, arguments.rounds)
            rows.append([run.method, run.seed, threads, ended, float(f"{largest:.3g}"), state])
    names = ["method", "seed", "threads", "diverged_in_round", "largest_loss", "published"]
    frame = pd.DataFrame(rows, columns=names).astype({"diverged_in_round": "Int64"})
    print(frame.to_string(index=False), provenance.machine(), sep="\n")
    files.write_text(ROOT / "benchmarks" / "divergence.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

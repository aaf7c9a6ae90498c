"""Simulator or processes? Rounds per second of one process against R ranks of torchrun on the cores of this machine.

Dec-FedTrack on Table 2's MNIST network (5 nodes, K = 5, batch 128) and on robust logistic regression (a9a, 10 nodes,
K = 1, batch 64). The simulator runs with one thread and with all cores; each rank has one thread. The three take turns
several times, and the medians count; `communication` is the share of a rank's time in gossip and means, waiting for the
others included. Writes benchmarks/ranks.csv.

    python benchmarks/ranks.py [--ranks 2] [--seconds 12] [--turns 3]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from robustbench_dec import files
from robustbench_dec.networks.crew import Alone, OnRanks
from robustbench_dec.networks.distributed import DistributedNetwork
from robustbench_dec.networks.ranks import Ranks
from robustbench_dec.oracle import Oracle
from robustbench_dec.running import steps
from robustbench_dec.specs import table as spec

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 2


def cases() -> dict[str, spec.RunSpec]:
    """Dec-FedTrack as the tables have it."""
    table, figures = (spec.read(ROOT / "tables" / f"{name}.toml") for name in ("table2", "figures"))
    figures, _ = steps.taken(figures, ROOT / "tables" / "figures")
    return {
        "network (mnist)": table.run(table.blocks[0], "dec_fedtrack", 0),
        "logistic (a9a)": figures.run(next(b for b in figures.blocks if b.title == "a9a"), "dec_fedtrack", 0),
    }


def measured(run: spec.RunSpec, seconds: float, ranks: Ranks | None) -> dict[str, float]:
    """Rounds per second, and the share of communication."""
    problem, trainer = run.build_problem(), run.build_trainer()
    crew = Alone() if ranks is None else OnRanks(ranks, run.network.nodes)
    net = run.network.connect(run.seed, crew.connect)
    oracle = Oracle(problem, net.nodes, run.seed, net.ledger, rows=net.rows)
    state = trainer.init(oracle, net)
    began, rounds, before = time.perf_counter(), -WARM_UP, 0.0
    more = True
    while more:
        state = trainer.step(state, oracle, net)
        net.ledger.rounds += 1
        rounds += 1
        if rounds == 0:
            began, before = time.perf_counter(), net.seconds if isinstance(net, DistributedNetwork) else 0.0
        enough = rounds > 0 and time.perf_counter() - began > seconds
        more = not crew.agree(oracle.losses, enough, rounds)[1]
    spent = time.perf_counter() - began
    talked = net.seconds - before if isinstance(net, DistributedNetwork) else 0.0
    return {"rounds_per_second": rounds / spent, "communication": talked / spent}


def start(case: str, seconds: float, ranks: int, threads: int) -> dict[str, float]:
    """One measurement in processes of its own."""
    command = [str(Path(__file__).resolve()), "--case", case, "--seconds", str(seconds), "--threads", str(threads)]
    if ranks:
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *command]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case} on {ranks} ranks failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)  # what a started process measures
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        torch.set_num_threads(arguments.threads)
        ranks = Ranks() if Ranks.present() else None
        found = measured(cases()[arguments.case], arguments.seconds, ranks)
        if ranks is None or ranks.writes:
            print(json.dumps(found))
        return
    engines = {
        "simulator, 1 thread": (0, 1),
        f"simulator, {os.cpu_count()} threads": (0, os.cpu_count() or 1),
        f"{arguments.ranks} ranks, 1 thread each": (arguments.ranks, 1),
    }
    plan = [(case, engine) for case in cases() for _ in range(arguments.turns) for engine in engines]
    rows: list[dict[str, Any]] = [
        {"case": case, "engine": engine, **start(case, arguments.seconds, *engines[engine])}
        for case, engine in tqdm(plan, disable=None)
    ]
    frame = pd.DataFrame(rows).groupby(["case", "engine"], sort=False).median().reset_index()
    slowest = frame.groupby("case", sort=False)["rounds_per_second"].transform("first")
    frame["ratio_to_simulator_1_thread"] = frame["rounds_per_second"] / slowest
    frame = frame.round(3)
    print(frame.to_string(index=False))
    files.write_text(ROOT / "benchmarks" / "ranks.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

"""How fast is the simulation of many nodes? Rounds per second for n = 10, 100, 1000, and their ratio to n = 10.

Robust logistic regression on a9a, Dec-FedTrack with K = 1 and batch 32 on a lazy ring, where y has one coordinate per
sample for every node: the stack Y of 1000 nodes has 32 million numbers. Beside it the quadratic, whose x and y are
small. The best of several times counts. sum_ratio is what the memory allows: the same ratio for one sum of two such
stacks Y, into memory that is there. Writes benchmarks/many_nodes.csv.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from robustbench_dec import files
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.specs import table as spec

PROBLEMS: dict[str, dict[str, Any]] = {
    "robust_logistic (a9a)": {"name": "robust_logistic", "dataset": "a9a", "precision": "single"},
    "quadratic": {"name": "quadratic", "m": 32, "noise": 0.1},
}
NODES = (10, 100, 1000)


def seconds_per_round(problem: dict[str, Any], nodes: int, rounds: int, repeats: int) -> float:
    """The best mean time of `rounds` rounds."""
    network = spec.NetworkSpec(nodes=nodes)
    steps = {"eta_c": 0.1, "eta_d": "1e-2/32000", "K": 1, "batch": 32}
    run = spec.RunSpec(problem, network, "dec_fedtrack", steps, rounds, 0, [], 1, 1)
    trainer, net = run.build_trainer(), SimulatedNetwork(network.build())
    oracle = Oracle(run.build_problem(), nodes, 0, net.ledger)
    state = trainer.step(trainer.init(oracle, net), oracle, net)  # the first round is not measured
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(rounds):
            state = trainer.step(state, oracle, net)
        times.append((time.perf_counter() - began) / rounds)
    return min(times)


def seconds_per_sum(nodes: int, repeats: int) -> float:
    """The best time of one sum of two stacks with a row of 32,000 numbers a node."""
    A, B, C = torch.ones(3, nodes, 32_000)
    times = []
    for _ in range(5 * repeats):
        began = time.perf_counter()
        torch.add(A, B, out=C)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    rows = []
    for (name, problem), nodes in tqdm([(pair, n) for pair in PROBLEMS.items() for n in NODES], disable=None):
        seconds = seconds_per_round(problem, nodes, max(2, 300 // nodes), repeats)
        rows.append(
            {"problem": name, "nodes": nodes, "threads": torch.get_num_threads(), "ms_per_round": seconds * 1e3}
        )
    frame = pd.DataFrame(rows)
    frame["rounds_per_second"] = 1e3 / frame["ms_per_round"]
    first = frame.groupby("problem")["ms_per_round"].transform("first")
    frame["time_per_node_ratio"] = frame["ms_per_round"] / frame["nodes"] / (first / NODES[0])
    sums = {nodes: seconds_per_sum(nodes, repeats) / nodes for nodes in NODES}
    frame["sum_ratio"] = [sums[nodes] / sums[NODES[0]] for nodes in frame["nodes"]]
    print(frame.to_string(index=False))
    files.write_text(
        Path(__file__).with_suffix(".csv"), frame.to_csv(index=False, lineterminator="\n", float_format="%.3g")
    )


if __name__ == "__main__":
    main()

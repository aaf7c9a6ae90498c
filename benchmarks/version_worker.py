"""One version of the suite, asked for rounds of training over pipes by benchmarks/versions.py.

It is started with the version's folder as the only place of its imports, and knows the names of 0.1.0 and of today.
Reads one JSON line: {problem, problem_settings, trainer, settings, nodes}. Then, for every line with a number, trains
so many rounds and answers the seconds that they took; for the line "phi" it answers Phi at the mean x.
"""

import importlib
import json
import sys
import time
from typing import Any

import numpy as np


def ring(nodes: int, pi: float) -> np.ndarray:
    """The lazy random walk on a ring, as in the tables: pi on the diagonal, the rest to both neighbours."""
    W = pi * np.eye(nodes)
    for i in range(nodes):
        W[i, (i + 1) % nodes] += (1 - pi) / 2
        W[i, (i - 1) % nodes] += (1 - pi) / 2
    return W


def part(module: str, contract: str) -> Any:
    """The class of a shelf's file: the only subclass of its contract that is defined there."""
    found = importlib.import_module(module)
    base = getattr(importlib.import_module(f"robustbench_dec.{contract.lower()}"), contract)
    return next(
        value
        for value in vars(found).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module
    )


def main() -> None:
    from robustbench_dec.oracle import Oracle

    try:
        Net = importlib.import_module("robustbench_dec.networks.simulated").SimulatedNetwork
    except ModuleNotFoundError:
        Net = importlib.import_module("robustbench_dec.network").Network
    asked = json.loads(sys.stdin.readline())
    cls, settings = part(f"robustbench_dec.problems.{asked['problem']}", "Problem"), asked["problem_settings"]
    problem = cls.make(settings) if hasattr(cls, "make") else cls(**settings)
    trainer = part(f"trainers.{asked['trainer']}", "Trainer")(**asked["settings"])
    net = Net(ring(asked["nodes"], 1 / 3))
    oracle = Oracle(problem, net.nodes, 0, net.ledger)
    state = trainer.init(oracle, net)
    print(json.dumps(importlib.import_module("robustbench_dec").__file__), flush=True)
    for line in sys.stdin:
        if line.strip() == "phi":
            print(json.dumps(problem.exact(oracle.shards).phi(state.X.mean(0)).item()), flush=True)
            continue
        began = time.perf_counter()
        for _ in range(int(line)):
            state = trainer.step(state, oracle, net)
            net.ledger.rounds += 1
        print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()

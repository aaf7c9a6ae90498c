"""Where does a step's time go? Every operation above 3 % of a local step of training, and of a step of PGD.

By PyTorch's own profiler, on one thread: a round of each method of Table 2 after one round to warm up, and 4 steps of
PGD on 500 images. `share` is of the time inside PyTorch's operations, each without those that it calls. Writes
benchmarks/step_profile.csv.
"""

import argparse
import functools
import tomllib
from collections.abc import Callable
from typing import Any

import torch
from versions import ROOT, write  # type: ignore[import-not-found]

from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Classifier
from robustbench_dec.specs.run import NetworkSpec, RunSpec

NODES, PGD_STEPS, LEAST = 5, 4, 0.03


def profiled(work: Callable[[], object], steps: int) -> list[dict[str, Any]]:
    """A row for each operation that takes more than LEAST of the work; ms are per step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    found = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in found)
    return [
        {
            "operation": event.key.removeprefix("aten::"),
            "share": event.self_cpu_time_total / total,
            "ms": event.self_cpu_time_total / 1e3 / steps,
        }
        for event in found
        if event.self_cpu_time_total > LEAST * total
    ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    table = tomllib.loads((ROOT / "tables" / "table2.toml").read_text())
    rows = []
    for block in table["blocks"]:
        dataset = {"dataset": block["problem"]["dataset"]}
        for method in ("k_gt", "dec_fedtrack"):
            settings = block["trainers"][method]
            run = RunSpec(block["problem"], NetworkSpec(nodes=NODES), method, settings, 1, 0, [], 1, 1)
            trainer, net, problem = run.build_trainer(), SimulatedNetwork(run.network.build()), run.build_problem()
            assert isinstance(problem, Classifier)
            oracle = Oracle(problem, NODES, 0, net.ledger)
            state = trainer.step(trainer.init(oracle, net), oracle, net)
            found = profiled(functools.partial(trainer.step, state, oracle, net), settings["K"])
            rows += [dataset | {"work": method} | row for row in found]
        assert isinstance(problem, Classifier)
        images, labels = problem.images.train_images[:500].float() / 255, problem.images.train_labels[:500]
        attack = attack_named("pgd").make({"eps": 0.1, "steps": PGD_STEPS})
        pgd = functools.partial(attack.perturb, problem.module(state.X[0]), images, labels)
        pgd()
        rows += [dataset | {"work": "pgd"} | row for row in profiled(pgd, PGD_STEPS)]
    write(__file__, rows)


if __name__ == "__main__":
    main()

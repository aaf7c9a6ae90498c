"""What tables/methods.toml costs: CPU seconds of its parts on one core, and hours of the whole on 2 cores.

    python benchmarks/methods_cost.py            writes benchmarks/methods_cost.csv

CPU time of this process is taken, so that other work on the machine matters little. Parts: a call (one sample's
gradient pair), the accuracies at a run's end, one point of the curve, the three attacks.
"""

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path

import torch

from robustbench_dec import files
from robustbench_dec.attack import accuracy
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.ledger import Ledger
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Classifier
from robustbench_dec.specs import table

ROOT = Path(__file__).resolve().parents[1]
BATCH, IMAGES = 64, 200


def seconds(work: Callable[[], object], times: int = 2) -> float:
    """CPU seconds of the quickest of some goes."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    torch.set_num_threads(1)
    spec = table.read(ROOT / "tables" / "methods.toml")
    block = spec.blocks[1]
    run = spec.run(block, "dec_fedtrack", 0)
    problem, nodes = run.build_problem(), spec.network.nodes
    drawn = spec.tune.drawn if spec.tune is not None else None
    assert isinstance(problem, Classifier) and block.sfo is not None and drawn is not None
    oracle = Oracle(problem, nodes, 0, Ledger(nodes, 2 * nodes))
    X, Y = oracle.start()
    batch = oracle.draw(BATCH)
    call = seconds(lambda: oracle.grad(X, Y, batch)) / BATCH  # of all nodes
    model, images = problem.module(X[0]).eval(), problem.images
    look = seconds(lambda: accuracy(model, images.test_images[:1000], images.test_labels[:1000])) / 1000
    attacks = {}
    for each in block.attacks:
        (attack,) = each.build()
        some = images.test_images[:IMAGES], images.test_labels[:IMAGES]
        training = images.train_images, images.train_labels
        cost = seconds(lambda: evaluate(attack, model, *some, train=training), times=1)  # noqa: B023
        attacks[each.name] = cost if attack.universal else cost * (spec.n_examples or 10_000) / IMAGES
    curve = spec.curve_points * spec.curve_examples * look * (1 + 3 * 5)  # a clean pass, and 5 steps of PGD
    ends = look * ((nodes + 1) * len(images.test_labels) + len(images.validation_labels))
    of_a_run = {"calls": block.sfo * call, "end": ends, "curve": curve, **attacks}
    runs = sum(1 for _ in spec.runs())
    trials = drawn.trials * len(block.trainers)
    total = runs * sum(of_a_run.values()) + trials * (of_a_run["calls"] + sum(attacks.values()) + ends)
    rows = [*({"part": f"a run's {name}", "seconds": round(cost, 2)} for name, cost in of_a_run.items())]
    rows.append({"part": f"{runs} runs and {trials} trials, hours on 2 cores", "seconds": round(total / 7200, 2)})
    text = io.StringIO()
    writer = csv.DictWriter(text, ["part", "seconds"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(Path(__file__).with_suffix(".csv"), text.getvalue())
    print(text.getvalue())


if __name__ == "__main__":
    main()

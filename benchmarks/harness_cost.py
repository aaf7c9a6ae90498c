"""What a process of its own costs a user's attack: seconds for one network and two radii, apart and in the harness.

    python benchmarks/harness_cost.py [MODEL]

The same attack (examples/momentum.py) on 200 test images, by turns, `REPEATS` times each; the first start, which loads
torch, is measured by itself. Writes benchmarks/harness_cost.csv.
"""

import statistics
import sys
import time
from pathlib import Path

import torch
from versions import write  # type: ignore[import-not-found]

from robustbench_dec.attack import Attack
from robustbench_dec.attacking import attack_process
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.attacking.find_attack import attack_named, in_file
from robustbench_dec.store import zoo

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "momentum.py"
RADII = (0.05, 0.1)
IMAGES = 200
REPEATS = 5


def seconds(cls: type[Attack], entry: zoo.Entry) -> float:
    """One network at both radii."""
    images, model = entry.problem().images, entry.model()
    began = time.perf_counter()
    for eps in RADII:
        evaluate(cls.make({"eps": eps}), model, images.test_images[:IMAGES], images.test_labels[:IMAGES])
    return time.perf_counter() - began


def main() -> None:
    (entry,) = zoo.entries(sys.argv[1] if len(sys.argv) > 1 else "mnist/k_gt")
    torch.set_num_threads(1)
    began = time.perf_counter()
    theirs = attack_named(str(EXAMPLE))
    start = time.perf_counter() - began
    ours = in_file(str(EXAMPLE))
    here, there = [], []
    seconds(ours, entry)  # reads the images
    for _ in range(REPEATS):
        here.append(seconds(ours, entry))
        there.append(seconds(theirs, entry))
        attack_process._described.cache_clear()
        theirs = attack_named(str(EXAMPLE))
    more = statistics.median(t - h for h, t in zip(here, there, strict=True))
    row = {"network": entry.name, "radii": len(RADII), "images": IMAGES, "first_start_s": start}
    write(__file__, [row | {"here_s": statistics.median(here), "more_apart_s": more}], ["network"])


if __name__ == "__main__":
    main()

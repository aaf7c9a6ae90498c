"""What a process of its own costs a user's attack: seconds for one network and two radii, apart and in the harness.

    python benchmarks/harness_cost.py [MODEL]

The same attack (examples/momentum.py) on 200 test images, by turns, `REPEATS` times each; the first start, which loads
torch, is told by itself.
"""

import statistics
import sys
import time
from pathlib import Path

import torch

from robustbench_dec.attack import Attack
from robustbench_dec.attacking import attack_process
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.attacking.find_attack import attack_named, in_file
from robustbench_dec.store import zoo

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "momentum.py"
RADII = (0.05, 0.1)
REPEATS = 5


def seconds(cls: type[Attack], entry: zoo.Entry) -> float:
    """One network at both radii."""
    images, model = entry.problem().images, entry.model()
    began = time.perf_counter()
    for eps in RADII:
        evaluate(cls.make({"eps": eps}), model, images.test_images[:200], images.test_labels[:200])
    return time.perf_counter() - began


def main() -> None:
    (entry,) = zoo.entries(sys.argv[1] if len(sys.argv) > 1 else "mnist/k_gt")
    torch.set_num_threads(1)
    began = time.perf_counter()
    theirs = attack_named(str(EXAMPLE))
    print(f"first start: {time.perf_counter() - began:.2f} s (once a command)")
    ours = in_file(str(EXAMPLE))
    here, there = [], []
    seconds(ours, entry)  # reads the images
    for _ in range(REPEATS):
        here.append(seconds(ours, entry))
        there.append(seconds(theirs, entry))
        attack_process._described.cache_clear()
        theirs = attack_named(str(EXAMPLE))
    more = statistics.median(t - h for h, t in zip(here, there, strict=True))
    print(f"{entry.name}, {len(RADII)} radii: {statistics.median(here):.2f} s here, {more:+.2f} s in own processes")


if __name__ == "__main__":
    main()

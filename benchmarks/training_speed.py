"""How fast is one local step of all nodes? As a ratio to the bare forward and backward pass of ONE model.

For both networks of Table 2 and both methods, in one process, alternating the two so that a busy machine slows both:

    ratio = time(one local step of n = 5 nodes with 128 images each: draw, gradients, update) /
            time(forward and backward of one model on the same 640 images, already in memory as floats)

The bare pass differentiates what the method differentiates: the weights, and for Dec-FedTrack the perturbation too.
Writes benchmarks/training_speed.csv.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from robustbench_dec import files, spec, topology
from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.universal import Universal
from robustbench_dec.shelf import make

ROOT = Path(__file__).resolve().parents[1]


def local_step(oracle: Oracle, X: Tensor, Y: Tensor, dual: bool) -> Callable[[], object]:
    """Draw, differentiate and update all nodes, as the trainers do K times a round; they add corrections besides."""

    def step() -> object:
        batch = oracle.draw(128)
        if not dual:
            return X - 0.1 * oracle.grad_x(X, None, batch)
        Gx, Gy = oracle.grad(X, Y, batch)
        return X - 0.1 * Gx, oracle.project(Y + Gy)

    return step


def bare_pass(model: nn.Module, images: Tensor, labels: Tensor, dual: bool) -> Callable[[], object]:
    """Plain PyTorch: one model, one batch, one backward pass."""
    parameters = list(model.parameters())
    y = torch.zeros(images.shape[1:], requires_grad=True)

    def step() -> object:
        logits = model(images + y) if dual else model(images)
        return torch.autograd.grad(nn.functional.cross_entropy(logits, labels), [*parameters, *([y] if dual else [])])

    return step


def ratio(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median seconds of each, measured in turn, and the median of the pairwise ratios."""
    one(), other()
    pairs = []
    for _ in range(repeats):
        seconds = []
        for function in (one, other):
            began = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - began)
        pairs.append(seconds)
    firsts, seconds = zip(*pairs, strict=True)
    return statistics.median(firsts), statistics.median(seconds), statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    rows = []
    table = spec.read(ROOT / "tables" / "table2.toml")
    for block in tqdm(table.blocks, disable=None):
        problem = make(Universal, block.problem)
        net = Network(topology.build("ring", 5))
        oracle = Oracle(problem, 5, 0, net.ledger)
        X, Y = oracle.start()
        images, labels = (part.flatten(0, 1) for part in oracle.draw(128))  # (640, C, H, W), (640,)
        for method, dual in (("k_gt", False), ("dec_fedtrack", True)):
            model = problem.architecture.build()
            ours, bare, quotient = ratio(
                local_step(oracle, X, Y, dual), bare_pass(model, images.float() / 255, labels, dual), repeats
            )
            row = {"dataset": problem.dataset, "method": method, "threads": torch.get_num_threads()}
            rows.append(row | {"local_step_ms": ours * 1e3, "bare_ms": bare * 1e3, "ratio": quotient})
    frame = pd.DataFrame(rows).round(3)
    print(frame.to_string(index=False))
    files.write_text(ROOT / "benchmarks" / "training_speed.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

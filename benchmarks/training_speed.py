"""How fast is one local step of all nodes? As a ratio to the bare forward and backward pass of ONE model.

For both networks of Table 2 and both methods, in one process, alternating the two so that a busy machine slows both:

    ratio = time(one round of the trainer, n = 5 nodes with 128 images each) / K /
            time(forward and backward of one model on as many images, already in memory as floats)

A round has K = 5 local steps of all nodes (draw, gradients, corrections, update, projection) and one exchange. The bare
pass differentiates what the method differentiates: the weights, and for Dec-FedTrack the perturbation too. Beside it
stands vmap's time for the gradients of all nodes over that of our loop over nodes. Writes
benchmarks/training_speed.csv.
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
from robustbench_dec.shelf import find, make
from robustbench_dec.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
K, BATCH = 5, 128


def whole_round(trainer: Trainer, oracle: Oracle, net: Network) -> Callable[[], object]:
    """A round of the trainer, always from its start."""
    state = trainer.init(oracle, net)
    return lambda: trainer.step(state, oracle, net)


def gradients_by_loop(oracle: Oracle, dual: bool) -> Callable[[], object]:
    """The gradients of all nodes as the suite computes them."""
    X, Y = oracle.start()
    batch = oracle.draw(BATCH)
    return (lambda: oracle.grad(X, Y, batch)) if dual else (lambda: oracle.grad_x(X, None, batch))


def gradients_by_vmap(oracle: Oracle, dual: bool) -> Callable[[], object]:
    """The same gradients by torch.func."""
    X, Y = oracle.start()
    batch = oracle.draw(BATCH)
    loss = oracle.problem.loss
    if dual:
        both = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))
        return lambda: both(X, Y, batch)
    one = torch.func.vmap(torch.func.grad(lambda x, batch: loss(x, None, batch)))
    return lambda: one(X, batch)


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
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    rows = []
    table = spec.read(ROOT / "tables" / "table2.toml")
    for block in tqdm(table.blocks, disable=None):
        problem = make(Universal, block.problem)
        net = Network(topology.build("ring", 5))
        oracle = Oracle(problem, 5, 0, net.ledger)
        images, labels = (part.flatten(0, 1) for part in oracle.draw(BATCH))  # (640, C, H, W), (640,)
        for method, dual in (("k_gt", False), ("dec_fedtrack", True)):
            model = problem.architecture.build()
            bare = bare_pass(model, images.float() / 255, labels, dual)
            trainer = make(find("trainer", method, Trainer), block.trainers[method] | {"K": K, "batch": BATCH})
            ours, plain, quotient = ratio(
                whole_round(trainer, oracle, net), lambda bare=bare: [bare() for _ in range(K)], repeats
            )
            _, _, vmap = ratio(gradients_by_vmap(oracle, dual), gradients_by_loop(oracle, dual), repeats)
            row = {"dataset": problem.dataset, "method": method, "threads": torch.get_num_threads()}
            row |= {"local_step_ms": ours / K * 1e3, "bare_ms": plain / K * 1e3, "ratio": quotient}
            rows.append(row | {"vmap_over_loop": vmap})
    frame = pd.DataFrame(rows).round(3)
    print(frame.to_string(index=False))
    files.write_text(ROOT / "benchmarks" / "training_speed.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

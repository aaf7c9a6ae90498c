"""How fast is one local step of all nodes? As a ratio to the bare forward and backward pass of ONE model.

For both networks of Table 2 and both methods, in one process, measured in turn so that a busy machine slows all:

    ratio = time(one round of the trainer: K local steps of n = 5 nodes with 128 images each, and the exchange) / K /
            time(forward and backward of one model on as many images, 640, already in memory as floats)

The bare pass differentiates what the method differentiates: the weights, and for Dec-FedTrack the perturbation too.
vmap_ratio has the gradients of all nodes by torch's vmap (they alone, on a batch already drawn) in the place of the
round. Writes benchmarks/training_speed.csv.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from robustbench_dec import files
from robustbench_dec.models import ConvolutionalNetwork
from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Batch
from robustbench_dec.problems.universal import Universal
from robustbench_dec.specs import table as spec
from robustbench_dec.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]


def one_round(trainer: Trainer, oracle: Oracle, net: Network) -> Callable[[], object]:
    """What a run does all the time, from where it stands."""
    state = trainer.init(oracle, net)

    def step() -> None:
        nonlocal state
        state = trainer.step(state, oracle, net)

    return step


def by_vmap(model: ConvolutionalNetwork, X: Tensor, Y: Tensor, batch: Batch, dual: bool) -> Callable[[], object]:
    """The gradients of all nodes by one vectorised call.

    Without normalisation and in the usual order of memory: vmap refuses weights in channels-last order.
    """
    layers = [layer for conv in model.convolutions for layer in (conv, nn.MaxPool2d(2), nn.ReLU())]
    plain = nn.Sequential(*layers, nn.Flatten(), model.linear)
    names, parameters = zip(*plain.named_parameters(), strict=True)

    def loss(x: Tensor, y: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        parts = x.split([parameter.numel() for parameter in parameters])
        weights = {name: part.view_as(like) for name, part, like in zip(names, parts, parameters, strict=True)}
        inputs = images + y.view(images.shape[1:]) if dual else images
        return nn.functional.cross_entropy(torch.func.functional_call(plain, weights, (inputs,)), labels)

    gradients = torch.func.vmap(torch.func.grad(loss, (0, 1) if dual else (0,)))
    images, labels = batch
    inputs = images.float() / 255
    return lambda: gradients(X, Y, inputs, labels)


def bare_pass(model: nn.Module, images: Tensor, labels: Tensor, dual: bool) -> Callable[[], object]:
    """Plain PyTorch: one model, one batch, one backward pass."""
    parameters = list(model.parameters())
    y = torch.zeros(images.shape[1:], requires_grad=True)

    def step() -> object:
        logits = model(images + y) if dual else model(images)
        return torch.autograd.grad(nn.functional.cross_entropy(logits, labels), [*parameters, *([y] if dual else [])])

    return step


def seconds_in_turn(functions: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds of each call: one list per function, after one call of each that does not count."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, taken in zip(functions, seconds, strict=True):
            began = time.perf_counter()
            function()
            taken.append(time.perf_counter() - began)
    return seconds


def ratio(ours: Sequence[float], bare: Sequence[float]) -> float:
    """Median of the ratios of what was measured side by side."""
    return statistics.median(a / b for a, b in zip(ours, bare, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    rows = []
    table = spec.read(ROOT / "tables" / "table2.toml")
    runs = [table.run(block, method, seed=0) for block in table.blocks for method in ("k_gt", "dec_fedtrack")]
    for run in tqdm(runs, disable=None):
        problem, trainer, net = run.build_problem(), run.build_trainer(), run.network.connect(run.seed, None)
        assert isinstance(problem, Universal)
        oracle = Oracle(problem, net.nodes, run.seed, net.ledger)
        X, Y = oracle.start()
        K, size = (run.trainer_settings[name] for name in ("K", "batch"))
        batch = oracle.draw(size)
        images, labels = (part.flatten(0, 1) for part in batch)  # (640, C, H, W), (640,)
        rounds, vmapped, bare = seconds_in_turn(
            [
                one_round(trainer, oracle, net),
                by_vmap(problem.architecture.build(), X, Y, batch, trainer.has_dual),
                bare_pass(problem.architecture.build(), images.float() / 255, labels, trainer.has_dual),
            ],
            repeats,
        )
        local_steps = [seconds / K for seconds in rounds]
        medians = {
            f"{name}_ms": statistics.median(seconds) * 1e3
            for name, seconds in (("local_step", local_steps), ("vmap", vmapped), ("bare", bare))
        }
        row = {"dataset": problem.dataset, "method": run.trainer, "threads": torch.get_num_threads(), **medians}
        rows.append(row | {"ratio": ratio(local_steps, bare), "vmap_ratio": ratio(vmapped, bare)})
    frame = pd.DataFrame(rows).round(3)
    print(frame.to_string(index=False))
    files.write_text(ROOT / "benchmarks" / "training_speed.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

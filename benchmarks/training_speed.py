"""How fast is one local step of all nodes? Beside the arithmetic's limit, bare PyTorch, and version 0.1.0.

For both networks of Table 2 and both methods, on one thread (`--threads`), measured in turn so that a busy machine
slows all of them; a ratio is the median over the turns:

    local_step   a round of the trainer (K local steps of n = 5 nodes with 128 images each, and the exchange) / K
    old          the same by version 0.1.0, in a process of its own (as this version's is)
    bare         forward and backward of ONE plain model, as anyone would write it, on as many images (640) in memory
    limit        the multiplications of forward and backward (2 operations each) as square matrix products of size 1024

The gradients are those that the method needs: of the weights, and for Dec-FedTrack of the images too. Writes
benchmarks/training_speed.csv.
"""

import argparse
import statistics
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from versions import OLD, ROOT, Version, checkout, numbers, write  # type: ignore[import-not-found]

from robustbench_dec.architecture import Architecture
from robustbench_dec.cnn import ConvolutionalNetwork
from robustbench_dec.problems.universal import Universal

NODES = 5
SIDE = 1024


def built(architecture: Architecture) -> ConvolutionalNetwork:
    """The network without its normalisation."""
    inside = architecture.build().inside
    assert isinstance(inside, ConvolutionalNetwork)
    return inside


def plain_copy(architecture: Architecture) -> nn.Sequential:
    """The network of PyTorch's own layers, normalisation left out."""
    model = built(architecture)
    layers = [layer for conv in model.convolutions for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*layers, nn.Flatten(), model.linear)


def operations(architecture: Architecture, images: int, dual: bool) -> float:
    """Additions and multiplications of a forward and a backward pass; the latter is twice the former in every layer
    but the first, which has no gradient of its images to compute unless y needs it."""
    (height, width), total = architecture.shape[1:], 0.0
    for number, convolution in enumerate(built(architecture).convolutions):
        assert isinstance(convolution, nn.Conv2d)
        passes = 3 if number or dual else 2
        total += passes * 2 * height * width * convolution.weight.numel()
        height, width = height // 2, width // 2
    return images * (total + 3 * 2 * built(architecture).linear.weight.numel())


def bare_pass(model: nn.Module, images: Tensor, labels: Tensor, dual: bool) -> Callable[[], object]:
    """Plain PyTorch: one model, one batch, one backward pass."""
    parameters = list(model.parameters())
    y = torch.zeros(images.shape[1:], requires_grad=True)

    def step() -> object:
        logits = model(images + y) if dual else model(images)
        return torch.autograd.grad(nn.functional.cross_entropy(logits, labels), [*parameters, *([y] if dual else [])])

    return step


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measured(old: Path, block: dict[str, Any], method: str, turns: int, threads: int) -> dict[str, Any]:
    """One row of the CSV."""
    settings = {name: value for name, value in block["problem"].items() if name != "name"}
    settings |= {"classes": tuple(settings["classes"])} if "classes" in settings else {}
    problem, dual = Universal.make(settings), method == "dec_fedtrack"
    trainer = numbers(block["trainers"][method])
    asked = {"problem": "universal", "problem_settings": settings, "trainer": method, "settings": trainer}
    suites = [Version(folder, asked | {"nodes": NODES}, threads) for folder in (old, ROOT)]
    images = problem.images.train_images[: NODES * trainer["batch"]].float() / 255
    labels = problem.images.train_labels[: len(images)]
    bare = bare_pass(plain_copy(problem.architecture), images, labels, dual)
    A, B = torch.randn(2, SIDE, SIDE)
    share = operations(problem.architecture, len(images), dual) / (2 * SIDE**3)
    for warm in (*(lambda s=suite: s.seconds(1) for suite in suites), bare, lambda: A @ B):
        warm()
    rows = []
    for _ in range(turns):
        before, now = (suite.seconds(1) / trainer["K"] for suite in suites)
        rows.append((now, before, seconds(bare), seconds(lambda: A @ B) * share))
    for suite in suites:
        suite.close()
    row: dict[str, Any] = {"dataset": settings["dataset"], "method": method, "threads": threads}
    names = ("local_step", "old", "bare", "limit")
    row |= {
        f"{name}_ms": statistics.median(column) * 1e3
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    for place, name in enumerate(names[1:], 1):
        row[f"{name}_ratio"] = statistics.median(line[0] / line[place] for line in rows)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=OLD, help="a commit, or a folder with another version")
    parser.add_argument("--dataset", choices=("mnist", "cifar10"))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = tomllib.loads((ROOT / "tables" / "table2.toml").read_text())
    blocks = [block for block in table["blocks"] if options.dataset in (None, block["problem"]["dataset"])]
    with checkout(options.old) as old:
        rows = [
            measured(old, block, method, options.turns, options.threads)
            for block in tqdm(blocks, disable=None)
            for method in ("k_gt", "dec_fedtrack")
        ]
    write(__file__, rows, ["dataset", "method", "threads"])


if __name__ == "__main__":
    main()

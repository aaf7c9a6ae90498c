"""What a user would run instead: seconds per round and per attacked cell, beside other libraries, on the same cores.

    round   MNIST, 5 nodes, 5 local steps of 128 images, the same network: a round of K-GT here, of federated averaging
            in Flower's simulation (flwr with ray) and in fluke
    pgd     20 steps on test images in batches of 500, and fgsm: this suite's `evaluate` (which also judges, and spares
            the few images that are wrong anyway), torchattacks alone on a plain copy of the network, Foolbox, ART

Each library works in a process of its own, in turn with the suite, set up as its documentation says
(benchmarks/peer_worker.py), on one thread; Flower gives each client one core. `pip install -r
benchmarks/peers.txt` installs them, into an environment of their own, whose python --python names: what they want of
other packages does not go together with what torchattacks and the suite want.
A library that is not there, or fails, is named with its last line. Writes benchmarks/peers.csv.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import safetensors.torch
import torch
from torch import nn
from tqdm.auto import tqdm
from versions import ROOT, Version, numbers, write  # type: ignore[import-not-found]

from robustbench_dec import data
from robustbench_dec.architecture import Architecture
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.attacking.find_attack import attack_named

TRAINERS, ATTACKERS = ("flower", "fluke"), ("torchattacks", "foolbox", "art")
NODES, BATCH, STEPS, ROUNDS = 5, 128, 5, 6


def ours(model: nn.Module, images: int) -> dict[str, float]:
    """The suite's own seconds: of a round, and of both attacks on so many images."""
    table = tomllib.loads((ROOT / "tables" / "table2.toml").read_text())
    block = next(block for block in table["blocks"] if block["problem"]["dataset"] == "mnist")
    settings = {name: value for name, value in block["problem"].items() if name != "name"}
    asked = {"problem": "universal", "problem_settings": settings, "trainer": "k_gt", "nodes": NODES}
    suite = Version(ROOT, asked | {"settings": numbers(block["trainers"]["k_gt"])}, 1)
    suite.seconds(1)
    seconds = {"round": statistics.median(suite.seconds(1) for _ in range(ROUNDS))}
    suite.close()
    mnist = data.load("mnist")
    for name in ("pgd", "fgsm"):
        attack = attack_named(name).make({"eps": 0.1})
        began = time.perf_counter()
        evaluate(attack, model, mnist.test_images[:images], mnist.test_labels[:images])
        seconds[name] = time.perf_counter() - began
    return seconds


def briefly_trained() -> nn.Module:
    """The suite's network after 200 plain steps, which gets most images right: the wrong ones need no attack."""
    torch.manual_seed(0)
    mnist, model = (
        data.load("mnist"),
        Architecture(name="cnn2", shape=(1, 28, 28), classes=10, mean=(0.1307,), std=(0.3081,)).build(),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first in range(0, 200 * BATCH, BATCH):
        images, labels = mnist.train_images[first : first + BATCH], mnist.train_labels[first : first + BATCH]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images.float() / 255), labels).backward()
        optimizer.step()
    return model


def write_job(folder: Path, model: nn.Module, images: int) -> None:
    """What all libraries get: the same images and network."""
    mnist, samples = data.load("mnist"), NODES * BATCH * STEPS
    tensors = {f"weight{number}": weight.detach().contiguous() for number, weight in enumerate(model.parameters())}
    tensors |= {
        "train_images": mnist.train_images[:samples].float() / 255,
        "train_labels": mnist.train_labels[:samples],
    }
    tensors |= {"test_images": mnist.test_images[:images].float() / 255, "test_labels": mnist.test_labels[:images]}
    safetensors.torch.save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "job.safetensors"
    )


def theirs(library: str, folder: Path, python: str) -> dict[str, float]:
    """Seconds of a round (the median), or of all batches; a sentence on standard error where there are none."""
    worker = [python, str(ROOT / "benchmarks" / "peer_worker.py"), library, str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(worker, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        print(f"{library} gave no times: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: statistics.median(taken) if name == "round" else sum(taken) for name, taken in found.items()}


def _python(library: str, others: str) -> str:
    """The suite has torchattacks itself, whose requirements do not go together with Flower's."""
    return sys.executable if library == "torchattacks" else others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the other libraries")
    parser.add_argument("--libraries", nargs="+", choices=(*TRAINERS, *ATTACKERS), default=(*TRAINERS, *ATTACKERS))
    parser.add_argument("--images", type=int, default=1000, help="test images to attack; a cell has 10,000")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = briefly_trained()
        write_job(folder, model, options.images)
        for library in tqdm(options.libraries, disable=None):
            suite, other = ours(model, options.images), theirs(library, folder, _python(library, options.python))
            for work, seconds in other.items():
                row = {"library": library, "work": work, "images": 0 if work == "round" else options.images}
                row |= {"seconds": seconds, "suite_seconds": suite[work]}
                rows.append(row | {"ratio": seconds / suite[work]})
    write(__file__, rows, ["library", "work"])


if __name__ == "__main__":
    main()

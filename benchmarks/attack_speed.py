"""How fast is a cell of PGD? The suite's harness beside torchattacks alone on a plain copy of the same network.

Every image of the test part is attacked by torchattacks' PGD (eps 0.1, 20 steps), batch after batch: first by the
suite, with the judge before and after it, then by torchattacks alone on a network of PyTorch's own layers, which
attacks all images and judges none. So both are slowed alike where a machine is busy. One thread. `wrong`: how many
images are wrong in the end. Writes benchmarks/attack_speed.csv.
"""

import argparse
import time
from typing import Any

import torch
import torchattacks
from torch import Tensor, nn
from versions import write  # type: ignore[import-not-found]

from robustbench_dec.architecture import NormalisedNetwork
from robustbench_dec.attacking.evaluate import Part, attacked
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.cnn import ConvolutionalNetwork
from robustbench_dec.store import zoo

EPS = 0.1


class Plain(nn.Module):
    """The network as anyone would write it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        assert isinstance(network, NormalisedNetwork) and isinstance(network.inside, ConvolutionalNetwork)
        self.mean, self.std = network.mean, network.std
        layers = [layer for conv in network.inside.convolutions for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
        self.layers = nn.Sequential(*layers, nn.Flatten(), network.inside.linear)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers((images - self.mean) / self.std)
        return logits


class Turns(dict[int, Part]):
    """Told of every batch that the suite has done, it lets the other library attack the same batch."""

    def __init__(self, scene: Scene, other: torchattacks.PGD) -> None:
        super().__init__()
        self.scene, self.other, self.seconds, self.broken = scene, other, 0.0, 0

    def __setitem__(self, number: int, part: Part) -> None:
        super().__setitem__(number, part)
        images, labels, _ = self.scene.clean(number)
        began = time.perf_counter()
        moved = self.other(images, labels)
        self.seconds += time.perf_counter() - began
        self.broken += int((~self.scene.judge.right(moved, labels)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mnist/k_gt", help="of the zoo")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    entry = next(iter(zoo.entries(options.network)))
    images, model = entry.problem().images, entry.model()
    attack = attack_named("pgd").make({"eps": EPS, "steps": options.steps})
    other = torchattacks.PGD(
        Plain(entry.model()).eval(), eps=EPS, alpha=attack.settings()["alpha"], steps=options.steps
    )
    began = time.perf_counter()
    scene = Scene(model, images.test_images[: options.images], images.test_labels[: options.images])
    turns = Turns(scene, other)
    outcome = attacked(attack, scene, parts=turns)
    seconds = time.perf_counter() - began - turns.seconds
    row: dict[str, Any] = {"network": entry.name, "images": len(outcome.robust), "steps": options.steps, "threads": 1}
    row |= {"suite_seconds": seconds, "torchattacks_seconds": turns.seconds, "ratio": turns.seconds / seconds}
    row |= {"suite_wrong": int((~outcome.robust).sum()), "torchattacks_wrong": turns.broken}
    write(__file__, [row], ["network", "images"])


if __name__ == "__main__":
    main()

"""Indicators of attack failure (Pintor et al. 2022) that only the way of an attack shows, seen from its passes.

silent success   an adversarial image on the way that was not given back
unfinished       the loss, made monotone and rescaled to [0, 1], still moves over the last tenth of the passes

A pass counts where it holds all images that are attacked, in their order, as attacks without subsets do it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from robustbench_dec.attack import TOLERANCE, Attack, distances, predictions, slack
from robustbench_dec.attacking.evaluate import propose

MOVES = 0.05
"""What the rescaled loss may still move at the end."""

FEWEST = 10
"""Passes below which nothing is said about the loss."""


class Watched(nn.Module):
    """A network that remembers what it was asked; copies share the memory."""

    memory: ClassVar[list[tuple[Tensor, Tensor]]] = []

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        self.memory.append((images.detach().clone(), logits.detach().clone()))
        return logits


@dataclass(frozen=True)
class Way:
    """What was seen of an attack on its way."""

    images: int
    silent: int  # images that were broken on the way and given back right
    passes: int
    moved: float | None  # of the rescaled loss, over the last tenth of the passes; None where there are too few


def watch(attack: Attack, network: nn.Module, images: Tensor, labels: Tensor, seed: int = 0) -> Way:
    """Attack all images at once, and look at every pass."""
    Watched.memory.clear()
    try:
        proposed = propose(attack, Watched(network), images, labels, seed=seed)
        passes = [each for each in Watched.memory if len(each[0]) == len(images)]
    finally:
        Watched.memory.clear()
    broken = torch.zeros(len(images), dtype=torch.bool)
    losses = []
    for asked, logits in passes:
        inside = distances(asked - images, attack.norm) <= attack.eps + slack(attack.eps)
        inside &= ((asked >= -TOLERANCE) & (asked <= 1 + TOLERANCE)).flatten(1).all(1)
        broken |= inside & (logits.argmax(1) != labels)
        losses.append(nn.functional.cross_entropy(logits, labels).item())
    right = predictions(network, proposed) == labels
    return Way(len(images), int((broken & right).sum()), len(passes), _moved(losses))


def _moved(losses: list[float]) -> float | None:
    if len(losses) < FEWEST:
        return None
    rising = torch.tensor(losses).cummax(0).values
    span = (rising[-1] - rising[0]).item()
    before = rising[-1 - max(1, len(losses) // 10)]
    return 0.0 if span <= 0 else ((rising[-1] - before) / span).item()

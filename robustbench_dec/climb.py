"""Climb: one perturbation y for all images, step by step, as universal attacks on the shelf learn theirs.

    y <- P_eps(y + alpha_t d(y)),   d: a direction made of gradients on minibatches of training images

Iterates are judged on the same training images for every network, and what was seen on the way is told to the harness.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec.attack import Look, as_floats, device_of, tell

KEY = 2405_00965
"""Of the draw of the judged images."""

INNER = 10
"""Images of an inner step of SGA."""

Direction = Callable[[Tensor, float], Tensor]
"""d at y, for a step of alpha."""

Gradient = Callable[[Tensor], Tensor]

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of logits and labels, a scalar."""


def decaying(alpha: float, steps: int) -> list[float]:
    """Sizes of steps, from alpha to nearly 0."""
    return [alpha * (1 - t / steps) for t in range(steps)]


class Found(NamedTuple):
    """An iterate and its accuracy on the judged images."""

    accuracy: float
    number: int  # of the ascent: the first one of equals is taken
    y: Tensor


class Climb:
    """Ascents within a radius on one network, each judged on the same training images."""

    def __init__(self, eps: float, judged: int, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        self.eps, self.model, self.device = eps, model, device_of(model)
        self.pool, self.pool_labels = images, labels
        chosen = np.random.Generator(np.random.Philox(KEY)).permutation(len(images))[:judged]
        self.images, self.labels = as_floats(images[chosen]).to(self.device), labels[chosen].to(self.device)
        self.ascents = 0

    def up(self, start: Tensor, direction: Direction, alphas: Sequence[float], name: str, looks: int = 1) -> Found:
        """One ascent by steps of these sizes; the best of the iterates that were looked at."""
        y, steps, best = start.to(self.device), len(alphas), None
        looks = min(looks, steps)
        self.ascents += 1
        for t, alpha in enumerate(alphas):
            y = (y + alpha * direction(y, alpha)).clamp(-self.eps, self.eps)
            if (t + 1) * looks // steps > t * looks // steps:  # `looks` times, the last time at the end
                found = self.look(y, name, t + 1)
                if best is None or found.accuracy < best.accuracy:
                    best = found
        assert best is not None
        return best

    def look(self, y: Tensor, name: str, step: int) -> Found:
        """What y leaves right of the judged images; the harness is told."""
        loss, right = 0.0, 0
        for logits, labels in zip(self._answers(y), self.labels.split(1000), strict=True):
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum())
        tell(self.model, Look(name, step, loss / len(self.images), right / len(self.images), len(self.images)))
        return Found(right / len(self.images), self.ascents, y)

    def hit_most(self, y: Tensor) -> int:
        """The class in which the network sees most of the judged images."""
        seen = torch.cat([logits.argmax(1) for logits in self._answers(y.to(self.device))])
        return int(seen.bincount().argmax())

    def _answers(self, y: Tensor) -> Iterator[Tensor]:
        for images in self.images.split(1000):
            with torch.no_grad():
                yield self.model((images + y).clamp(0, 1))

    def averaged(self, size: int) -> Direction:
        """SGA's direction, with as many images as another step has."""

        def direction(y: Tensor, alpha: float) -> Tensor:
            inner, total = y, torch.zeros_like(y)
            for _ in range(max(1, round(size / INNER))):
                g = self.gradient(inner, nn.functional.cross_entropy, INNER)
                total += g
                inner = (inner + alpha * g.sign()).clamp(-self.eps, self.eps)
            return total.sign()

        return direction

    def gradient(self, y: Tensor, loss: Loss, size: int) -> Tensor:
        """grad_y of the loss on a minibatch of the training images."""
        chosen = torch.randint(len(self.pool), (min(size, len(self.pool)),))
        images, labels = as_floats(self.pool[chosen]).to(self.device), self.pool_labels[chosen].to(self.device)
        y = y.detach().requires_grad_()
        return torch.autograd.grad(loss(self.model((images + y).clamp(0, 1)), labels), y)[0]


def by_sign(gradient: Gradient) -> Direction:
    """The sign of g."""
    return lambda y, alpha: gradient(y).sign()


def by_momentum(gradient: Gradient, share: float = 0.9) -> Direction:
    """The sign of m <- share m + g / |g|_1."""
    m: Tensor | float = 0.0

    def direction(y: Tensor, alpha: float) -> Tensor:
        nonlocal m
        g = gradient(y)
        m = share * m + g / g.abs().sum().clamp_min(1e-30)
        return m.sign()

    return direction


def by_adam(gradient: Gradient) -> Direction:
    """Adam's direction."""
    m: Tensor | float = 0.0
    v: Tensor | float = 0.0
    t = 0

    def direction(y: Tensor, alpha: float) -> Tensor:
        nonlocal m, v, t
        g, t = gradient(y), t + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        return (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-12)

    return direction

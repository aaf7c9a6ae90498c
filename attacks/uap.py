"""UAP: ONE perturbation y for all images, the worst that several ascents find. It learns on training images only.

    search     `search` steps towards each class c from y = 0;   c* = the class whose y leaves the fewest images right
    away       g = grad_y mean_j cross_entropy(h(clip(a_j + y)), b_j)          per minibatch (Shafahi et al. 2020, SPGD)
    towards    g = - grad_y mean_j cross_entropy(h(clip(a_j + y)), c*)
    step       y <- P_eps(y + alpha_t d(g)),   alpha_t = rel_alpha eps (1 - t / steps), or constant without `decay`
    SGA        y <- P_eps(y + alpha_t sign(mean of inner gradients)): one outer step from the OLD y; the inner gradients
               are those along sign steps of alpha_t on minibatches of 10, which start at y (Liu et al. 2023)

d(g) is the sign of m <- 0.9 m + g / |g|_1 (`momentum`), the sign of g, or Adam's direction. After the search come
`restarts` times an ascent away and one towards c*, then `sga` of SGA, each with minibatches of its own and each from
the best y so far: ascents from one and the same y end several points above what such a chain reaches. Without a search
they start at y = 0, and then at random points, and all go away. Every ascent is judged at `looks` places of its way on
`judged` training images, the same ones for every network: the iterate that leaves the fewest right is the best one.

Radii of a sweep share the search with `anchor`, one of the radii: there the whole is done; the others go on from that
y, stretched by eps / anchor, with one time fewer of both kinds, towards the class that it hits most.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Look, Shift, as_floats, device_of, number_of_classes, tell
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import BatchSize, Count, Radius, Size, at_least

KEY = 2405_00965
"""Of the draw of the judged images."""

INNER = 10
"""Images of an inner step of SGA."""

Direction = Callable[[Tensor, float], Tensor]
"""d(g) at y, for a step of alpha."""


@dataclass(frozen=True)
class UAP(Attack):
    """Steps of the search and of the ascents, how many ascents, how often they are judged and on how many images."""

    title: ClassVar[str] = "UAP"
    universal: ClassVar[bool] = True
    standard: ClassVar[bool] = True

    step: Literal["sign", "adam", "momentum"] = "momentum"
    steps: Count = 250
    batch: BatchSize = 128
    rel_alpha: Size = 0.3
    decay: bool = True
    search: Annotated[int, at_least(0, "steps towards each class")] = 30
    restarts: Count = 4
    sga: Annotated[int, at_least(0, "ascents of SGA")] = 1
    looks: Count = 5
    judged: Count = 4000
    anchor: Radius | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anchor == 0:
            raise BadInput("UAP's anchor is a radius from which others start: more than 0")
        if self.anchor is not None and not self.search:
            raise BadInput("UAP's anchor shares a search over the radii; without a search leave it out")

    def groundwork(self) -> "UAP | None":
        return None if self.anchor in (None, self.eps) else replace(self, eps=self.anchor)

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The perturbation that leaves the fewest judged training images right, among all that were looked at."""
        ground = self.groundwork()
        if ground is not None:
            return self.fit_from(ground.fit(model, images, labels), model, images, labels)
        climb = _Climb(self, model, images, labels)
        zero = torch.zeros(images.shape[1:])
        if self.search:
            classes = range(number_of_classes(model, images))
            found = [climb.up(zero, climb.towards(c), self.search, f"search {c}", looks=1) for c in classes]
            target = min(classes, key=lambda c: found[c].accuracy)
            found.append(climb.on_from(found[target].y, target, self.restarts))
        else:
            starts = [zero, *(self.eps * (2 * torch.rand(zero.shape) - 1) for _ in range(self.restarts - 1))]
            found = [climb.up(y, climb.away(), self.steps, f"away {k}") for k, y in enumerate(starts)]
            found += [climb.up(zero, climb.averaged, self.steps, f"sga {k}") for k in range(self.sga)]
        return Shift(min(found).y.cpu(), eps=self.eps)

    def fit_from(self, shift: Shift, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The same from the anchor's perturbation, stretched to this radius."""
        climb = _Climb(self, model, images, labels)
        start = shift.y * (self.eps / shift.eps)
        hit = climb.hit_most(start)
        return Shift(climb.on_from(start, hit, max(1, self.restarts - 1)).y.cpu(), eps=self.eps)


class Found(NamedTuple):
    """An iterate and its accuracy on the judged images."""

    accuracy: float
    number: int  # of the ascent: the first one of equals is taken
    y: Tensor


class _Climb:
    """Ascents on one network."""

    def __init__(self, attack: UAP, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        self.attack, self.model, self.device = attack, model, device_of(model)
        self.pool, self.pool_labels = images, labels
        chosen = np.random.Generator(np.random.Philox(KEY)).permutation(len(images))[: attack.judged]
        self.images, self.labels = as_floats(images[chosen]).to(self.device), labels[chosen].to(self.device)
        self.ascents = 0

    def on_from(self, start: Tensor, target: int, restarts: int) -> Found:
        """Ascents of all kinds, one after the other, each from the best y so far."""
        kinds: list[tuple[str, Callable[[], Direction]]] = [
            ("away", self.away),
            ("towards", lambda: self.towards(target)),
        ]
        ascents = [(f"{name} {k}", begin) for k in range(restarts) for name, begin in kinds]
        ascents += [(f"sga {k}", lambda: self.averaged) for k in range(self.attack.sga)]
        best: Found | None = None
        for name, begin in ascents:
            found = self.up(start if best is None else best.y, begin(), self.attack.steps, name)
            best = found if best is None else min(best, found)
        assert best is not None
        return best

    def up(self, start: Tensor, direction: Direction, steps: int, name: str, looks: int | None = None) -> Found:
        """One ascent; the best of the iterates that were looked at."""
        y, eps, alpha = start.to(self.device), self.attack.eps, self.attack.rel_alpha * self.attack.eps
        looks, best = min(looks or self.attack.looks, steps), None
        self.ascents += 1
        for t in range(steps):
            alpha_t = alpha * (1 - t / steps) if self.attack.decay else alpha
            y = (y + alpha_t * direction(y, alpha_t)).clamp(-eps, eps)
            if (t + 1) * looks // steps > t * looks // steps:  # `looks` times, the last time at the end
                loss, right = self.judge(y)
                tell(self.model, Look(name, t + 1, loss, right, len(self.images)))
                if best is None or right < best.accuracy:
                    best = Found(right, self.ascents, y)
        assert best is not None
        return best

    def judge(self, y: Tensor) -> tuple[float, float]:
        """The mean loss on the judged images, and the share of them that is right."""
        loss, right = 0.0, 0
        for logits, labels in zip(self._answers(y), self.labels.split(1000), strict=True):
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum())
        return loss / len(self.images), right / len(self.images)

    def hit_most(self, y: Tensor) -> int:
        """The class in which the network sees most of the judged images."""
        seen = torch.cat([logits.argmax(1) for logits in self._answers(y.to(self.device))])
        return int(seen.bincount().argmax())

    def _answers(self, y: Tensor) -> Iterator[Tensor]:
        for images in self.images.split(1000):
            with torch.no_grad():
                yield self.model((images + y).clamp(0, 1))

    def away(self) -> Direction:
        """Up the loss of the true labels."""
        return _SMOOTHED[self.attack.step](lambda y: self._gradient(y, None, self.attack.batch))

    def towards(self, c: int) -> Direction:
        """Down the loss of class c for all images."""
        return _SMOOTHED[self.attack.step](lambda y: self._gradient(y, c, self.attack.batch))

    def averaged(self, y: Tensor, alpha: float) -> Tensor:
        """SGA's direction, with as many images as another step has."""
        inner, total, eps = y, torch.zeros_like(y), self.attack.eps
        for _ in range(max(1, round(self.attack.batch / INNER))):
            g = self._gradient(inner, None, INNER)
            total += g
            inner = (inner + alpha * g.sign()).clamp(-eps, eps)
        return total.sign()

    def _gradient(self, y: Tensor, towards: int | None, size: int) -> Tensor:
        chosen = torch.randint(len(self.pool), (min(size, len(self.pool)),))
        images, labels = as_floats(self.pool[chosen]).to(self.device), self.pool_labels[chosen].to(self.device)
        y = y.detach().requires_grad_()
        logits = self.model((images + y).clamp(0, 1))
        if towards is None:
            loss = nn.functional.cross_entropy(logits, labels)
        else:
            loss = -nn.functional.cross_entropy(logits, torch.full_like(labels, towards))
        return torch.autograd.grad(loss, y)[0]


Gradient = Callable[[Tensor], Tensor]


def _sign(gradient: Gradient) -> Direction:
    return lambda y, alpha: gradient(y).sign()


def _momentum(gradient: Gradient) -> Direction:
    m: Tensor | float = 0.0

    def direction(y: Tensor, alpha: float) -> Tensor:
        nonlocal m
        g = gradient(y)
        m = 0.9 * m + g / g.abs().sum().clamp_min(1e-30)
        return m.sign()

    return direction


def _adam(gradient: Gradient) -> Direction:
    m: Tensor | float = 0.0
    v: Tensor | float = 0.0
    t = 0

    def direction(y: Tensor, alpha: float) -> Tensor:
        nonlocal m, v, t
        g, t = gradient(y), t + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        return (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-12)

    return direction


_SMOOTHED: dict[str, Callable[[Gradient], Direction]] = {"sign": _sign, "momentum": _momentum, "adam": _adam}

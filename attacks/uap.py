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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Shift, number_of_classes
from robustbench_dec.climb import Climb, Direction, Found, Gradient, by_adam, by_momentum, by_sign, decaying
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import BatchSize, Count, Radius, Size, at_least


@dataclass(frozen=True)
class UAP(Attack):
    """Steps of the search and of the ascents, how many ascents, how often they are judged and on how many images."""

    title: ClassVar[str] = "UAP by ascents"
    universal: ClassVar[bool] = True
    successor: ClassVar[str] = "uap_annealed"

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
            found = [climb.up(zero, climb.towards(c), climb.alphas(self.search), f"search {c}") for c in classes]
            target = min(classes, key=lambda c: found[c].accuracy)
            found.append(climb.on_from(found[target].y, target, self.restarts))
        else:
            starts = [zero, *(self.eps * (2 * torch.rand(zero.shape) - 1) for _ in range(self.restarts - 1))]
            found = [climb.ascent(y, climb.away(), f"away {k}") for k, y in enumerate(starts)]
            found += [climb.ascent(zero, climb.by_sga(), f"sga {k}") for k in range(self.sga)]
        return Shift(min(found).y.cpu(), eps=self.eps)

    def fit_from(self, shift: Shift, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The same from the anchor's perturbation, stretched to this radius."""
        climb = _Climb(self, model, images, labels)
        start = shift.y * (self.eps / shift.eps)
        hit = climb.hit_most(start)
        return Shift(climb.on_from(start, hit, max(1, self.restarts - 1)).y.cpu(), eps=self.eps)


class _Climb(Climb):
    """Ascents of this attack's two kinds."""

    def __init__(self, attack: UAP, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        super().__init__(attack.eps, attack.judged, model, images, labels)
        self.attack = attack

    def on_from(self, start: Tensor, target: int, restarts: int) -> Found:
        """Ascents of all kinds, one after the other, each from the best y so far."""
        kinds: list[tuple[str, Callable[[], Direction]]] = [
            ("away", self.away),
            ("towards", lambda: self.towards(target)),
        ]
        ascents = [(f"{name} {k}", begin) for k in range(restarts) for name, begin in kinds]
        ascents += [(f"sga {k}", self.by_sga) for k in range(self.attack.sga)]
        best: Found | None = None
        for name, begin in ascents:
            found = self.ascent(start if best is None else best.y, begin(), name)
            best = found if best is None else min(best, found)
        assert best is not None
        return best

    def ascent(self, start: Tensor, direction: Direction, name: str) -> Found:
        return self.up(start, direction, self.alphas(self.attack.steps), name, self.attack.looks)

    def alphas(self, steps: int) -> list[float]:
        alpha = self.attack.rel_alpha * self.eps
        return decaying(alpha, steps) if self.attack.decay else [alpha] * steps

    def away(self) -> Direction:
        """Up the loss of the true labels."""
        return _SMOOTHED[self.attack.step](lambda y: self.gradient(y, nn.functional.cross_entropy, self.attack.batch))

    def towards(self, c: int) -> Direction:
        """Down the loss of class c for all images."""

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return -nn.functional.cross_entropy(logits, torch.full_like(labels, c))

        return _SMOOTHED[self.attack.step](lambda y: self.gradient(y, loss, self.attack.batch))

    def by_sga(self) -> Direction:
        return self.averaged(self.attack.batch)


_SMOOTHED: dict[str, Callable[[Gradient], Direction]] = {"sign": by_sign, "momentum": by_momentum, "adam": by_adam}

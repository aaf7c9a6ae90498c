"""UAP: ONE perturbation y for all images, by many short anneals of which the best go on. It learns on training images.

    step     m <- 0.5 m + g / |g|_1,   y <- P_eps(y + rho eps (1 - t / T) sign m),   t = 0, ..., T - 1
    pulled   g = grad_y mean_j [ce(h(clip(a_j + y)), b_j) - pull ce(h(clip(a_j + y)), c)]    away, and towards class c
    refined  g = - grad_y mean_j softmax(h(clip(a_j + y)))_b_j         the accuracy of guesses by h's own probabilities
    SGA      as in uap.py: one outer step along the mean of the gradients of inner steps (Liu et al. 2023)

    search   y = 0, pulled towards each class c;                              rho = 1,   T = search
    starts   y = 0, `starts` times for each of the `classes` best classes;    rho = 1,   T = steps
    kept     on from the `kept` best of these, pulled;                        rho = 0.5, T = 2 steps
    refine   on from the best y so far, minibatches twice as large;           rho = 1, 0.5, 0.3, T = 2 steps each
    sga      on from the best y so far, `sga` times, 8 times as many images a step; rho = 0.3, T = steps / 5

A first step as long as the radius, minibatches of 16 and a momentum of a half make the beginning of an anneal hot: it
forgets where it came from, and the first refining is nearly a new start. Where an anneal ends is known early, so many
short anneals and a few long ones find more than some of middle length. What is taken leaves the fewest right of all
that was looked at: of `judged` training images, the same ones for every network.

Radii of a sweep share this with `anchor`, one of the radii: there the whole is done; the others refine that y,
stretched by eps / anchor.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Shift, number_of_classes
from robustbench_dec.climb import Climb, Found, Loss, by_momentum, decaying
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import BatchSize, Count, Radius, Size, at_least

MOMENTUM = 0.5
HOT, WARM, COOL = 1.0, 0.5, 0.3
"""rho: the first step in radii, of anneals from y = 0, and of those that go on; refining goes through all three."""


@dataclass(frozen=True)
class UAPAnnealed(Attack):
    """Steps of the search and of a start, how many starts for how many classes, how many go on, rounds of refining."""

    title: ClassVar[str] = "UAP"
    universal: ClassVar[bool] = True
    standard: ClassVar[bool] = True

    steps: Count = 500
    search: Count = 200
    classes: Count = 2
    starts: Count = 6
    kept: Count = 3
    rounds: Count = 1
    sga: Annotated[int, at_least(0, "ascents of SGA")] = 1
    batch: BatchSize = 16
    pull: Size = 0.3
    looks: Count = 2
    judged: Count = 10_000
    anchor: Radius | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anchor == 0:
            raise BadInput("the anchor of uap_annealed is a radius from which others start: more than 0")

    def groundwork(self) -> "UAPAnnealed | None":
        return None if self.anchor in (None, self.eps) else replace(self, eps=self.anchor)

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The perturbation that leaves the fewest judged training images right, among all that were looked at."""
        ground = self.groundwork()
        if ground is not None:
            return self.fit_from(ground.fit(model, images, labels), model, images, labels)
        climb, zero = _Anneal(self, model, images, labels), torch.zeros(images.shape[1:])
        classes = range(number_of_classes(model, images))
        searched = [climb.pulled(zero, c, HOT, self.search, f"search {c}") for c in classes]
        finalists = sorted(classes, key=lambda c: searched[c])[: self.classes]
        starts = [
            (climb.pulled(zero, c, HOT, self.steps, f"start {k} to {c}"), c)
            for k in range(self.starts)
            for c in finalists
        ]
        starts = sorted(starts)[: self.kept]
        kept = [climb.pulled(found.y, c, WARM, 2 * self.steps, f"kept {k}") for k, (found, c) in enumerate(starts)]
        best = min(*searched, *(found for found, _ in starts), *kept)
        return Shift(climb.finish(best).y.cpu(), eps=self.eps)

    def fit_from(self, shift: Shift, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The same from the anchor's perturbation, stretched to this radius."""
        climb = _Anneal(self, model, images, labels)
        stretched = climb.look((shift.y * (self.eps / shift.eps)).to(climb.device), "stretched", 0)
        return Shift(climb.finish(stretched).y.cpu(), eps=self.eps)


class _Anneal(Climb):
    """Anneals of this attack's kinds."""

    def __init__(self, attack: UAPAnnealed, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        super().__init__(attack.eps, attack.judged, model, images, labels)
        self.attack = attack

    def pulled(self, start: Tensor, c: int, rho: float, steps: int, name: str) -> Found:
        """Away from the labels, with a pull towards class c."""

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            away = nn.functional.cross_entropy(logits, labels)
            return away - self.attack.pull * nn.functional.cross_entropy(logits, torch.full_like(labels, c))

        return self._anneal(start, loss, rho, steps, self.attack.batch, name)

    def finish(self, best: Found) -> Found:
        """Refined, then by SGA; each from the best y so far."""
        size, looks = 2 * self.attack.batch, self.attack.looks
        for k, rho in enumerate((HOT, WARM, COOL) * self.attack.rounds):
            refined = self._anneal(best.y, _guesses, rho, 2 * self.attack.steps, size, f"refine {k}", looks)
            best = min(best, refined)
        for k in range(self.attack.sga):
            alphas = decaying(COOL * self.eps, max(1, self.attack.steps // 5))
            best = min(
                best, self.up(best.y, self.averaged(8 * self.attack.batch), alphas, f"sga {k}", self.attack.looks)
            )
        return best

    def _anneal(self, start: Tensor, loss: Loss, rho: float, steps: int, size: int, name: str, looks: int = 1) -> Found:
        direction = by_momentum(lambda y: self.gradient(y, loss, size), MOMENTUM)
        return self.up(start, direction, decaying(rho * self.eps, steps), name, looks)


def _guesses(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean share of wrong guesses of who draws an answer from the network's own probabilities."""
    return 1 - logits.softmax(1).gather(1, labels[:, None]).mean()

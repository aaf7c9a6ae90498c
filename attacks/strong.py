"""Strong: the per-sample worst case of several attacks, a reference for any number of classes, by torchattacks.

    PGD  ->  APGD-CE  ->  FAB  ->  Square                        two or three classes
    PGD  ->  APGD-CE  ->  APGD-T  ->  FAB-T  ->  Square          four or more: AutoAttack's four (Croce, Hein 2020)

Each attacks only the images that all before it left right. AutoAttack's DLR loss is not defined for two classes (it
divides by the distance to the third largest logit), so the first line goes without it. PGD is the shelf's own, with the
same settings and, being first, the same random start: what it breaks stays broken, so no image that PGD breaks in the
same batch is right under `strong`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torchattacks
from torch import Tensor, nn

from robustbench_dec.attack import Attack, number_of_classes, predictions, put_back
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Count


@dataclass(frozen=True)
class Strong(Attack):
    """`steps` of APGD and FAB, `queries` of Square, after `pgd_steps` of PGD; untargeted FAB for few classes."""

    title: ClassVar[str] = "strong"

    steps: Count = 20
    queries: Count = 200
    pgd_steps: Count = 20
    rel_alpha: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rel_alpha * self.pgd_steps >= 1:
            raise BadInput(
                f"{self.pgd_steps} steps of {self.rel_alpha:g} eps cannot reach the radius; give strong more pgd_steps"
            )

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        result = images.clone()
        left = torch.arange(len(images), device=images.device)  # images that are still right
        for build in self._stages(number_of_classes(model, images)):
            # Clipped as the harness clips, so that what counts as broken here is broken there.
            proposed = put_back(images[left], build(model)(images[left], labels[left]), self.eps)
            result[left] = proposed
            left = left[predictions(model, proposed) == labels[left]]
            if not len(left):
                break
        return result

    def _stages(self, classes: int) -> Iterator[Callable[[nn.Module], Any]]:
        common: dict[str, Any] = {"norm": "Linf", "eps": self.eps}
        alpha = self.rel_alpha * self.eps
        yield lambda model: torchattacks.PGD(model, eps=self.eps, alpha=alpha, steps=self.pgd_steps, random_start=True)
        seed = int(torch.randint(2**31 - 1, ()))  # after PGD, so that its start is the shelf's; before APGD reseeds
        yield lambda model: torchattacks.APGD(model, steps=self.steps, seed=seed, loss="ce", **common)
        many = classes >= 4
        if many:
            yield lambda model: torchattacks.APGDT(model, steps=self.steps, seed=seed, n_classes=classes, **common)
        yield lambda model: torchattacks.FAB(
            model, steps=self.steps, seed=seed, multi_targeted=many, n_classes=classes, **common
        )
        yield lambda model: torchattacks.Square(model, n_queries=self.queries, seed=seed, **common)

"""FGSM (Goodfellow, Shlens, Szegedy 2015), by torchattacks:   a' = a + eps sign(grad_a loss)."""

from dataclasses import dataclass
from typing import ClassVar

import torchattacks
from torch import Tensor, nn

from robustbench_dec.attack import Attack


@dataclass(frozen=True)
class FGSM(Attack):
    """One step of the size of the radius."""

    title: ClassVar[str] = "FGSM"
    one_step: ClassVar[bool] = True
    standard: ClassVar[bool] = True

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        attacked: Tensor = torchattacks.FGSM(model, eps=self.eps)(images, labels)
        return attacked

"""FGSM (Goodfellow, Shlens, Szegedy 2015), by torchattacks:   a' = a + eps sign(grad_a loss)."""

from dataclasses import dataclass

import torchattacks
from torch import Tensor, nn

from robustbench_dec.attack import Attack


@dataclass(frozen=True)
class FGSM(Attack):
    """One step of the size of the radius."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        attacked: Tensor = torchattacks.FGSM(model, eps=self.eps)(images, labels)
        return attacked

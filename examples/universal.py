"""A universal attack of one's own: sign steps on minibatches, one perturbation y for all images.

y <- clip(y + eps / 10 sign(grad_y loss))      `steps` times; `robustbench-dec compare --attack universal.py`
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Shift


@dataclass(frozen=True)
class Universal(Attack):
    universal: ClassVar[bool] = True
    steps: int = 100

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        y = torch.zeros_like(images[0], requires_grad=True)
        for _ in range(self.steps):
            i = torch.randint(len(images), (128,))
            (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(images[i] + y), labels[i]), y)
            y = (y + self.eps / 10 * g.sign()).clamp(-self.eps, self.eps).detach().requires_grad_()
        return Shift(y.detach())

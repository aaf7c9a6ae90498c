"""An attack of one's own: gradient steps with momentum, normalised by the mean absolute gradient (Dong et al. 2018).

    m <- decay m + g / mean|g|,   a <- clip(P_eps(a + alpha sign(m)))      `steps` times, alpha = eps / 4

Copy this file anywhere; `robustbench-dec compare --attack path/to/momentum.py:Momentum` runs it against the zoo.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack


@dataclass(frozen=True)
class Momentum(Attack):
    """`eps` is inherited; the other fields are settings, for example `--set steps=40`."""

    steps: int = 10
    decay: float = 1.0

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        a, m = images.clone(), torch.zeros_like(images)
        for _ in range(self.steps):
            a.requires_grad_()
            loss = nn.functional.cross_entropy(model(a), labels, reduction="sum")
            (g,) = torch.autograd.grad(loss, a)
            m = self.decay * m + g / g.abs().mean((1, 2, 3), keepdim=True).clamp_min(1e-12)
            a = a.detach() + self.eps / 4 * m.sign()
            a = (images + (a - images).clamp(-self.eps, self.eps)).clamp(0, 1)
        return a

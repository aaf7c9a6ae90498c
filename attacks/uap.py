"""UAP by stochastic projected gradient ascent (SPGD; Shafahi et al. 2020), ONE perturbation y for all images:

    y <- P_eps(y + alpha d(g)),   g = grad_y mean_j min(cross_entropy(h(a_j + y), b_j), beta)     per minibatch

d(g) is g itself (`gradient`, as the paper prints it), its sign, or Adam's direction. y is fitted on training images,
where the worst of `restarts` starts is chosen too (the first start is y = 0, the others are random); at test time
a + y is clipped to [0, 1], and so it is here if `clamp`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Shift, accuracy, as_floats
from robustbench_dec.errors import BadInput

JUDGED = 2000
"""Training images on which restarts are compared."""


@dataclass(frozen=True)
class UAP(Attack):
    """`steps` minibatches of `batch` training images; alpha = rel_alpha eps unless it is given."""

    universal: ClassVar[bool] = True

    step: Literal["gradient", "sign", "adam"] = "sign"
    steps: int = 500
    batch: int = 128
    rel_alpha: float = 0.05
    alpha: float | None = None
    beta: float | None = None
    restarts: int = 1
    clamp: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "batch", "restarts"):
            if getattr(self, name) < 1:
                raise BadInput(f"UAP needs {name} of at least 1, not {getattr(self, name)}")
        if not 0 <= self.step_size < math.inf:
            raise BadInput(f"UAP needs a finite step size alpha of 0 or more, not {self.step_size}")
        if self.beta is not None and not 0 < self.beta < math.inf:
            raise BadInput(f"UAP needs a positive and finite beta, not {self.beta}")

    def settings(self) -> dict[str, Any]:
        settings = super().settings() | {"alpha": self.step_size}
        del settings["rel_alpha"]
        return settings

    @property
    def step_size(self) -> float:
        """alpha as it is used."""
        return self.rel_alpha * self.eps if self.alpha is None else self.alpha

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The perturbation that leaves the fewest training images right, among all restarts."""
        device = next(model.parameters()).device
        judged = as_floats(images[:JUDGED]).to(device)
        found = []
        for restart in range(self.restarts):
            y = self._ascend(model, images, labels, restart)
            found.append((accuracy(model, (judged + y).clamp(0, 1), labels[:JUDGED]), restart, y.cpu()))
        return Shift(self.eps, min(found, key=lambda item: item[:2])[2])

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        raise BadInput("a universal perturbation is fitted before it is applied: call fit first")

    def _ascend(self, model: nn.Module, images: Tensor, labels: Tensor, restart: int) -> Tensor:
        device = next(model.parameters()).device
        y = torch.zeros(images.shape[1:], device=device)
        if restart > 0:
            y = (torch.rand(images.shape[1:]).to(device) * 2 - 1) * self.eps
        moment, square = torch.zeros_like(y), torch.zeros_like(y)
        size = min(self.batch, len(images))
        for t in range(1, self.steps + 1):
            chosen = torch.randint(len(images), (size,))
            g = self._gradient(model, y, as_floats(images[chosen]).to(device), labels[chosen].to(device))
            if self.step == "sign":
                g = g.sign()
            elif self.step == "adam":
                moment, square = 0.9 * moment + 0.1 * g, 0.999 * square + 0.001 * g**2
                g = (moment / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-12)
            y = (y + self.step_size * g).clamp(-self.eps, self.eps)
        return y

    def _gradient(self, model: nn.Module, y: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        y = y.detach().requires_grad_()
        inputs = (images + y).clamp(0, 1) if self.clamp else images + y
        losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        if self.beta is not None:
            losses = losses.clamp(max=self.beta)
        return torch.autograd.grad(losses.mean(), y)[0]

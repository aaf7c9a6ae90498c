"""UAP by stochastic projected gradient ascent (SPGD; Shafahi et al. 2020), ONE perturbation y for all images:

    y <- P_eps(y + alpha_t d(g)),   g = grad_y mean_j min(cross_entropy(h(a_j + y), b_j), beta)     per minibatch

d(g) is g itself (`gradient`, as the paper prints it), its sign, Adam's direction, or the sign of m <- 0.9 m + g / |g|_1
(`momentum`). alpha_t = alpha, or alpha (1 - t / steps) for t = 0, 1, ... with `decay`. y is fitted on training images,
where the worst of all ascents is chosen too; at test time a + y is clipped to [0, 1], and so it is here if `clamp`.

Where ascents start: the first of `restarts` at y = 0, the others at random points. Such ascents end in many different
places where the strongest y sends all images to one class, as on MNIST. So with `targeted` = T > 0 there is a search
for that class first: T steps towards each class c, that is with -cross_entropy(h(a_j + y), c) for the loss; from the
y that leaves the fewest training images right, two ascents start, one by the loss above, one further towards its class.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Shift, accuracy
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import BatchSize, Count, Size, at_least, must

BETA = must(", the cap of the loss, must be a positive and finite number", lambda beta: 0 < beta < math.inf)
JUDGED = 2000
"""Training images on which the ends of ascents are compared."""


@dataclass(frozen=True)
class UAP(Attack):
    """`steps` minibatches of `batch` training images; alpha = rel_alpha eps unless it is given."""

    title: ClassVar[str] = "UAP"
    universal: ClassVar[bool] = True
    standard: ClassVar[bool] = True

    step: Literal["gradient", "sign", "adam", "momentum"] = "sign"
    steps: Count = 500
    batch: BatchSize = 128
    rel_alpha: Size = 0.05
    alpha: Size | None = None
    beta: Annotated[float, BETA] | None = None
    restarts: Count = 1
    clamp: bool = True
    decay: bool = False
    targeted: Annotated[int, at_least(0, "steps towards each class")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step == "gradient" and self.alpha is None:
            raise BadInput(
                "UAP's raw gradient steps need an alpha of their own: gradients have a scale that eps does not tell; "
                "alpha = 10 suits the suite's networks"
            )
        if self.targeted and self.restarts > 1:
            raise BadInput(f"UAP starts from its targeted search or at {self.restarts} points; leave one of them out")

    def settings(self) -> dict[str, Any]:
        settings = super().settings() | {"alpha": self.step_size}
        return {name: value for name, value in settings.items() if name != "rel_alpha"}

    @property
    def step_size(self) -> float:
        """alpha as it is used."""
        return self.rel_alpha * self.eps if self.alpha is None else self.alpha

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        """The perturbation that leaves the fewest training images right, among the ends of all ascents."""
        device = next(model.parameters()).device
        judged = images[:JUDGED].to(device)
        ends = self._targeted(model, images, labels, judged) if self.targeted else self._plain(model, images, labels)
        worst = min(ends, key=lambda y: accuracy(model, (judged + y).clamp(0, 1), labels[:JUDGED]))
        return Shift(worst.cpu(), eps=self.eps)

    def _plain(self, model: nn.Module, images: Tensor, labels: Tensor) -> Iterator[Tensor]:
        for restart in range(self.restarts):
            y = torch.zeros(images.shape[1:])
            if restart > 0:
                y = (torch.rand(images.shape[1:]) * 2 - 1) * self.eps
            yield self._ascend(model, images, labels, y, self.steps)

    def _targeted(self, model: nn.Module, images: Tensor, labels: Tensor, judged: Tensor) -> Iterator[Tensor]:
        found = []
        for c in range(model(judged[:1]).shape[1]):
            y = self._ascend(model, images, labels, torch.zeros(images.shape[1:]), self.targeted, towards=c)
            found.append((accuracy(model, (judged + y).clamp(0, 1), labels[:JUDGED]), c, y))
        _, c, y = min(found, key=lambda item: item[:2])
        yield self._ascend(model, images, labels, y, self.steps)
        yield self._ascend(model, images, labels, y, self.steps, towards=c)

    def _ascend(
        self, model: nn.Module, images: Tensor, labels: Tensor, y: Tensor, steps: int, towards: int | None = None
    ) -> Tensor:
        device = next(model.parameters()).device
        y = y.to(device)
        moment, square = torch.zeros_like(y), torch.zeros_like(y)
        size = min(self.batch, len(images))
        for t in range(1, steps + 1):
            chosen = torch.randint(len(images), (size,))
            g = self._gradient(model, y, images[chosen].to(device), labels[chosen].to(device), towards)
            if self.step == "sign":
                g = g.sign()
            elif self.step == "momentum":
                moment = 0.9 * moment + g / g.abs().sum().clamp_min(1e-30)
                g = moment.sign()
            elif self.step == "adam":
                moment, square = 0.9 * moment + 0.1 * g, 0.999 * square + 0.001 * g**2
                g = (moment / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-12)
            alpha = self.step_size * (1 - (t - 1) / steps) if self.decay else self.step_size
            y = (y + alpha * g).clamp(-self.eps, self.eps)
        return y

    def _gradient(self, model: nn.Module, y: Tensor, images: Tensor, labels: Tensor, towards: int | None) -> Tensor:
        y = y.detach().requires_grad_()
        inputs = (images + y).clamp(0, 1) if self.clamp else images + y
        wanted = labels if towards is None else torch.full_like(labels, towards)
        losses = nn.functional.cross_entropy(model(inputs), wanted, reduction="none")
        if towards is not None:
            losses = -losses
        elif self.beta is not None:
            losses = losses.clamp(max=self.beta)
        return torch.autograd.grad(losses.mean(), y)[0]

"""PGD (Kurakin et al. 2016; Madry et al. 2018), by torchattacks:

    a <- clip(P_eps(a + alpha sign(grad_a loss)))      `steps` times, from a random point of the ball

The library's own default alpha = 2/255 does not grow with the radius, which makes large radii look robust; here
alpha = rel_alpha eps unless it is given.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torchattacks
from torch import Tensor, nn

from robustbench_dec.attack import Attack, Look, tell
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import at_least


@dataclass(frozen=True)
class PGD(Attack):
    """`steps` steps of size alpha."""

    title: ClassVar[str] = "PGD"
    standard: ClassVar[bool] = True

    steps: Annotated[int, at_least(1, "step")] = 20
    rel_alpha: float = 0.25
    alpha: float | None = None
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.eps * (1 - 1e-9) <= self.step_size * self.steps < math.inf:
            raise BadInput(
                f"{self.steps} steps of alpha {self.step_size:g} cannot reach the radius {self.eps:g}; "
                "give more steps or a larger alpha"
            )

    @property
    def step_size(self) -> float:
        """alpha as it is used."""
        return self.rel_alpha * self.eps if self.alpha is None else self.alpha

    def settings(self) -> dict[str, Any]:
        return {"eps": self.eps, "steps": self.steps, "alpha": self.step_size, "random_start": self.random_start}

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        attack = torchattacks.PGD(
            model, eps=self.eps, alpha=self.step_size, steps=self.steps, random_start=self.random_start
        )
        step = itertools.count()

        def look(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
            with torch.no_grad():
                loss = nn.functional.cross_entropy(logits.detach(), labels).item()
                right = (logits.argmax(1) == labels).double().mean().item()
            tell(model, Look("pgd", next(step), loss, right, len(labels)))

        watch = model.register_forward_hook(look)
        try:
            attacked: Tensor = attack(images, labels)
        finally:
            watch.remove()
        return attacked

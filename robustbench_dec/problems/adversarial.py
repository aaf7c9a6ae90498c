"""Adversarial: adversarial training on single images (Madry et al. 2018), a yardstick from outside the paper.

    f_i(x) = (1/m) sum_j max_{||r_j||_inf <= eps} cross_entropy(h_x(a_ij + r_j), b_ij)

Each sample has a perturbation r_j of its own, found anew for every gradient by `steps` steps of PGD from r_j = 0:

    r_j <- P(r_j + rel_alpha eps sign(grad_r loss)),        P: onto the ball, and a_ij + r_j onto [0, 1]

The gradient in x is taken at the r_j that were found (Danskin). There is no y; each step costs a call per sample, so a
gradient costs steps + 1. Nothing in it is random: the same x and batch give the same bits on any process.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from robustbench_dec.attack import as_floats
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Count, must
from robustbench_dec.problem import Batch
from robustbench_dec.problems.universal import Universal

SHARE = must(
    ", the step as a share of the radius, must be a number above 0 and at most 2", lambda share: 0 < share <= 2
)


@dataclass(frozen=True)
class Adversarial(Universal):
    """Universal's images, network and splits; eps is the radius of each image's own perturbation."""

    dual_settings: ClassVar[tuple[str, ...]] = ()  # eps and clamp matter to methods without y too
    has_dual: ClassVar[bool] = False

    clamp: bool = True
    steps: Count = 5
    rel_alpha: Annotated[float, SHARE] = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.steps * self.rel_alpha >= 1 - 1e-9:
            raise BadInput(
                f"{self.steps} steps of {self.rel_alpha:g} eps cannot reach the radius; give adversarial more steps or "
                "a larger rel_alpha"
            )

    @property
    def inner_calls(self) -> int:
        return self.steps

    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        """Universal's x; y has no entries."""
        x0, _ = super().start(seed)
        return x0, torch.zeros(0)

    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        images, labels = batch
        inputs = as_floats(images, x.dtype).to(x.dtype)
        return nn.functional.cross_entropy(self.logits(x, self.attacked(x.detach(), inputs, labels)), labels)

    def attacked(self, x: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The images a_ij + r_j after all steps."""
        low, high = inputs - self.eps, inputs + self.eps
        if self.clamp:
            low, high = low.clamp(0, 1), high.clamp(0, 1)
        moved = inputs
        for _ in range(self.steps):
            with torch.enable_grad():
                moved = moved.detach().requires_grad_()
                loss = nn.functional.cross_entropy(self.logits(x, moved), labels, reduction="sum")
                (g,) = torch.autograd.grad(loss, moved)
            moved = torch.minimum(torch.maximum(moved.detach() + self.rel_alpha * self.eps * g.sign(), low), high)
        return moved

    def project(self, Y: Tensor) -> Tensor:
        return Y

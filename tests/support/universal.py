"""What tests of universal attacks share: a network that listens, and one whose strongest perturbation is known."""

from typing import cast

import torch
from torch import Tensor, nn

from robustbench_dec.attack import Look


class Listener(nn.Module):
    """A network that keeps what an attack tells, as the harness's copy does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.trace: list[Look] = []

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.model(images))


class Linear(nn.Module):
    """Three classes of grey 4x4 images. Only class 1 can be reached from everywhere by a perturbation of 0.1."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        w = torch.randn(3, 16, generator=generator)
        w[2] = w[2] / 100 - w[0] / 100  # hardly moves
        w[0] = -w[1]  # away from class 0 is towards class 1, and back
        self.w = nn.Parameter(w)
        self.b = nn.Parameter(torch.zeros(3))

    def forward(self, images: Tensor) -> Tensor:
        return (images - 0.5).flatten(1) @ self.w.T + self.b


def images_of_linear(network: Linear) -> tuple[Tensor, Tensor]:
    """200 images near grey: 100 of class 0 and 60 of class 1, told apart along w, and 40 of class 2, off it."""
    generator = torch.Generator().manual_seed(6)
    along = network.w[1].detach() / network.w[1].detach().norm()
    noise = torch.randn(200, 16, generator=generator) * 0.01
    noise -= (noise @ along)[:, None] * along
    labels = torch.tensor([0] * 100 + [1] * 60 + [2] * 40)
    place = torch.where(labels == 0, -0.1, 0.1)
    with torch.no_grad():
        network.b[2] = -10.0
    return (0.5 + noise + place[:, None] * along).view(-1, 1, 4, 4), labels

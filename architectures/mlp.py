"""A multilayer perceptron: the pixels in a row, two hidden layers with ReLU, the logits.

`width`: units of each hidden layer. The plainest example of a network of one's own.
"""

from typing import Annotated

from torch import Tensor, nn

from robustbench_dec.parts import at_least


class MLP(nn.Module):
    """Two hidden layers."""

    def __init__(
        self, shape: tuple[int, int, int], classes: int, width: Annotated[int, at_least(1, "unit")] = 128
    ) -> None:
        super().__init__()
        colours, height, rows = shape
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(colours * height * rows, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits

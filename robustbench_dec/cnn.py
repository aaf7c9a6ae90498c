"""What the networks cnn1, cnn2 and cnn3 on the shelf have in common: all but their channels."""

from typing import Annotated, ClassVar

from torch import Tensor, nn

from robustbench_dec.architecture import Shape
from robustbench_dec.convolution import pooled_convolution
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import must

Kernel = Annotated[int, must(" must be an odd number of pixels", lambda kernel: kernel >= 1 and kernel % 2 == 1)]


class ConvolutionalNetwork(nn.Module):
    """(convolution, 2x2 max-pooling, ReLU) per entry of `channels`, then one linear layer."""

    channels: ClassVar[tuple[int, ...]]

    def __init__(self, shape: Shape, classes: int, kernel: Kernel = 5) -> None:
        super().__init__()
        colours, height, width = shape
        scale = 2 ** len(self.channels)
        if min(height, width) < scale:
            raise BadInput(
                f"{type(self).__name__.lower()} halves images {len(self.channels)} times; {height}x{width} is too small"
            )
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel, padding=kernel // 2)
            for before, after in zip((colours, *self.channels), self.channels, strict=False)
        )
        self.linear = nn.Linear(self.channels[-1] * (height // scale) * (width // scale), classes)

    def forward(self, images: Tensor) -> Tensor:
        h = images
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d) and convolution.bias is not None
            h = pooled_convolution(h, convolution.weight, convolution.bias, convolution.kernel_size[0] // 2)
        return self.linear(h.flatten(1))

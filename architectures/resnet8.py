"""ResNet-8 with GroupNorm: a convolution, three residual blocks of two convolutions each, a linear layer.

    h <- relu(h' + g2(c2(relu(g1(c1(h))))))         h' = h, or a 1x1 convolution of it where the size changes

GroupNorm in the place of BatchNorm: it normalises every image by itself, so a node's network has no statistics that it
would have to share with its neighbours, and an image's logits do not depend on the images beside it.
K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016; Y. Wu, K. He, "Group
Normalization", ECCV 2018. `width`: channels of the first block; the others have two and four times as many.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from robustbench_dec.parts import must

GROUPS = 4

Width = Annotated[int, must(f" must be a multiple of {GROUPS}", lambda width: width >= 1 and width % GROUPS == 0)]


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, after)
        self.convolution2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, after)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        inside = self.norm2(self.convolution2(torch.relu(self.norm1(self.convolution1(h)))))
        return torch.relu(self.shortcut(h) + inside)


class ResNet8(nn.Module):
    """Eight layers: seven convolutions in a row and a linear one."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: Width = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], width, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, width), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            _Block(width, width, 1), _Block(width, 2 * width, 2), _Block(2 * width, 4 * width, 2)
        )
        self.linear = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        h: Tensor = self.blocks(self.stem(images))
        return self.linear(h.mean((2, 3)))

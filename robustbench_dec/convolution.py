"""A convolution of few colours with its 2x2 max-pooling and ReLU, as matrix products; for CPUs.

    h = max(0, b + max_{p in {0,1}^2} sum_{c,u} w[o, c, u] a[c, 2 v + p + u])       for every channel o and place v

CPU libraries block convolutions over input channels, and have nothing to block where there is one. Here the
four places p under one pooled place v become four groups of output channels, and the four kinds of pixels (rows and
columns even or odd) four groups of colours: what is left of a k x k kernel is one of s x s, s = ceil((k + 1) / 2), on
a quarter of the places. So there are 2.8 times fewer columns to copy than for the convolution itself (k = 5), they
are copied in whole lines, the product has 4 times more rows, and pooling compares long stretches of memory:

    O = V U         U (4 c s s, places) columns of an image,  V (4 o, 4 c s s) the kernel at its four places, else 0

A pooled place sends its gradient to the first of its largest values, as PyTorch's own pooling does. Every image is
computed for itself: its result does not depend on the images beside it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, pad

FEW = 1
"""Input channels up to which this is the faster way; with the 3 of colour images it was 1.2 to 1.4 times slower."""

PART = 64
"""Images that are worked on at a time, few enough for a core's cache."""


def pooled_convolution(images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """relu(max_pool2d(conv2d(images, weight, bias, padding), 2)), the faster way on this device."""
    # torch.func's transforms need a rule for each of them, which only PyTorch's own operations have.
    transformed = torch._C._are_functorch_transforms_active()
    if images.device.type != "cpu" or weight.shape[1] > FEW or transformed:
        return plain(images, weight, bias, padding)
    pooled: Tensor = _PooledConvolution.apply(images, weight, bias, padding)
    return pooled


def plain(images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """The same by PyTorch's own operations, in channels-last order, in which its pooling is several times faster.

    Pooling before the ReLU gives the same values as after it, on a quarter of the numbers.
    """
    # Images of one colour are in both orders at once, so the weights must say which one is meant.
    weight = weight.contiguous(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    return max_pool2d(conv2d(images, weight, bias, padding=padding), 2).relu_()


class _PooledConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        layout = ctx.layout = _Layout.of(images, weight, padding)
        kernels = layout.four_places(weight)
        shape = len(images), len(weight), *layout.pooled
        pooled = images.new_empty(shape)
        choices: tuple[Tensor, ...] = ()
        if any(ctx.needs_input_grad):
            choices = images.new_empty(shape), images.new_empty(len(images), 2, *shape[1:])
        for part in _parts(images):
            values = torch.matmul(kernels, layout.columns(images[part]))  # (n, 4 o, places)
            pairs = values.view(-1, 2, 2, *shape[1:])  # by row and column of the 2x2 window
            rows = pairs.amax(2)
            torch.maximum(rows[:, 0], rows[:, 1], out=pooled[part])
            if choices:
                # Positive where the second of two is the larger one. Floats, because PyTorch's gradient of the ReLU
                # takes these many at a time, whereas masks of bytes are taken one by one.
                torch.sub(rows[:, 1], rows[:, 0], out=choices[0][part])
                torch.sub(pairs[:, :, 1], pairs[:, :, 0], out=choices[1][part])
        pooled.add_(bias.view(-1, 1, 1)).relu_()
        ctx.save_for_backward(images, weight, bias, pooled, *choices)
        return pooled

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, bias, pooled, below, right = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated once more, which is PyTorch's task
            return (*_again(ctx.needs_input_grad, (images, weight, bias), ctx.layout.padding, gradient), None)
        layout, of_images, of_weight, of_bias = ctx.layout, None, None, None
        gradient = torch.ops.aten.threshold_backward(gradient.contiguous(), pooled, 0)
        kernels = layout.four_places(weight)
        if ctx.needs_input_grad[0]:
            of_images = torch.empty_like(images, memory_format=torch.contiguous_format)
        if ctx.needs_input_grad[1]:
            of_weight = torch.zeros_like(kernels)
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum((0, 2, 3))
        for part in _parts(images):
            values = _split(_split(gradient[part], below[part], 1), right[part], 2)
            values = values.view(len(values), len(kernels), -1)
            if of_images is not None:
                of_images[part] = layout.folded(torch.matmul(kernels.T, values))
            if of_weight is not None:
                of_weight += torch.bmm(layout.columns(images[part]), values.mT).sum(0).T
        return of_images, None if of_weight is None else layout.one_place(of_weight), of_bias, None


def _parts(images: Tensor) -> list[slice]:
    return [slice(first, first + PART) for first in range(0, len(images), PART)]


def _split(gradient: Tensor, second: Tensor, dim: int) -> Tensor:
    """The gradient of the larger of two values, in a new dimension for the two: the second one's where it is larger."""
    parts = gradient.new_empty(*gradient.shape[:dim], 2, *gradient.shape[dim:])
    torch.ops.aten.threshold_backward(gradient, second, 0, grad_input=parts.select(dim, 1))
    torch.sub(gradient, parts.select(dim, 1), out=parts.select(dim, 0))
    return parts


def _again(needed: tuple[bool, ...], inputs: tuple[Tensor, ...], padding: int, gradient: Tensor) -> list[Tensor | None]:
    """The gradients of those inputs that need one, by operations that can be differentiated again."""
    asked = [tensor for tensor, wanted in zip(inputs, needed, strict=False) if wanted]
    images, weight, bias = inputs
    found = iter(torch.autograd.grad(plain(images, weight, bias, padding), asked, gradient, create_graph=True))
    return [next(found) if wanted else None for wanted in needed[: len(inputs)]]


@dataclass(frozen=True)
class _Layout:
    """The sizes: images (n, colours, *size), a kernel k x k, s x s after the split into even and odd, pooled places."""

    colours: int
    size: tuple[int, int]
    kernel: int
    padding: int

    @staticmethod
    def of(images: Tensor, weight: Tensor, padding: int) -> "_Layout":
        _, colours, height, width = images.shape
        return _Layout(colours, (height, width), weight.shape[-1], padding)

    @property
    def s(self) -> int:
        return (self.kernel + 2) // 2

    @property
    def pooled(self) -> tuple[int, int]:
        """A last row or column that has no partner is not pooled."""
        height, width = ((size + 2 * self.padding - self.kernel + 1) // 2 for size in self.size)
        return height, width

    @property
    def halves(self) -> tuple[int, int]:
        """Even, or odd, rows and columns that the s x s kernel reads."""
        return self.pooled[0] + self.s - 1, self.pooled[1] + self.s - 1

    @property
    def _margins(self) -> tuple[int, int, int, int]:
        """What is added on the left and right, above and below; less than nothing is cut off."""
        below, right = (2 * half - size - self.padding for half, size in zip(self.halves, self.size, strict=True))
        return self.padding, right, self.padding, below

    def columns(self, images: Tensor) -> Tensor:
        """U: (n, c 2 2 s s, places)."""
        height, width = self.halves
        halves = pad(images, self._margins).view(len(images), self.colours, height, 2, width, 2)
        halves = halves.permute(0, 1, 3, 5, 2, 4).contiguous()
        windows = halves.unfold(-2, self.pooled[0], 1).unfold(-2, self.pooled[1], 1)  # (n, c, 2, 2, s, s, *pooled)
        return windows.reshape(len(images), 4 * self.colours * self.s**2, -1)

    def folded(self, columns: Tensor) -> Tensor:
        """The sum over all columns in which a pixel stands: the transpose of `columns`."""
        (height, width), (down, across) = self.halves, self.pooled
        columns = columns.view(len(columns), self.colours, 2, 2, self.s, self.s, down, across)
        halves = columns.new_zeros(*columns.shape[:4], height, width)
        for i in range(self.s):
            for j in range(self.s):
                halves[..., i : i + down, j : j + across].add_(columns[:, :, :, :, i, j])
        padded = halves.permute(0, 1, 4, 2, 5, 3).reshape(len(columns), self.colours, 2 * height, 2 * width)
        return pad(padded, [-margin for margin in self._margins])

    def four_places(self, weight: Tensor) -> Tensor:
        """V: (2 2 o, c 2 2 s s), the kernel in each place of a 2x2 window."""
        k, wide = self.kernel, 2 * self.s
        places = weight.new_zeros(2, 2, len(weight), self.colours, wide, wide)
        for i in range(2):
            for j in range(2):
                places[i, j, :, :, i : i + k, j : j + k] = weight
        places = places.view(4 * len(weight), self.colours, self.s, 2, self.s, 2)
        return places.permute(0, 1, 3, 5, 2, 4).reshape(4 * len(weight), -1)

    def one_place(self, places: Tensor) -> Tensor:
        """The sum of the kernels in the four places: the transpose of `four_places`."""
        k, wide, s = self.kernel, 2 * self.s, self.s
        places = places.reshape(2, 2, -1, self.colours, 2, 2, s, s).permute(0, 1, 2, 3, 6, 4, 7, 5)
        places = places.reshape(2, 2, -1, self.colours, wide, wide)
        return sum(places[i, j, :, :, i : i + k, j : j + k] for i in range(2) for j in range(2))  # type: ignore[return-value]

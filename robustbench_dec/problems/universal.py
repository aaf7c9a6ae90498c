"""Universal: a classifier against ONE perturbation that is added to every image (the paper's network experiment).

    f_i(x, y) = (1/m) sum_j cross_entropy(h_x(a_ij + y), b_ij),    ||y||_inf <= eps

As the paper writes it, a + y is not clamped to [0, 1] in training; `clamp = true` clamps it, as attacks must. With
`mirrored = true` every node holds the left-right mirror image of each of its images too, so m is twice as large; with
`normalised = false` the network sees the pixels as they are, instead of with mean 0 and deviation 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from robustbench_dec import data
from robustbench_dec.models import Architecture, ConvolutionalNetwork, flat_parameters, pixel_statistics
from robustbench_dec.parts import Radius, must
from robustbench_dec.problem import Batch, Classifier

KERNEL = must(" must be an odd number of pixels", lambda kernel: kernel >= 1 and kernel % 2 == 1)
MODELS = {(1, 8, 8): "cnn1", (1, 28, 28): "cnn2", (3, 32, 32): "cnn3"}
"""The network that is taken for images of a shape when none is named."""


@dataclass(frozen=True)
class Universal(Classifier):
    """Which images, which network, which radius of y, and how the images are dealt to the nodes."""

    dual_settings: ClassVar[tuple[str, ...]] = ("eps", "clamp")
    whole_data: ClassVar[tuple[str, ...]] = ("images",)
    dataset: str = "digits"
    classes: tuple[str, ...] | None = None
    model: str | None = None
    kernel: Annotated[int, KERNEL] = 5
    eps: Annotated[Radius, must(", the radius of y, must be at most 1 for images in [0, 1]", lambda eps: eps <= 1)] = (
        0.1
    )
    clamp: bool = False
    split: str = "iid"
    validation: float = 0.1
    mirrored: bool = False
    normalised: bool = True

    @cached_property
    def images(self) -> data.Dataset:
        """The data set, in memory as uint8."""
        return data.load(self.dataset, self.classes, validation=self.validation)

    @cached_property
    def architecture(self) -> Architecture:
        """The network's card; its normalisation, if any, comes from the training images."""
        shape = self.images.shape
        name = self.model or MODELS.get(shape, "cnn3")
        mean, std = pixel_statistics(self.images.train_images)
        if not self.normalised:
            mean, std = (0.0,) * len(mean), (1.0,) * len(std)
        return Architecture(name, shape, len(self.images.classes), mean, std, self.kernel)

    @cached_property
    def network(self) -> ConvolutionalNetwork:
        """The module whose parameters are swapped in for every evaluation."""
        return self.architecture.build()

    @cached_property
    def _layout(self) -> tuple[list[str], list[torch.Size], list[int]]:
        parameters = dict(self.network.named_parameters())
        shapes = [parameter.shape for parameter in parameters.values()]
        return list(parameters), shapes, [shape.numel() for shape in shapes]

    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        """PyTorch's own initialisation under `seed` for x; y = 0."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            x0 = flat_parameters(self.architecture.build())
        return x0, torch.zeros(torch.Size(self.images.shape).numel())

    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        images, labels = batch
        inputs = images.to(x.dtype) / 255
        if y is not None:
            inputs = inputs + y.view(inputs.shape[1:])
            if self.clamp:
                inputs = inputs.clamp(0, 1)
        return nn.functional.cross_entropy(self.logits(x, inputs), labels)

    def logits(self, x: Tensor, inputs: Tensor) -> Tensor:
        """h_x of images (b, C, H, W), which are floats: (b, classes)."""
        names, shapes, sizes = self._layout
        parts = {name: part.view(shape) for name, part, shape in zip(names, x.split(sizes), shapes, strict=True)}
        logits: Tensor = functional_call(self.network.to(x.device), parts, (inputs,))
        return logits

    def project(self, Y: Tensor) -> Tensor:
        return Y.clamp(-self.eps, self.eps)

    def shards(self, nodes: int, seed: int) -> Batch:
        index = data.split(self.images.train_labels, nodes, self.split, seed)
        images, labels = self.images.train_images[index], self.images.train_labels[index]  # (n, m, C, H, W), (n, m)
        if self.mirrored:
            return torch.cat([images, images.flip(-1)], 1), torch.cat([labels, labels], 1)
        return images, labels

    def module(self, x: Tensor) -> nn.Module:
        """One row of X as a network that attacks can attack."""
        return self.architecture.build(x)

"""Universal: a classifier against ONE perturbation that is added to every image (the paper's network experiment).

    f_i(x, y) = (1/m) sum_j cross_entropy(h_x(a_ij + y), b_ij),    ||y||_inf <= eps

As the paper writes it, a + y is not clamped to [0, 1] in training; `clamp = true` clamps it, as attacks must. With
`mirrored = true` every node holds the left-right mirror image of each of its images too, so m is twice as large; with
`normalised = false` the network sees the pixels as they are, instead of with mean 0 and deviation 1; a network of one's
own sees them as they are unless it is true. `model` is a network of the shelf `architectures/`, or path/to/net.py:Net;
its own settings (a CNN's `kernel`) stand beside the problem's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from robustbench_dec import data, trainable
from robustbench_dec.architecture import (
    Architecture,
    Blueprint,
    NormalisedNetwork,
    blueprint,
    flat_parameters,
    pixel_statistics,
)
from robustbench_dec.attack import as_floats
from robustbench_dec.errors import BadInput, raised
from robustbench_dec.parts import Radius, Settings, Source, must, settable
from robustbench_dec.problem import Batch, Classifier

MODELS = {(1, 8, 8): "cnn1", (1, 28, 28): "cnn2", (3, 32, 32): "cnn3"}
"""The network that is taken for images of a shape when none is named; they have the same settings."""

OTHERWISE = "cnn3"
"""The network for images of any other shape."""


@dataclass(frozen=True)
class Universal(Classifier):
    """Which images, which network, which radius of y, and how the images are dealt to the nodes."""

    dual_settings: ClassVar[tuple[str, ...]] = ("eps", "clamp")
    whole_data: ClassVar[tuple[str, ...]] = ("images",)
    places: ClassVar[tuple[str, ...]] = ("dataset", "model")
    dataset: str = "digits"
    classes: tuple[str, ...] | None = None
    model: str | None = None
    eps: Annotated[Radius, must(", the radius of y, must be at most 1 for images in [0, 1]", lambda eps: eps <= 1)] = (
        0.1
    )
    clamp: bool = False
    split: str = "iid"
    validation: float = 0.1
    mirrored: bool = False
    normalised: bool | None = None
    model_settings: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def make(cls, settings: Mapping[str, object]) -> Self:
        """From settings by name; those that the problem does not know are its network's."""
        own = {name: value for name, value in settings.items() if name in cls._own()}
        return super().make(own | {"model_settings": {name: settings[name] for name in settings if name not in own}})

    def __post_init__(self) -> None:
        super().__post_init__()
        whose = type(self).__name__
        object.__setattr__(self, "model_settings", self.blueprint.settings(self.model_settings, whose, self._own()))
        if self.normalised is None:
            object.__setattr__(self, "normalised", self.blueprint.source.sha256 is None)

    @classmethod
    def _own(cls) -> tuple[str, ...]:
        """The problem's settings, without its network's."""
        return tuple(name for name in settable(cls) if name != "model_settings")

    def settings(self) -> Settings:
        """Every setting by name, the network's own among them; a user's own file by the sha256 of its source."""
        source = self.blueprint.source
        named = {name: getattr(self, name) for name in self._own()} | dict(self.model_settings)
        if source.sha256 is not None:
            named |= {"model": source.label, "model_sha256": source.sha256}
        return named | self.data_identity

    @cached_property
    def data_identity(self) -> dict[str, str]:
        """What the identity of a run says of its data."""
        return data.identity(self.dataset, data.IMAGES)

    def check(self, nodes: int) -> None:
        _ = self.network
        data.split(self.images.train_labels, nodes, self.split)

    @cached_property
    def blueprint(self) -> Blueprint:
        """The class of the network, loaded once."""
        if self.model is None:  # which one, the images tell; they have the same settings
            return blueprint(OTHERWISE)._replace(source=Source("the network"))
        return blueprint(self.model)

    @cached_property
    def images(self) -> data.Dataset:
        """The data set, in memory."""
        if data.identity(self.dataset, data.IMAGES) != self.data_identity:
            raise BadInput(f"{self.dataset} was edited after it was asked for; the same command starts anew")
        return data.load(self.dataset, self.classes, validation=self.validation)

    @cached_property
    def architecture(self) -> Architecture:
        """The network's card; its normalisation, if any, comes from the training images."""
        shape, source = self.images.shape, self.blueprint.source
        mean, std = pixel_statistics(self.images.train_images)
        if not self.normalised:
            mean, std = (0.0,) * len(mean), (1.0,) * len(std)
        card = Architecture(
            name=source.label if self.model is not None else MODELS.get(shape, OTHERWISE),
            shape=shape,
            classes=len(self.images.classes),
            mean=mean,
            std=std,
            source_sha256=source.sha256,
            **self.model_settings,
        )
        return card.of(self.blueprint)

    @cached_property
    def network(self) -> NormalisedNetwork:
        """The module whose parameters are swapped in for every evaluation; a user's own is tried first."""
        if self.blueprint.source.sha256 is not None:
            trainable.check(self.architecture)
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
        inputs = as_floats(images, x.dtype).to(x.dtype)
        if y is not None:
            inputs = inputs + y.view(inputs.shape[1:])
            if self.clamp:
                inputs = inputs.clamp(0, 1)
        return nn.functional.cross_entropy(self.logits(x, inputs), labels)

    def logits(self, x: Tensor, inputs: Tensor) -> Tensor:
        """h_x of images (b, C, H, W), which are floats: (b, classes)."""
        names, shapes, sizes = self._layout
        parts = {name: part.view(shape) for name, part, shape in zip(names, x.split(sizes), shapes, strict=True)}
        try:
            logits: Tensor = functional_call(self.network.to(x.device), parts, (inputs,))
        except Exception as error:
            if self.blueprint.source.sha256 is None:
                raise
            raise BadInput(
                f"{self.blueprint.source.label} cannot answer images of shape {tuple(inputs.shape)}: {raised(error)}"
            ) from error
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

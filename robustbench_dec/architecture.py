"""Architecture: what a network is, so that anybody can bring one.

A network is a torch.nn.Module class that is built from the images' shape (C, H, W) and the number of classes; images in
[0, 1] in, logits out. Its parameters, in its own order, are the flat vector x. Further arguments that have a default
are its settings. `architectures/` has some, one per file; path/to/net.py:Net is a user's own.

    class Net(nn.Module):
        def __init__(self, shape, classes, width=64): ...
        def forward(self, images): ...                    # (b, C, H, W) -> (b, classes)
"""

import inspect
from collections.abc import Mapping
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, PrivateAttr, SerializerFunctionWrapHandler, model_serializer
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput, raised
from robustbench_dec.parts import Settings, Source, as_kind, hints_of

Shape = tuple[int, int, int]
"""Colours, height and width of an image."""

PLAIN = (bool, int, float, str)
"""Defaults that make an argument of a network a setting."""


class Blueprint(NamedTuple):
    """The class of a network and where it comes from."""

    cls: type[nn.Module]
    source: Source

    def settings(self, given: Mapping[str, object], whose: str = "", others: tuple[str, ...] = ()) -> Settings:
        """All its settings, those given as the types that it declares; `others` are names that are taken."""
        known = self.defaults()
        for name in known:
            if name in others:
                raise BadInput(f"{self.source.label} has a setting '{name}', as {whose} has; give it another name")
        for name in given:
            if name not in known:
                there = ", ".join([*others, *known])
                raise BadInput(f"{whose or self.source.label} has no setting '{name}'; there are: {there}")
        hints = hints_of(self.cls.__init__)
        return known | {
            name: as_kind(f"{self.source.label}'s", name, value, hints.get(name, type(known[name])))
            for name, value in given.items()
        }

    def defaults(self) -> Settings:
        """Its settings and their defaults; refused where it cannot be built from a shape and a number of classes."""
        kinds = inspect.Parameter
        try:
            parameters = list(inspect.signature(self.cls).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        in_order = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        lacking = [p.name for p in parameters if p not in in_order[:2] and _needed(p)]
        any_number = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
        if len(in_order) < 2 and not any_number:
            had = ", ".join(p.name for p in parameters) or "nothing"
            raise BadInput(
                f"{self.source.label} is built from {had}; a network is built as {self.cls.__name__}(shape, classes), "
                "from the images' shape (colours, height, width) and the number of classes"
            )
        if lacking:
            raise BadInput(
                f"{self.source.label} needs more than the images' shape and the number of classes to be built: "
                f"{', '.join(lacking)}; give it a default"
            )
        by_name = kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY
        more = [p for p in parameters if p not in in_order[:2] and p.kind in by_name]
        return {p.name: p.default for p in more if isinstance(p.default, PLAIN)}


def blueprint(name: str) -> Blueprint:
    """The class of a network by its name on the shelf, or by path/to/net.py:Net."""
    return Blueprint(*shelf.located("architecture", name, nn.Module))


class Architecture(BaseModel):
    """A network's card: all that is needed to build it anew and to read a flat vector x into it.

    Settings of the network stand beside the fields. `mean` and `std` of each colour are taken out of the images before
    the network sees them; a user's own file is told by its sha256.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    shape: Shape
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source_sha256: str | None = None
    _blueprint: Blueprint | None = PrivateAttr(None)

    def of(self, found: Blueprint) -> "Architecture":
        """The same card, with the class of a user's own file, as it was loaded."""
        if found.source.sha256 != self.source_sha256:
            raise BadInput(
                f"{found.source.label} was edited since this network was trained; its source had the sha256 "
                f"{str(self.source_sha256)[:12]}..., and has {str(found.source.sha256)[:12]}... now"
            )
        card = self.model_copy()
        card._blueprint = found
        return card

    def at(self, place: str | None) -> "Architecture":
        """The same card, with the class of a user's own file at that path, or in the current folder."""
        return self if self.source_sha256 is None else self.of(blueprint(place or self.name))

    @property
    def settings(self) -> Settings:
        """The network's own."""
        return dict(self.model_extra or {})

    def build(self, x: Tensor | None = None) -> "NormalisedNetwork":
        """The network with PyTorch's own initialisation, or with the parameters of the flat vector x."""
        network = NormalisedNetwork(self, self._built())
        if x is not None:
            expected = sum(parameter.numel() for parameter in network.parameters())
            if x.numel() != expected:
                raise BadInput(
                    f"a checkpoint for {self.name} with {self.classes} classes has {expected:,} parameters, "
                    f"but this one has {x.numel():,}; it belongs to another architecture"
                )
            network.to(device=x.device, dtype=x.dtype)
            vector_to_parameters(x.detach().clone(), network.parameters())
        return network.eval()

    def _built(self) -> nn.Module:
        if self.source_sha256 is not None and self._blueprint is None:
            return self.at(None)._built()
        found = self._blueprint if self.source_sha256 is not None else blueprint(self.name)
        assert found is not None
        settings = found.settings(self.settings)
        try:
            return found.cls(self.shape, self.classes, **settings)
        except BadInput:
            raise
        except Exception as error:  # whatever a user's network raises
            raise BadInput(
                f"{self.name} cannot be built for images of shape {self.shape} and {self.classes} classes: "
                f"{raised(error)}"
            ) from error

    def as_json(self) -> dict[str, object]:
        """Plain values for a JSON file."""
        return self.model_dump(mode="json")

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """A network of the shelf has no source to tell."""
        values: dict[str, object] = handler(self)
        return {name: value for name, value in values.items() if name != "source_sha256" or value is not None}


class NormalisedNetwork(nn.Module):
    """A network behind its normalisation, which is the first layer, so that attacks see raw pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, architecture: Architecture, inside: nn.Module) -> None:
        super().__init__()
        self.architecture = architecture
        self.register_buffer("mean", torch.tensor(architecture.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(architecture.std).view(-1, 1, 1), persistent=False)
        self.inside = inside

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inside((images - self.mean) / self.std)
        return logits


def flat_parameters(network: nn.Module) -> Tensor:
    """The parameters as one vector x (d,), in the network's own order."""
    return parameters_to_vector(network.parameters()).detach()


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each colour of images (N, C, H, W), on the scale [0, 1], to 4 digits."""
    means, deviations = [], []
    for colour in range(images.shape[1]):
        levels, share = _histogram(images[:, colour].flatten())
        mean = float((share * levels).sum())
        means.append(round(mean, 4))
        deviations.append(round(float((share * (levels - mean) ** 2).sum()) ** 0.5, 4))
    return tuple(means), tuple(deviations)


def _histogram(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Levels on the scale [0, 1], and the share of the pixels that have each of them; of floats, every pixel."""
    if pixels.dtype != torch.uint8:
        return pixels.double(), torch.tensor(1 / pixels.numel(), dtype=torch.float64)
    levels = torch.arange(256, dtype=torch.float64) / 255
    return levels, torch.bincount(pixels, minlength=256).double() / pixels.numel()


def _needed(parameter: inspect.Parameter) -> bool:
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return parameter.default is inspect.Parameter.empty and parameter.kind not in several

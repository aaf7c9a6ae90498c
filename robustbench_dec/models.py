"""The networks: images in [0, 1] in, logits out; the normalisation is the first layer, so attacks see raw pixels."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from robustbench_dec.convolution import pooled_convolution
from robustbench_dec.errors import BadInput

CHANNELS = {"cnn1": (8,), "cnn2": (16, 32), "cnn3": (16, 32, 64)}
"""Channels of each convolution, by the name of the network."""


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build a network anew and to read a flat parameter vector into it."""

    name: str
    shape: tuple[int, ...]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    kernel: int = 5

    def build(self, x: Tensor | None = None) -> "ConvolutionalNetwork":
        """The network with PyTorch's own initialisation, or with the parameters of the flat vector x."""
        network = ConvolutionalNetwork(self)
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

    def as_json(self) -> dict[str, object]:
        """Plain values for a JSON file."""
        return asdict(self)


class ConvolutionalNetwork(nn.Module):
    """(convolution, 2x2 max-pooling, ReLU) per entry of CHANNELS, then one linear layer."""

    mean: Tensor
    std: Tensor

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        if architecture.name not in CHANNELS:
            raise BadInput(f"no network '{architecture.name}'; there are: {', '.join(CHANNELS)}")
        colours, height, width = architecture.shape
        channels = CHANNELS[architecture.name]
        if min(height, width) < 2 ** len(channels):
            raise BadInput(f"{architecture.name} halves images {len(channels)} times; {height}x{width} is too small")
        self.architecture = architecture
        self.register_buffer("mean", torch.tensor(architecture.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(architecture.std).view(-1, 1, 1), persistent=False)
        kernel = architecture.kernel
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel, padding=kernel // 2)
            for before, after in zip((colours, *channels), channels, strict=False)
        )
        scale = 2 ** len(channels)
        self.linear = nn.Linear(channels[-1] * (height // scale) * (width // scale), architecture.classes)

    def forward(self, images: Tensor) -> Tensor:
        h = (images - self.mean) / self.std
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d) and convolution.bias is not None
            h = pooled_convolution(h, convolution.weight, convolution.bias, self.architecture.kernel // 2)
        return self.linear(h.flatten(1))


def flat_parameters(network: nn.Module) -> Tensor:
    """The parameters as one vector x (d,), in the network's own order."""
    return parameters_to_vector(network.parameters()).detach()


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each colour of uint8 images (N, C, H, W), on the scale [0, 1], to 4 digits."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for colour in range(images.shape[1]):
        share = torch.bincount(images[:, colour].flatten(), minlength=256).double() / images[:, colour].numel()
        mean = float((share * levels).sum())
        means.append(round(mean, 4))
        deviations.append(round(float((share * (levels - mean) ** 2).sum()) ** 0.5, 4))
    return tuple(means), tuple(deviations)

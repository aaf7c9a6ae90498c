"""Scene: a network that judges, and the images on which attacks meet it, with all that no attack and no radius changes.

What the network is like, the images as floats on its device and which of them it gets right are found once, and
serve a whole sweep over attacks and radii. The judge's condition is still checked around every batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustbench_dec.attack import answers, as_floats, classes_of, device_of
from robustbench_dec.attacking.model_use import condition, copied, digest_of, unpatched, untouched
from robustbench_dec.attacking.networks_that_lie import examine
from robustbench_dec.errors import BadInput


class Judge:
    """The network that decides. No attack gets it, and it answers from a new copy every time: it remembers nothing."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copied(model).eval()
        self._condition = condition(self.model)

    def answers(self, *stacks: Tensor) -> list[Tensor]:
        """The logits for several stacks of images; refused if this is not the network that it was."""
        copy = copied(self.model)
        with unpatched(copy, "the network"):
            answered = [answers(copy, images) for images in stacks]
        if condition(copy) != self._condition:
            raise BadInput(
                "the network that judges was changed during the attack, or changes itself when it answers; what was "
                "measured is thrown away"
            )
        return answered

    def right(self, images: Tensor, labels: Tensor) -> Tensor:
        """Which images (N,) it gets right."""
        return classes_of(self.answers(images)[0]) == labels


CHANGED = "the images or labels that judge were changed during the attack; what was measured is not kept"


class Clean(NamedTuple):
    """One batch before any attack, on the judge's device."""

    images: Tensor  # floats in [0, 1]
    labels: Tensor
    right: Tensor  # (n,) bool

    def sha256(self) -> str:
        """Of all of it."""
        return digest_of(zip(self._fields, self, strict=True))


class Scene:
    """One network and some images (uint8 or floats in [0, 1]), attacked in batches under one seed."""

    @torch.inference_mode(False)
    def __init__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, batch_size: int = 500
    ) -> None:
        check_images(images, labels)
        self.images, self.labels = images, labels
        self.shape = tuple(images.shape[1:])
        self.seed, self.batch_size = seed, batch_size
        self.device = device_of(model)
        self.judge = Judge(model)
        self._clean: dict[int, Clean] = {}
        self._given = [self._digest(number) for number in self.batches]  # before any attack
        self._found: dict[int, str] = {}
        first = as_floats(images[:batch_size]).to(self.device)
        check_box(first)
        copy = copied(self.judge.model)
        with unpatched(copy, "the network"), untouched(copy, seed):
            self.network = examine(copy, first, labels.to(self.device))
        if int(labels.max()) >= self.network.classes:
            raise BadInput(
                f"the network has {self.network.classes} classes, but there are labels up to {int(labels.max())}"
            )

    @property
    def batches(self) -> range:
        """Their numbers."""
        return range(-(-len(self.images) // self.batch_size))

    def clean(self, number: int) -> Clean:
        """A batch as it is before any attack; refused if somebody changed it. Whoever changes it takes a copy."""
        if number not in self._clean:
            if self._digest(number) != self._given[number]:
                raise BadInput(CHANGED)
            a, b = (each.to(self.device) for each in self._batch(number))
            a = as_floats(a)
            check_box(a)
            self._clean[number] = Clean(a, b, self.judge.right(a, b))
            self._found[number] = self._clean[number].sha256()
        elif self._clean[number].sha256() != self._found[number]:
            raise BadInput(CHANGED)
        return self._clean[number]

    def _batch(self, number: int) -> tuple[Tensor, Tensor]:
        part = slice(number * self.batch_size, (number + 1) * self.batch_size)
        return self.images[part], self.labels[part]

    def _digest(self, number: int) -> str:
        return digest_of(zip(("images", "labels"), self._batch(number), strict=True))

    def check(self, first: Tensor) -> None:
        """Refuse what was measured if the network answers the first batch otherwise than before (n,)."""
        a, b, _ = self.clean(0)
        if not self.judge.right(a, b).cpu().equal(first):
            raise BadInput(
                "the network answers the clean images otherwise after the attack than before; nothing is kept"
            )


def check_images(images: Tensor, labels: Tensor) -> None:
    """Refuse what are no images with labels."""
    if len(images) == 0:
        raise BadInput("there are no images to attack")
    if images.ndim != 4 or labels.shape != (len(images),):
        raise BadInput(
            f"expected images (N, C, H, W) and labels (N,), got {tuple(images.shape)} and {tuple(labels.shape)}"
        )


def check_box(images: Tensor) -> None:
    """Refuse images that are not in [0, 1]; NaN is not."""
    if not (images.min() >= 0 and images.max() <= 1):
        raise BadInput(
            f"attacks take images in [0, 1], these reach from {images.min().item():.3g} to {images.max().item():.3g}; "
            "put the normalisation inside the model"
        )

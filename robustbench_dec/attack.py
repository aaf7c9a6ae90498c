"""Attack: proposes perturbed images. Clipping, budget checks, random state and accuracy are not the attack's to decide.

Subclasses are frozen dataclasses whose fields are the strengths. Images are floats in [0, 1], models return logits.
"""

import contextlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec.errors import BadInput
from robustbench_dec.progress import bar

TOLERANCE = 1e-6
"""Floats after a projection read 0.10000002 for a radius of 0.1."""


@dataclass(frozen=True)
class Attack(ABC):
    """One attack at one radius."""

    norm: ClassVar[str] = "Linf"
    universal: ClassVar[bool] = False
    """Whether one perturbation serves all images; such an attack learns it in `fit`."""

    eps: float

    def __post_init__(self) -> None:
        if not 0 <= self.eps < math.inf:
            raise BadInput(f"eps, the radius of an attack, must be a number of 0 or more, not {self.eps}")

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> "Attack":
        """What universal attacks learn on (uint8) training images, once per radius; others have nothing to learn."""
        return self

    @abstractmethod
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """Images like `images`, meant to be misclassified."""

    def settings(self) -> dict[str, Any]:
        """Every strength, resolved to the value that is used."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Shift(Attack):
    """A known universal perturbation y (C, H, W), added to every image."""

    universal: ClassVar[bool] = True
    y: Tensor

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images + self.y.to(images)


@dataclass(frozen=True)
class Outcome:
    """What an attack did to a set of images."""

    clean: Tensor  # (N,) bool: right before the attack
    robust: Tensor  # (N,) bool: right under it, and for attacks on single images right before it too
    forwards: int  # images passed forward by the attack
    backwards: int
    flags: tuple[str, ...]
    perturbation: Tensor | None  # (C, H, W) of a universal attack

    @property
    def clean_accuracy(self) -> float:
        return self.clean.double().mean().item()

    @property
    def robust_accuracy(self) -> float:
        return self.robust.double().mean().item()


def evaluate(
    attack: Attack,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    train: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    batch_size: int = 500,
    progress: str | None = None,
) -> Outcome:
    """Attack images (uint8 or floats in [0, 1]) and tell which the model still gets right.

    Attacks on single images spare those that are wrong anyway; universal ones are fitted on `train` first and meet all.
    Every batch runs under its own random state, derived from `seed`.
    """
    if len(images) == 0:
        raise BadInput("there are no images to attack")
    counter = PassCounter(model)
    flags: set[str] = set()
    perturbation = None
    if attack.universal and not isinstance(attack, Shift):
        if train is None:
            raise BadInput(f"{type(attack).__name__} is universal: it needs training images to learn its perturbation")
        with untouched(counter, seed):
            fitted = attack.fit(counter, *train)
        if fitted.eps != attack.eps:
            name = type(attack).__name__
            raise BadInput(
                f"{name}.fit should return an attack of radius {attack.eps:g}, it returned one of {fitted.eps:g}"
            )
        attack = fitted
    if isinstance(attack, Shift):
        perturbation = attack.y
    clean, robust = [], []
    device = next(model.parameters()).device
    batches = range(0, len(images), batch_size)
    for number, first in enumerate(bar(batches, desc=progress, show=progress is not None, nested=1)):
        a, b = as_floats(images[first : first + batch_size]).to(device), labels[first : first + batch_size].to(device)
        check_box(a)
        right = predictions(model, a) == b
        # What is wrong already needs no attack; but a universal perturbation meets every image, and may even right one.
        met = torch.ones_like(right) if attack.universal else right
        still = right.clone()
        if met.any():
            proposed = propose(attack, counter, a[met], b[met], seed=seed + 1 + number, flags=flags)
            still[met] = predictions(model, proposed) == b[met]
        clean.append(right.cpu())
        robust.append(still.cpu())
    return Outcome(
        torch.cat(clean), torch.cat(robust), counter.forwards, counter.backwards, tuple(sorted(flags)), perturbation
    )


def propose(
    attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int, flags: set[str] | None = None
) -> Tensor:
    """The attack's images, put back into the ball and into [0, 1]; what had to be put back is told in `flags`."""
    flags = set() if flags is None else flags
    check_box(images)
    with untouched(model, seed):
        proposed = attack.perturb(model, images.clone(), labels)
    name = type(attack).__name__
    if not isinstance(proposed, Tensor) or proposed.shape != images.shape:
        shape = tuple(proposed.shape) if isinstance(proposed, Tensor) else type(proposed).__name__
        raise BadInput(f"{name}.perturb should return images of shape {tuple(images.shape)}, it returned {shape}")
    proposed = proposed.detach().to(images)
    if not proposed.isfinite().all():
        flags.add("nan")
        proposed = torch.where(proposed.isfinite(), proposed, images)
    if (proposed - images).abs().max() > attack.eps + TOLERANCE and not isinstance(attack, Shift):
        flags.add("budget")
    if (proposed.min() < -TOLERANCE or proposed.max() > 1 + TOLERANCE) and not attack.universal:
        flags.add("box")
    if isinstance(attack, Shift) and attack.y.abs().max() > attack.eps + TOLERANCE:
        flags.add("budget")
    return torch.clamp(images + (proposed - images).clamp(-attack.eps, attack.eps), 0, 1)


def check_box(images: Tensor) -> None:
    """Refuse images that are not in [0, 1]; NaN is not."""
    if not (images.min() >= 0 and images.max() <= 1):
        raise BadInput(
            f"attacks take images in [0, 1], these reach from {images.min().item():.3g} to {images.max().item():.3g}; "
            "put the normalisation inside the model"
        )


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Every submodule in eval mode, and afterwards back in the mode it was in."""
    training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in training:
            module.training = flag


@contextlib.contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Run an attack with the model in eval mode and its own random state, and leave everything as it was.

    Weights' requires_grad flags are off inside: attacks differentiate images only, which halves their backward pass.
    """
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    devices = list({p.device.index for p, *_ in parameters if p.device.type == "cuda"})
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with (
            eval_mode(model),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.random.fork_rng(devices=devices),
        ):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            for p, *_ in parameters:
                p.requires_grad_(False)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for p, flag, grad in parameters:
            p.requires_grad_(flag)
            p.grad = grad


class PassCounter(nn.Module):
    """A model that counts how many images an attack sends through it, forward and back."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = 0
        self.backwards = 0

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        self.forwards += len(images)
        if logits.requires_grad:
            logits.register_hook(self._count_backward)
        return logits

    def _count_backward(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """The class of the largest logit, by the model in eval mode."""
    with torch.no_grad(), eval_mode(model):
        logits: Tensor = model(images)
    return logits.argmax(1)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 1000) -> float:
    """The share of (uint8 or [0, 1]) images that the model gets right."""
    device = next(model.parameters()).device
    right = 0
    for first in range(0, len(images), batch_size):
        batch = as_floats(images[first : first + batch_size]).to(device)
        right += int((predictions(model, batch) == labels[first : first + batch_size].to(device)).sum())
    return right / len(images)


def as_floats(images: Tensor) -> Tensor:
    """uint8 images as float32 in [0, 1]; floats as they are."""
    return images.float() / 255 if images.dtype == torch.uint8 else images

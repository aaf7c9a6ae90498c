"""Passes: a network seen by an attack. Its images are counted, and afterwards nothing about it has changed."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec.errors import BadInput


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
    """A model that counts the images an attack sends through it, forward and back, and the gradients that vanish."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = 0
        self.backwards = 0
        self.gradients = 0
        self.zeros = 0

    def counts(self) -> tuple[int, int, int, int]:
        """Images forward, images back, gradients of images, zeros among them."""
        return self.forwards, self.backwards, self.gradients, self.zeros

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad:
            images.register_hook(self._count_gradient)
        logits: Tensor = self.model(images)
        self.forwards += len(images)
        if logits.requires_grad:
            logits.register_hook(self._count_backward)
        return logits

    def _count_backward(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)

    def _count_gradient(self, gradient: Tensor) -> None:
        self.gradients += len(gradient)
        self.zeros += int((gradient.flatten(1).abs().amax(1) == 0).sum())


def number_of_classes(model: nn.Module, images: Tensor) -> int:
    """How many logits the model gives, asked without being counted as a pass of the attack."""
    model = model.model if isinstance(model, PassCounter) else model
    with torch.no_grad(), eval_mode(model):
        logits = model(images[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"a model should return logits of shape (images, classes), this one returned {came} for 1 image")
    return logits.shape[1]


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """The class of the largest logit, by the model in eval mode."""
    with torch.no_grad(), eval_mode(model):
        logits: Tensor = model(images)
    return logits.argmax(1)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 1000) -> float:
    """The share of (uint8 or [0, 1]) images that the model gets right."""
    device = device_of(model)
    right = 0
    for first in range(0, len(images), batch_size):
        batch = as_floats(images[first : first + batch_size]).to(device)
        right += int((predictions(model, batch) == labels[first : first + batch_size].to(device)).sum())
    return right / len(images)


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are; the CPU for one without any."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def as_floats(images: Tensor) -> Tensor:
    """uint8 images as float32 in [0, 1]; floats as they are."""
    return images.float() / 255 if images.dtype == torch.uint8 else images

"""A network in an attack's hands: a copy, whose passes are counted, under a random state of the batch's own.

Afterwards nothing that the harness or its caller relies on has changed: random states, the default dtype, threads,
gradients and flags of the network, torch's own functions. What was changed is told.
"""

import contextlib
import copy
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_globals

from robustbench_dec.attack import Look, OutOfPasses, eval_mode
from robustbench_dec.errors import BadInput


@contextlib.contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Run an attack with the model in eval mode and its own random state, and leave everything as it was.

    Weights' requires_grad flags are off inside: attacks differentiate images only, which halves their backward pass.
    """
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    devices = list({p.device.index for p, *_ in parameters if p.device.type == "cuda"})
    python_state, numpy_state = random.getstate(), np.random.get_state()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
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
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for p, flag, grad in parameters:
            p.requires_grad_(flag)
            p.grad = grad


def copied(model: nn.Module) -> nn.Module:
    """A network like this one, that shares nothing with it."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever a user's network raises
        raise BadInput(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}); an attack gets a copy, so "
            "that it cannot change the network that judges it"
        ) from error


def digest(model: nn.Module) -> str:
    """The sha256 of all parameters and buffers, also of those that are not saved, with their names."""
    found = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        values = tensor.detach().cpu().contiguous()
        found.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        found.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
    return found.hexdigest()


def condition(model: nn.Module) -> tuple[Any, ...]:
    """All about a network that an attack has no business to change: tensors, modes, hooks, patched methods."""
    modules = [
        (name, type(m), m.training, "forward" in vars(m), [len(vars(m)[kind]) for kind in vars(m) if "_hooks" in kind])
        for name, m in model.named_modules()
    ]
    return digest(model), modules


class PassCounter(nn.Module):
    """A model that counts the images an attack sends through it, forward and back, and the gradients that vanish."""

    def __init__(self, model: nn.Module, classes: int, most: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.number_of_classes = classes
        self.most = most  # images that may pass, forward and back together
        self.forwards = 0
        self.backwards = 0
        self.gradients = 0
        self.zeros = 0
        self.trace: list[Look] = []

    def counts(self) -> tuple[int, int, int, int]:
        """Images forward, images back, gradients of images, zeros among them."""
        return self.forwards, self.backwards, self.gradients, self.zeros

    def forward(self, images: Tensor) -> Tensor:
        if self.most is not None and self.forwards + self.backwards + len(images) > self.most:
            raise OutOfPasses("the network was asked more often than --max-passes allows")
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


GUARDED = (torch, nn.functional, torch.Tensor, nn.Module, torch.autograd)
"""What a judgement is made with, in a process that an attack shares."""

HOOKS = (module_globals._global_forward_hooks, module_globals._global_forward_pre_hooks)
"""Hooks on every network of the process."""


class Patched(BadInput):
    """An attack replaced what judges it."""


@contextlib.contextmanager
def unpatched(model: nn.Module) -> Iterator[None]:
    """Put back what is patched inside, of torch and of the network's own classes; and tell it."""
    places: list[Any] = [*GUARDED, *{type(module) for module in model.modules()}]
    before = [(place, {name: value for name, value in vars(place).items() if callable(value)}) for place in places]
    known, hooks = [set(vars(place)) for place in places], [dict(each) for each in HOOKS]
    try:
        yield
    finally:
        changed = [
            (place, name, value)
            for place, names in before
            for name, value in names.items()
            if vars(place).get(name) is not value and not _by_torch(vars(place).get(name))
        ]
        for place, name, value in changed:
            setattr(place, name, value)
        for place, name in _added(places, known):  # a method that hides an inherited one
            delattr(place, name)
            changed.append((place, name, None))
        hooked = any(dict(each) != former for each, former in zip(HOOKS, hooks, strict=True))
        for each, former in zip(HOOKS, hooks, strict=True):
            each.clear()
            each.update(former)
    if changed or hooked:
        what = f"replaced {changed[0][0].__name__}.{changed[0][1]}" if changed else "left hooks on all networks"
        raise Patched(f"it {what}, by which it is judged; that was undone")


def _added(places: list[object], known: list[set[str]]) -> list[tuple[Any, str]]:
    return [
        (place, name)
        for place, former in zip(places, known, strict=True)
        for name in set(vars(place)) - former
        if isinstance(place, type) and callable(vars(place)[name]) and not _by_torch(vars(place)[name])
    ]


def _by_torch(value: object) -> bool:
    """Whether a function is torch's own, which replaces some of its functions when it loads more of itself."""
    code = getattr(value, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)

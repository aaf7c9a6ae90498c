"""Attacks that cheat or misbehave. The tests beside this file say what each of them must get."""

import atexit
import gc
import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec.attack import Attack, OutOfPasses, Shift


@dataclass(frozen=True)
class Honest(Attack):
    """One step along the gradient's sign: what an attack can get by fair means."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        images.requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(images), labels, reduction="sum"), images)
        return (images.detach() + self.eps * g.sign()).clamp(0, 1)


@dataclass(frozen=True)
class Idle(Attack):
    """Does nothing, and so deserves nothing."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images


class ZeroesWeights(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        return images


class SpoilsBuffers(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for buffer in model.buffers():
            buffer.fill_(7.0)
        return images


class LeavesHooks(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for module in list(model.modules())[1:]:
            module.register_forward_hook(lambda module, given, answer: -answer)
        return images


class TrainsMode(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        model.train()
        return images


class PatchesForward(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for module in list(model.modules())[1:]:
            module.forward = lambda images: torch.zeros(len(images), 10)
        return images


class PatchesClass(Idle):
    """Of every network of its kind, and so of the judge too, if that were here."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for module in list(model.modules())[1:]:
            type(module).forward = lambda self, images: torch.zeros(len(images), 10)
        return images


class PatchesTorch(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.Tensor.argmax = lambda self, *a, **k: torch.full((len(self),), -5)  # type: ignore[method-assign]
        torch.clamp = lambda a, *limits: a  # type: ignore[assignment]
        return images


class FindsTheJudge(Idle):
    """Looks for every network in memory."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for found in gc.get_objects():
            if issubclass(type(found), nn.Module):
                with torch.no_grad():
                    for p in found.parameters():
                        p.zero_()
        return images


class WritesInPlace(Attack):
    """Into the images and labels that it is given."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        labels += 1
        images.mul_(0)
        return images


class Reseeds(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.manual_seed(0), np.random.seed(0), random.seed(0)
        return images


class CallsExit(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        sys.exit(0)


class CallsOsExit(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        os._exit(0)


class KillsItself(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        os.kill(os.getpid(), 11)
        return images


class LeavesThreads(Idle):
    """That work on when it has returned, and an exit handler that waits for ever."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        def spoil() -> None:
            while True:
                with torch.no_grad():
                    for p in model.parameters():
                        p.zero_()
                time.sleep(0.001)

        threading.Thread(target=spoil).start()
        time.sleep(0.1)
        atexit.register(lambda: time.sleep(3600))
        return images


class ChangesSettings(Idle):
    """Of torch, for everyone in the process."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(7)
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        return images


class ReturnsNaN(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images * torch.nan


class ReturnsSomeNaN(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        images[::2] = torch.nan
        return images


class SwapsImages(Idle):
    """Gives each image another one's place, so that labels do not fit."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images.roll(1, 0)


class RoundsUp(Honest):
    """Over its radius by less than rounding explains."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        proposed = super().perturb(model, images.clone(), labels)
        return images + (proposed - images) * (1 + 3e-6)


class LeavesTheBall(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return 1 - images


class NeverEnds(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        while True:
            pass


class Grows(Idle):
    """In memory, until there is none."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        kept = []
        while True:
            kept.append(torch.ones(10_000_000))


class Prints(Idle):
    """Without end, and over all that was printed before."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for _ in range(200):
            print("\x1b[2Jrobust accuracy: 0.0 %" * 1000)
            print("robustbench-dec: you have won", file=sys.stderr)
        return images


class Equal(Tensor):
    """A tensor that is equal to everything, finite, in the ball and of any shape."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return (60, 1, 8, 8)

    def __eq__(self, other: object) -> Any:
        return torch.ones(1, dtype=torch.bool)

    __hash__ = Tensor.__hash__

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("asked, and could lie")


class ReturnsItsOwnTensor(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return (1 - images).as_subclass(Equal)


class TakesTooManyPasses(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for _ in range(100):
            model(images)
        return torch.zeros_like(images)


class StopsInTime(Honest):
    """Asks until it may not, and gives back what it has."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        proposed = super().perturb(model, images.clone(), labels)
        try:
            while True:
                model(images)
        except OutOfPasses:
            return proposed


class FalseUniversal(Honest):
    """An attack on single images that calls itself universal."""

    universal: ClassVar[bool] = True

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        return self


class NoFit(Honest):
    universal: ClassVar[bool] = True


class CleverShift(Shift):
    """A Shift that is another one for every image."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return Honest(self.eps).perturb(model, images, labels)


class ReturnsCleverShift(Idle):
    universal: ClassVar[bool] = True

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        return CleverShift(torch.zeros(images.shape[1:]), eps=self.eps)


class WideShift(Idle):
    universal: ClassVar[bool] = True

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        assert 0 < float(images.max()) <= 1 and images.is_floating_point()
        return Shift(torch.ones(images.shape[1:]))


class ShiftOfAnotherShape(Idle):
    universal: ClassVar[bool] = True

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        return Shift(torch.zeros(len(images), 8, 8))


class Empty(Attack):
    """Neither fit nor perturb."""


class Raises(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        raise ValueError("of my own")

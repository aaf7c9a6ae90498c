"""Attacks that cheat or misbehave. The tests beside this file say what each of them must get."""

import atexit
import copy
import gc
import json
import os
import random
import signal
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
    """Looks for every network in memory that is of the size of its own; the others belong to other tests."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        mine = sum(p.numel() for p in model.parameters())
        for found in gc.get_objects():
            if issubclass(type(found), nn.Module) and sum(p.numel() for p in found.parameters()) == mine:
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


# Radius and norm


class SetsItsOwnRadius(Honest):
    """Is asked for .1 and takes .3."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "eps", 3 * self.eps)


class TellsAnotherRadius(Honest):
    """Takes the radius it is asked for and has another one written down."""

    def settings(self) -> dict[str, Any]:
        return {"eps": self.eps / 10}


class NormByRadius(Honest):
    """L0 where nobody looks (radius 0), Linf elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "norm", "Linf" if self.eps else "L0")


class NormIsAProperty(Honest):
    @property
    def norm(self) -> str:  # type: ignore[override]
        return "Linf"


class GrowingRadius(Honest):
    """An object whose radius is .1 while it is printed, and 1 while it is judged."""

    def __getattribute__(self, name: str) -> Any:
        asking = sys._getframe(1).f_code.co_name
        return 1.0 if name == "eps" and asking == "accepted" else super().__getattribute__(name)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return 1 - images


class UniversalInAnotherNorm(Idle):
    """A y of L2 length 7 that says its radius, .9, is in L2: in Linf it would be inside."""

    universal: ClassVar[bool] = True
    norm: ClassVar[str] = "L2"

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        return Shift(torch.full(images.shape[1:], 0.9))


# Passes


class CallsTheNetworkInside(Idle):
    """Past the one who counts, if that is only the wrapper around it."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for _ in range(100):
            inside = list(model.modules())[1] if len(list(model.modules())) > 1 else model
            inside(images)
        return torch.zeros_like(images)


class GoesBackForEver(Idle):
    """One pass forward, a hundred back."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        logits = model(images.requires_grad_())
        for c in range(100):
            torch.autograd.grad(logits[:, c % 10].sum(), images, retain_graph=True)
        return torch.zeros_like(images)


class ForgesQuestions(Idle):
    """Asks the harness for gradients by itself, so that no pass forward is counted."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        (ask,) = (found for found in gc.get_objects() if type(found).__name__ == "Asking")
        for k in range(100):
            ask("gradient", images=images + k / 1e4, gradient=torch.ones(len(images), 10))
        return torch.zeros_like(images)


class AsksACopy(Idle):
    """A copy of the network, which could have a count of its own; the one inside, too."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for _ in range(100):
            copy.deepcopy(model)(images)
            copy.deepcopy(next(model.children(), model))(images)
        return torch.zeros_like(images)


class AsksManyAtOnce(Idle):
    """A hundred images in the place of each, where the count does not look for them."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.func.vmap(model)(images.expand(100, *images.shape))
        return torch.zeros_like(images)


class AsksInTheShapeOfOne(Idle):
    """All images as the colours of a single one: a network that flattens what it gets answers for each of them."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        assert len(model(images.expand(-1, 100, -1, -1)[:1])) == 100
        return torch.zeros_like(images)


# What a process tells


def forged(answer: dict[str, Any], **tensors: Tensor) -> None:
    """Send the harness this, in the place of an answer, and end."""
    from robustbench_dec.attacking import wire

    (serving,) = (found for found in gc.get_objects() if type(found).__name__ == "Serving")
    wire.send(serving.harness, answer, **tensors)
    time.sleep(60)


class ForgesNegativeCounts(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [-5, 0, 0, 0], "flags": []}, result=images)
        return images


class ForgesInfiniteCounts(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [float("inf"), 0, 0, 0], "flags": []}, result=images)
        return images


class ForgesFlags(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [1, 1, 0, 0], "flags": ["\x1b[2Jyou have won"]}, result=images)
        return images


class ForgesPraise(Idle):
    """A flag of its own making."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [1, 1, 0, 0], "flags": ["certified"]}, result=images)
        return images


class PraisesItself(Idle):
    def remarks(self) -> tuple[str, ...]:
        return ("certified",)


class ForgesSmallFloats(Idle):
    """Of 8 bits, with which little can be computed."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [0, 0, 0, 0], "flags": []}, result=images.to(torch.float8_e4m3fn))
        return images


class ForgesDepth(Idle):
    """JSON so deep that its reader gives up."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        import safetensors.torch

        (serving,) = (found for found in gc.get_objects() if type(found).__name__ == "Serving")
        data = safetensors.torch.save({"result": images}, {"words": "[" * 200_000})
        serving.harness.sendall(len(data).to_bytes(8, "little") + data)
        time.sleep(60)
        return images


class ForgesEndlessShapes(Idle):
    """A tensor without numbers, of a shape whose size no one can count."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        (serving,) = (found for found in gc.get_objects() if type(found).__name__ == "Serving")
        shape = {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}
        header = json.dumps({"__metadata__": {"words": "{}"}, "result": shape}).encode()
        data = len(header).to_bytes(8, "little") + header
        serving.harness.sendall(len(data).to_bytes(8, "little") + data)
        time.sleep(60)
        return images


class ForgesIntegers(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        forged({"counts": [0, 0, 0, 0], "flags": []}, result=images.long())
        return images


class SaysControlCharacters(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        raise ValueError("\x1b[2J\x1b[1;1H0.0 % robust\u202e\x07")


class CannotBeToldWhatItRaised(Idle):
    """An exception whose text raises another one."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        raise Mute


# Processes


class LeavesADaemon(Idle):
    """A process with a session of its own, whose parent is gone: it outlives the attack's group."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writing, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        with open(os.environ["HOSTILE_DAEMON"], "w") as file:
            file.write(os.read(reading, 20).decode())
        return images


class KillsItsParent(Idle):
    """The process that starts attacks; the harness asks it to end this one."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        os.kill(os.getppid(), 9)
        time.sleep(60)
        return images


class StopsItsParent(Idle):
    """It is not gone, and never answers."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(600)
        return images


class GrowsInAChild(Idle):
    """Takes memory in a process that is not the one that is looked at."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        if os.fork() == 0:
            if os.fork() == 0:
                kept = torch.ones(600_000_000)
                time.sleep(600 + len(kept))
            os._exit(0)
        time.sleep(600)
        return images


# In the caller's process


class PatchesAProperty(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.Tensor.shape = property(lambda self: (60, 1, 8, 8))  # type: ignore[assignment]
        return images


class PatchesEquality(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        torch.Tensor.__eq__ = lambda self, other: torch.zeros(len(self), dtype=torch.bool)  # type: ignore
        return images


class PatchesTheSuite(Idle):
    """The function that puts images back into the ball."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        from robustbench_dec.attacking import evaluate

        evaluate.put_back = lambda images, proposed, eps, norm: 0 * images  # type: ignore
        return images


class SwapsCode(Idle):
    """Of a function of the suite, which stays the same object."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        from robustbench_dec.attack import classes_of

        classes_of.__code__ = (lambda logits: logits.argmin(1)).__code__
        return images


class PatchesDigests(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        import hashlib

        hashlib.sha256 = lambda *a: hashlib.md5()
        return images


class LeavesAMode(Idle):
    """That has a say in every operation of torch."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        from torch.overrides import TorchFunctionMode

        class Lies(TorchFunctionMode):
            def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                found = function(*args, **(kwargs or {}))
                return found * 0 if getattr(function, "__name__", "") == "argmax" else found

        Lies().__enter__()
        return images


class RegistersAKernel(Idle):
    """For argmax, in the place of torch's own."""

    kept: ClassVar[list[Any]] = []

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        library = torch.library.Library("aten", "IMPL")
        library.impl("argmax", lambda logits, dim=None, keepdim=False: torch.full((len(logits),), -5), "CPU")
        self.kept.append(library)
        return images


class FindsLaterLabels(Idle):
    """Those of images that are attacked after these: all 37 labels are in memory from the start."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for found in gc.get_objects():
            if type(found) is Tensor and found.dtype == torch.int64 and found.shape == (37,):
                found[20:] = 9 - found[20:]
        return images


class FindsTheLabels(Idle):
    """Changes the tensors of whole numbers that are in memory, for 37 images: the labels that judge are among them."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        for found in gc.get_objects():
            if type(found) is Tensor and found.dtype == torch.int64 and found.shape == (37,):
                found += 1
        return images


class StartsAThread(Idle):
    """That goes on while the images are judged, for a while."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        return images


class Wrapper(Tensor):
    """Answers every operation with itself: as what is copied into a plain tensor too."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        with torch._C._DisableTorchDispatch():
            found = function(*args, **(kwargs or {}))
            return found.as_subclass(Wrapper) if isinstance(found, Tensor) else found


class ReturnsAWrapper(Idle):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return (1 - images).as_subclass(Wrapper)


class ReturnsDoubles(Honest):
    """In float64, with a history: what float32 cannot tell from the radius."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        proposed = super().perturb(model, images.clone(), labels).double().requires_grad_()
        return proposed * 1


@dataclass(frozen=True)
class ManySmallSteps(Attack):
    """In L0: moves every pixel by less than what counts as a change, and one by as much as it likes."""

    norm: ClassVar[str] = "L0"

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return (images + 9e-7 * torch.where(images < 0.5, 1, -1)).clamp(0, 1)


class Edits(Honest):
    """Changes its own file while it runs: what comes later would be another attack under the same digest."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with open(__file__, "a") as file:
            file.write("# edited\n")
        os._exit(1)

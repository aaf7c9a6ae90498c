"""A network in an attack's hands: a copy, whose passes are counted, under a random state of the batch's own.

Afterwards nothing that the harness or its caller relies on has changed: random states, the default dtype, threads,
gradients and flags of the network, torch's own functions. What was changed is told.
"""

import builtins
import contextlib
import copy
import gc
import hashlib
import itertools
import math
import random
import signal
import sys
import threading
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_globals

from robustbench_dec.attack import TOO_MANY, Look, OutOfPasses, eval_mode
from robustbench_dec.attacking.witness import Seen, kept
from robustbench_dec.errors import BadInput, raised


@contextlib.contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Run an attack with the model in eval mode and its own random state, and leave everything as it was.

    Weights' requires_grad flags are off inside: attacks differentiate images only, which halves their backward pass.
    """
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    devices = list({p.device.index for p, *_ in parameters if p.device.type == "cuda"})
    python_state, numpy_state = random.getstate(), np.random.get_state()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    exact, precision = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
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
        if torch.are_deterministic_algorithms_enabled() != exact:  # which loads a good deal of torch
            torch.use_deterministic_algorithms(exact)
        if torch.get_float32_matmul_precision() != precision:
            torch.set_float32_matmul_precision(precision)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for p, flag, grad in parameters:
            p.requires_grad_(flag)
            p.grad = grad


def copied(model: nn.Module) -> nn.Module:
    """A network like this one, that shares nothing with it."""
    try:
        copy_of_it: nn.Module = copy.deepcopy(model)
    except Exception as error:  # whatever a user's network raises
        raise BadInput(
            f"{type(model).__name__} cannot be copied ({raised(error)}); an attack gets a copy, so that it cannot "
            "change the network that judges it"
        ) from error
    held = {each.data_ptr() for each in _tensors(model) if each.numel()}
    if copy_of_it is model or any(each.data_ptr() in held for each in _tensors(copy_of_it)):
        raise BadInput(f"a copy of {type(model).__name__} shares its weights; an attack could change the judge by them")
    return copy_of_it


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return itertools.chain(model.parameters(), model.buffers())


def digest(model: nn.Module) -> str:
    """The sha256 of all parameters and buffers, also of those that are not saved, with their names."""
    return digest_of((*model.named_parameters(), *model.named_buffers()))


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The sha256 of tensors with their names, types and shapes."""
    found = hashlib.sha256()
    for name, tensor in tensors:
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


class Tally:
    """Images that passed; one for a network and all its copies, which an attack may make."""

    def __init__(self, most: int | None) -> None:
        self.most = most  # images that may pass, forward and back together
        self.forwards = self.backwards = self.gradients = self.zeros = 0

    def __deepcopy__(self, memo: object) -> "Tally":
        return self

    def check(self, images: int) -> None:
        """Refuse so many more."""
        if self.most is not None and self.forwards + self.backwards + images > self.most:
            raise OutOfPasses(TOO_MANY)


class PassCounter(nn.Module):
    """A model that counts the images an attack sends through it, forward and back, and the gradients that vanish.

    It counts where the network itself is entered and left, so that who calls `model.model` is counted too, and so is
    who calls a copy of it.
    """

    def __init__(self, model: nn.Module, classes: int, most: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.number_of_classes = classes
        self.tally = Tally(most)
        self.trace: list[Look] = []
        self.seen: Seen | None = None
        self._asked, self._keeps = 0, False
        model.register_forward_pre_hook(self._enter, with_kwargs=True)
        model.register_forward_hook(self._leave, with_kwargs=True)
        self.start: object = None

    def begin(self) -> None:
        """Note what the network is like, before an attack has it."""
        self.start = condition(self.model)

    def changed(self) -> bool:
        """Whether it is another one now."""
        return condition(self.model) != self.start

    def counts(self) -> tuple[int, int, int, int]:
        """Images forward, images back, gradients of images, zeros among them."""
        return self.tally.forwards, self.tally.backwards, self.tally.gradients, self.tally.zeros

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits

    def _enter(self, model: nn.Module, given: Any, named: Any) -> Any:
        images = next(iter((*given, *named.values())))
        self.tally.check(len(one_by_one(images)))
        self._asked += 1
        hides = torch._C._functorch.is_functorch_wrapped_tensor(images)  # and cannot be kept
        self._keeps = kept(self._asked) and not hides and not self.changed()  # an attack may have changed its copy
        if images.requires_grad:
            images.register_hook(self._count_gradient)
            if self._keeps and given:  # the gradient of a view is that of this pass alone
                return (images.view_as(images), *given[1:]), named
        return None

    def _leave(self, model: nn.Module, given: Any, named: Any, logits: Tensor) -> None:
        images = next(iter((*given, *named.values())))
        self.tally.forwards += len(one_by_one(images))
        if logits.requires_grad:
            logits.register_hook(self._count_backward)
        if self._keeps:
            self.seen = Seen.of(images, logits)
            if images.requires_grad and logits.requires_grad:
                logits.register_hook(self.seen.goes_back)
                images.register_hook(self.seen.went_back)

    def _count_backward(self, gradient: Tensor) -> None:
        images = len(one_by_one(gradient))
        self.tally.check(images)
        self.tally.backwards += images

    def _count_gradient(self, gradient: Tensor) -> None:
        gradient = one_by_one(gradient)
        self.tally.gradients += len(gradient)
        self.tally.zeros += int((gradient.flatten(1).abs().amax(1) == 0).sum())


def one_by_one(images: Tensor) -> Tensor:
    """All images that a tensor stands for: under torch.func.vmap, or as a batch of gradients, it hides a dimension."""
    while torch._C._functorch.is_functorch_wrapped_tensor(images):
        hidden, plain = torch._C._functorch.maybe_get_bdim(images), torch._C._functorch.get_unwrapped(images)
        images = plain.movedim(hidden, 0).flatten(0, 1) if hidden >= 0 else plain
    return images


class Patched(BadInput):
    """Someone replaced what judges."""


@contextlib.contextmanager
def unpatched(model: nn.Module, who: str = "it") -> Iterator[None]:
    """Put back what is patched inside, of torch, Python, this suite and the network's own classes; and tell it."""
    known, hooks = Known(model), [dict(each) for each in HOOKS]
    modes, tracing, profiling, kernels, handlers = _modes(), sys.gettrace(), sys.getprofile(), _kernels(), _handlers()
    try:
        yield
    finally:
        if sys.gettrace() is not tracing:
            sys.settrace(tracing)
        if sys.getprofile() is not profiling:
            sys.setprofile(profiling)
        _end_modes(before := _modes(), modes)
        what = [f"replaced {name}" for name in known.put_back()]
        what += [f"left a handler of {name}" for name in _end_handlers(handlers)]
        what += ["left hooks on all networks"] if [dict(each) for each in HOOKS] != hooks else []
        what += ["left a mode of torch on"] if before != modes else []
        what += [f"replaced {name}" for name in _end_kernels(_kernels() - kernels)]
        for each, former in zip(HOOKS, hooks, strict=True):
            each.clear()
            each.update(former)
    if what:
        raise Patched(f"{who} {what[0]}, by which it is judged; that was undone")


HOOKS = (module_globals._global_forward_hooks, module_globals._global_forward_pre_hooks)
"""Hooks on every network of the process."""

GUARDED = (torch, nn.functional, torch.Tensor, nn.Module, torch.autograd, builtins, copy, hashlib, math)
"""What a judgement is made with, beside this suite itself, in a process that others' code shares."""

FIELD = type(vars(namedtuple("Pair", "first"))["first"])
"""Of a named tuple."""

METHODS = (FunctionType, BuiltinFunctionType, type, staticmethod, classmethod, property, FIELD)
"""What decides how a class or a module works, and so do the suite's constants. Other values, caches say, may change."""

_PAIRS = (("SIGALRM", "ITIMER_REAL"), ("SIGVTALRM", "ITIMER_VIRTUAL"), ("SIGPROF", "ITIMER_PROF"))
TIMERS = {signal.Signals[name]: getattr(signal, timer) for name, timer in _PAIRS if hasattr(signal, name)}
"""By which Python code runs in the middle of any other, whenever it wants."""


class Known:
    """The functions and methods of what judges, as they are now."""

    def __init__(self, model: nn.Module) -> None:
        suite = [found for name, found in sys.modules.items() if f"{name}.".startswith("robustbench_dec.")]
        own = [value for module in suite for value in vars(module).values() if isinstance(value, type)]
        classes = {type(each) for each in model.modules()} | {cls for cls in own if _of_suite(cls.__module__)}
        self.places: list[Any] = [*GUARDED, *suite, *classes]
        self.before = [
            (place, name, value, value.__code__ if isinstance(value, FunctionType) else None)
            for place in self.places
            for name, value in vars(place).items()
            if isinstance(value, METHODS)
        ]
        self.constants = [
            (place, name, value)
            for place in suite
            for name, value in vars(place).items()
            if name.isupper() and isinstance(value, int | float | str | tuple)
        ]
        functions = [value for _, _, value, _ in self.before if isinstance(value, FunctionType)]
        self.inner = [
            (function, cell, cell.cell_contents)
            for function in functions
            for cell in function.__closure__ or ()
            if _holds_function(cell)
        ]
        self.names = {id(place): set(vars(place)) for place in self.places if isinstance(place, type)}

    def put_back(self) -> list[str]:
        """The names of what was changed since."""
        changed = []
        for place, name, constant in self.constants:
            if vars(place).get(name) is not constant:
                setattr(place, name, constant)
                changed.append(f"{place.__name__}.{name}")
        for function, cell, wrapped in self.inner:  # by a decorator
            if cell.cell_contents is not wrapped:
                cell.cell_contents = wrapped
                changed.append(f"{function.__module__}.{function.__qualname__}")
        for place, name, value, code in self.before:
            if vars(place).get(name) is not value and not _by_torch(vars(place).get(name)):
                setattr(place, name, value)
                changed.append(f"{place.__name__}.{name}")
            elif isinstance(value, FunctionType) and code is not None and value.__code__ is not code:
                value.__code__ = code
                changed.append(f"{place.__name__}.{name}")
        for place in self.places:
            new = set(vars(place)) - self.names[id(place)] if isinstance(place, type) else set()
            for name in sorted(new):  # a method that hides an inherited one
                if isinstance(vars(place)[name], METHODS) and not _by_torch(vars(place)[name]):
                    delattr(place, name)
                    changed.append(f"{place.__name__}.{name}")
        return changed


def _holds_function(cell: CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, FunctionType)
    except ValueError:  # empty
        return False


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in TIMERS}


def _end_handlers(wanted: Mapping[signal.Signals, Any]) -> list[str]:
    """Those that were replaced; their timers end. Only the main thread can have done so, and can undo it."""
    changed = [number for number, handler in wanted.items() if signal.getsignal(number) is not handler]
    for number in changed:
        signal.setitimer(TIMERS[number], 0)
        signal.signal(number, wanted[number])
    return [number.name for number in changed]


def _of_suite(module: str) -> bool:
    return f"{module}.".startswith("robustbench_dec.")


def _by_torch(value: object) -> bool:
    """Whether a function is torch's own, which replaces some of its functions when it loads more of itself."""
    code = getattr(value, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)


def _modes() -> tuple[int, int]:
    """How many modes, which have a say in every operation, are on."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def _end_modes(now: tuple[int, int], wanted: tuple[int, int]) -> None:
    for _ in range(now[0] - wanted[0]):
        torch._C._pop_torch_function_stack()
    for _ in range(now[1] - wanted[1]):
        torch._C._pop_torch_dispatch_stack()


def _kernels() -> set[str]:
    """Operations of torch that Python code does in its place, as aten/argmax/CPU.

    Those on shapes alone and under torch.func it gets from itself, when they are first asked for.
    """
    known = (each.split("/") for each in torch.library._impls)
    own = ("Meta", "FuncTorch")
    return {"/".join(parts) for parts in known if parts[0] == "aten" and not parts[-1].startswith(own)}


def _end_kernels(new: set[str]) -> list[str]:
    for each in gc.get_objects() if new else ():
        if type(each) is torch.library.Library and each._op_impls & new:
            each._destroy()
    return sorted(new)


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """Refuse who leaves threads behind in this process: they could go on while it is judged."""
    before = set(threading.enumerate())
    yield
    left = [each for each in threading.enumerate() if each not in before and each.is_alive()]
    left = [each for each in left if type(each).__name__ not in ("_DummyThread", "TMonitor")]  # torch's and tqdm's own
    if left:
        raise BadInput(f"it left {len(left)} thread(s) running, {left[0].name} first; join them before it returns")

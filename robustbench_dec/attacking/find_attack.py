"""Attacks from anywhere: by name from our shelf or torchattacks, from a user's file, from a saved perturbation.

pgd                          attacks/pgd.py
torchattacks:MIFGSM          the library's class of that name (torchattacks_shelf.py marks its traps)
path/to/mine.py:Mine         a user's file: a subclass of `robustbench_dec.attack.Attack`, a class in torchattacks'
                             manner, Mine(model, eps=..., ...) with __call__ or forward(images, labels), or a function
                             mine(model, images, labels, eps, ...); it runs in a process of its own (attack_process.py)
path/to/y.safetensors        one universal perturbation, tensor "y" (C, H, W); a trainer's y is such a file
"""

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from robustbench_dec import shelf
from robustbench_dec.attack import Attack, Shift
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings, settable
from robustbench_dec.tensors import FLOATS, read

RADII = ("eps", "epsilon", "max_epsilon")
"""What a foreign class may call its radius."""

FUNCTION = ("model", "images", "labels", "eps")
"""The arguments of a function that is an attack."""

PLAIN = (bool, int, float, str, tuple)


def attack_named(name: str) -> type[Attack]:
    """The class behind a name; `shelf.make` gives it its settings."""
    if name.startswith("torchattacks:"):
        from robustbench_dec.attacking import torchattacks_shelf as library

        return library.named(name.partition(":")[2])
    if name.endswith(".safetensors"):
        return saved_perturbation(Path(name))
    if shelf.file_of(name) is not None:
        from robustbench_dec.attacking.attack_process import attack_in_file

        return attack_in_file(name)
    return shelf.find("attack", name, Attack)


def in_file(name: str) -> type[Attack]:
    """The class in a user's file; only the process of that attack reads it."""
    return shelf.find("attack", name, Attack, adapt=adapt)


def attack_handed_over(attack: object, model: nn.Module) -> tuple[type[Attack], str, Settings]:
    """The class of what Python code gives as an attack on a model, its name, and its own radius and norm if there are.

    It may be a class or a function of a kind that files may hold too, or an object in torchattacks' manner, such as
    torchattacks.PGD(model, eps=0.1): that one keeps its settings, and attacks a copy of the model.
    """
    from robustbench_dec.attacking import torchattacks_shelf as library

    name = str(getattr(attack, "__name__", type(attack).__name__))
    if isinstance(attack, type) and issubclass(attack, Attack):
        return attack, name, {}
    if isinstance(attack, type) and library.has(attack):
        return library.named(name), f"torchattacks:{name}", {}
    adapted = adapt(attack) if callable(attack) else None
    if adapted is not None:
        return adapted, name, {}
    if isinstance(attack, type) or not (callable(attack) and hasattr(attack, "model")):
        raise BadInput(
            f"{attack!r:.60} is no attack; one is a name, a subclass of robustbench_dec.attack.Attack or an object of "
            "it, a class or an object like torchattacks', or a function f(model, images, labels, eps)"
        )
    base = library.named(name) if library.has(type(attack)) else Foreign
    plain = {key: value for key, value in vars(attack).items() if type(value) in PLAIN and not key.startswith("_")}
    body: dict[str, Any] = {"build": staticmethod(lambda network, **_: copy.deepcopy(attack, {id(model): network}))}
    body |= {"settings": lambda self: {**plain, "eps": self.eps}, "refuses_short": False, "__doc__": base.__doc__}
    radius = [float(plain[key]) for key in RADII if isinstance(plain.get(key), int | float)]
    own: Settings = {"eps": radius[0]} if radius else {}
    norm = plain.get("norm", base.norm)
    body, own = (body, own | {"norm": norm}) if "norm" in settable(base) else (body | {"norm": norm}, own)
    return type(name, (base,), body), f"torchattacks:{name}" if library.has(type(attack)) else name, own


def label(name: str) -> str:
    """How results call an attack: a user's file without the folders it lies in."""
    if name.endswith(".safetensors"):
        # A trainer's y is always perturbation.safetensors, in its run's folder, which may be called anything.
        return "/".join(re.sub(r"^[^\w.]|[^\w.-]", "_", part) for part in Path(name).parts[-2:])
    return name if shelf.file_of(name) is None else Path(name).name


@dataclass(frozen=True)
class Foreign(Attack):
    """A class in torchattacks' manner as an attack of ours: built anew for each batch, then called."""

    build: ClassVar[Callable[..., Any]]
    radius: ClassVar[str] = "eps"
    """What the class calls its radius; "" if it takes none."""
    derived: ClassVar[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({})
    """Settings that follow from the others unless they are given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = self.settings()
        steps = settings.get("steps")
        if isinstance(steps, int) and steps < 1:
            raise BadInput(f"{type(self).__name__} needs at least 1 step, not {steps}")

    def short(self) -> bool:
        """Whether all its steps together cannot reach the radius."""
        settings = self.settings()
        steps, alpha = settings.get("steps"), settings.get("alpha")
        return isinstance(steps, int) and isinstance(alpha, float) and not steps * alpha >= self.eps * (1 - 1e-9)

    def remarks(self) -> tuple[str, ...]:
        """A user's own class is run with the settings in its file, and is told where they cannot be meant so."""
        return ("short_steps",) if self.short() else ()

    def settings(self) -> Settings:
        settings = super().settings()
        return settings | {name: rule(self) for name, rule in self.derived.items() if settings[name] is None}

    def arguments(self, model: nn.Module, images: Tensor) -> dict[str, Any]:
        """What the class is built with."""
        settings = self.settings()
        eps = settings.pop("eps")
        return {self.radius: eps, **settings} if self.radius else settings

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        attack = type(self).build(model, **self.arguments(model, images))
        proposed: Tensor = (attack if callable(attack) else attack.forward)(images, labels)
        return proposed


@dataclass(frozen=True)
class Function(Foreign):
    """A function f(model, images, labels, eps) as an attack of ours; its further arguments are settings."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        settings = self.settings()
        proposed: Tensor = type(self).build(model, images, labels, settings.pop("eps"), **settings)
        return proposed


def adapt(
    cls: Callable[..., Any],
    base: type[Foreign] = Foreign,
    kinds: Mapping[str, Any] = MappingProxyType({}),
    scaled: bool = False,
    **marks: Any,
) -> type[Attack] | None:
    """The dataclass of the settings of a foreign class or function, typed as its defaults are; None if it is neither.

    With `scaled`, a default alpha becomes a share of the radius, alpha / eps of the defaults: fixed, it makes large
    radii look robust. `kinds` corrects types (None: not a setting), `marks` are attributes of the new class.
    """
    parameters, radius = _parameters(cls), marks.get("radius")
    if not isinstance(cls, type):
        if tuple(parameters)[: len(FUNCTION)] != FUNCTION:
            return None
        parameters, radius, base = {name: parameters[name] for name in tuple(parameters)[3:]}, "eps", Function
    else:
        radius = next((name for name in RADII if name in parameters), radius)
        if next(iter(parameters), None) != "model" or not _is_called(cls) or radius is None:
            return None
    derived = dict(marks.pop("derived", {}))
    eps, alpha = (parameters[name].default if name in parameters else None for name in (radius, "alpha"))
    if scaled and all(isinstance(value, int | float) and value > 0 for value in (eps, alpha)):
        share = alpha / eps  # type: ignore[operator]
        derived["alpha"] = lambda attack: attack.eps * max(share, 1 / max(getattr(attack, "steps", 1), 1))
    columns: list[tuple[str, Any, Any]] = []
    for name, parameter in parameters.items():
        kind = kinds.get(name, _kind(parameter))
        if name in ("model", radius) or kind is None:
            continue
        if name in derived:
            columns.append((name, kind | None, field(default=None)))
        elif parameter.default is parameter.empty:
            columns.append((name, kind, field()))
        else:
            columns.append((name, kind, field(default=parameter.default)))
    body = {"build": staticmethod(cls), "__doc__": cls.__doc__, **marks, "radius": radius, "derived": derived}
    name = getattr(cls, "__name__", type(cls).__name__)
    return make_dataclass(name, columns, bases=(base,), namespace=body, frozen=True, kw_only=True)


def _parameters(cls: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(cls, eval_str=True).parameters.values()
    except (ValueError, TypeError, NameError):
        return {}
    return {p.name: p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _is_called(cls: type) -> bool:
    return any({"__call__", "forward"} & vars(parent).keys() for parent in cls.__mro__)


def _kind(parameter: inspect.Parameter) -> Any:
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return type(parameter.default) if type(parameter.default) in PLAIN else Any


@dataclass(frozen=True)
class Saved(Shift):
    """A perturbation from a file, as it is; `scale` stretches it to fill each radius."""

    saved: ClassVar[Tensor]
    y: Tensor = field(init=False)
    scale: bool = False

    def __post_init__(self) -> None:
        largest = self.saved.abs().max().item()
        object.__setattr__(self, "y", self.saved * (self.eps / largest) if self.scale and largest else self.saved)
        super().__post_init__()


def saved_perturbation(path: Path) -> type[Saved]:
    """A file with one universal y as an attack."""
    if not path.is_file():
        raise BadInput(f"no file {path}; a saved perturbation is a safetensors file with one tensor y (C, H, W)")
    shelf.check_name(path)
    tensors, _ = read(path)
    y = tensors.get("y")
    if y is None or y.dtype not in FLOATS or y.ndim != 3 or not y.numel() or not y.isfinite().all():
        there = ", ".join(f"{name} {tuple(value.shape)}" for name, value in tensors.items()) or "nothing"
        raise BadInput(f"{path} should hold one tensor y (C, H, W) of finite floats, at least 1, it holds: {there}")
    return type("Saved", (Saved,), {"saved": y.float(), "__doc__": Saved.__doc__})

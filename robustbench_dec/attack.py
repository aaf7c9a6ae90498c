"""Attack: proposes perturbed images. Clipping, budget checks, random state and accuracy are not the attack's to decide.

Subclasses are frozen dataclasses whose fields are the strengths. Images are floats in [0, 1], models return logits.
An attack on single images has `perturb`; a universal one says `universal = True`, and its `fit` returns a `Shift`.
What the harness does with them is in attacking/.
"""

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Part, Radius, Settings, number

TOLERANCE = 1e-6
"""Floats after a projection read 0.10000002 for a radius of 0.1."""

NORMS = ("Linf", "L2", "L1", "L0")
"""How a radius is measured; L0 counts pixels, whatever the number of their colours that change."""


class Ball(NamedTuple):
    """In what an attack's images are judged: read once, before the attack is asked for anything."""

    norm: str
    eps: float


OWN_FLAGS = ("model", "passes", "short_steps")
"""The flags that who runs an attack tells of it; all others are found by who judges it."""

TOO_MANY = "the network was asked more often than --max-passes allows"


class OutOfPasses(Exception):
    """The network was asked more often than --max-passes allows. An attack may catch it and return what it has."""


class Look(NamedTuple):
    """What an ascent has reached after so many steps: the mean loss and the share of right ones of some images."""

    ascent: str
    step: int
    loss: float
    accuracy: float
    images: int


def tell(model: nn.Module, look: Look) -> None:
    """Tell the harness, whose copy of the network an attack has, what was seen on the way; others do not listen."""
    trace = getattr(model, "trace", None)
    if isinstance(trace, list):
        trace.append(look)


@dataclass(frozen=True)
class Attack(Part):
    """One attack at one radius."""

    norm: ClassVar[str] = "Linf"
    universal: ClassVar[bool] = False
    """Whether one perturbation serves all images; such an attack learns it in `fit`."""
    one_step: ClassVar[bool] = False
    """Whether it is a single step, which an attack of several must not be weaker than."""
    standard: ClassVar[bool] = False
    """Whether a new attack is compared with it on a network that has no stored results."""
    successor: ClassVar[str] = ""
    """The name of the attack that took its place: a table that has one of the two shows no column of the other."""

    eps: Radius

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "Linf" and self.eps > 1:
            raise BadInput(f"an Linf radius of {self.eps:g} cannot be meant for images in [0, 1]; 8/255 is a usual one")
        if self.norm == "L0" and self.eps != int(self.eps):
            raise BadInput(f"an L0 radius is a whole number of pixels, not {self.eps:g}")

    @classmethod
    def make(cls, settings: Mapping[str, object]) -> Self:
        made = super().make(settings)
        made.refuse_if_not(settings)
        return made

    def refuse_if_not(self, asked: Mapping[str, object]) -> None:
        """Refuse an attack that has another radius than it was asked for, or a norm that its radius decides.

        Results would call it by the radius and the norm that were asked for.
        """
        name = type(self).__name__
        given = asked.get("eps")
        radius = number(given) if isinstance(given, str | float | int) else self.eps
        for eps in (self.eps, self.settings().get("eps", self.eps)):
            if eps != radius:
                raise BadInput(f"{name} was asked for the radius {radius:g} and sets its own, {eps}; it may not")
        norm = asked.get("norm", type(self).norm)
        if self.norm not in NORMS or self.norm != norm:
            raise BadInput(
                f"{name} has the norm {str(self.norm)!r:.40}, its class says {str(norm)!r:.40}; a norm is one of "
                f"{', '.join(NORMS)}, in the class, whatever the radius"
            )

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuse, before anything is attacked, images (C, H, W) or a number of classes that it cannot handle."""

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> "Attack":
        """The `Shift` that a universal attack learns on training images, once per radius."""
        raise BadInput(f"{type(self).__name__} has no fit; a universal attack needs one, which returns a Shift")

    def groundwork(self) -> "Attack | None":
        """The universal attack from whose perturbation this one starts, so that the radii of a sweep share work."""
        return None

    def fit_from(self, shift: "Shift", model: nn.Module, images: Tensor, labels: Tensor) -> "Attack":
        """The `Shift` that it learns from its groundwork's."""
        raise BadInput(f"{type(self).__name__} has no fit_from, which a universal attack with a groundwork needs")

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """Images like `images`, meant to be misclassified."""
        if self.universal:
            raise BadInput("a universal perturbation is fitted before it is applied: call fit first")
        raise BadInput(f"{type(self).__name__} has no perturb, which an attack on single images needs")

    def recipe(self) -> Settings:
        """The settings from which it can be made again, in another process."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def remarks(self) -> tuple[str, ...]:
        """Flags that follow from its settings alone, of those in `OWN_FLAGS`."""
        return ()


@dataclass(frozen=True)
class Shift(Attack):
    """A known universal perturbation y (C, H, W), added to every image; without an `eps`, its radius is its own size.

    What `fit` returns is judged by the radius of the attack that was fitted: there `Shift(y)` is enough.
    """

    universal: ClassVar[bool] = True
    eps: Radius = field(default=math.nan, kw_only=True)
    y: Tensor

    def __post_init__(self) -> None:
        y = self.y
        if not isinstance(y, Tensor) or y.ndim != 3 or not y.numel() or not y.isfinite().all():
            came = f"a tensor {tuple(y.shape)}" if isinstance(y, Tensor) else f"{type(y).__name__}"
            raise BadInput(f"a Shift takes one perturbation y (C, H, W) of finite numbers, at least 1, not {came}")
        if math.isnan(self.eps):
            object.__setattr__(self, "eps", min(distances(self.y[None], self.norm).item(), 1.0))
        super().__post_init__()

    def settings(self) -> Settings:
        return {"eps": self.eps, "y_sha256": hashlib.sha256(self.y.float().cpu().numpy().tobytes()).hexdigest()}

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        if tuple(self.y.shape) != tuple(shape):
            raise BadInput(
                f"a perturbation for these images has the shape {tuple(shape)}, this one has {tuple(self.y.shape)}"
            )

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images + self.y.to(images)


# The ball and the box


def distances(moved: Tensor, norm: str) -> Tensor:
    """The size (N,) of each perturbation in (N, C, H, W)."""
    if norm == "L0":
        return (moved.abs() > TOLERANCE).any(1).flatten(1).sum(1).to(moved)
    flat = moved.flatten(1)
    return flat.abs().amax(1) if norm == "Linf" else flat.norm(p=int(norm[1:]), dim=1)


def put_back(images: Tensor, proposed: Tensor, eps: float, norm: str = "Linf") -> Tensor:
    """The proposed images in the ball of radius eps and in [0, 1].

    Linf: each pixel is clipped. L2 and L1: a perturbation that is too long is shortened. L0: an image with too many
    changed pixels is given back as it was, because nothing says which of them to keep; and what does not count as a
    change is none.
    """
    moved = proposed - images
    if norm == "L0":
        moved = torch.where(moved.abs() > TOLERANCE, moved, 0)
    if norm == "Linf":
        return torch.clamp(images + moved.clamp(-eps, eps), 0, 1)
    sizes = distances(moved, norm)
    far = sizes > eps + slack(eps)
    share = torch.where(far, 0 if norm == "L0" else eps / sizes.clamp_min(TOLERANCE), 1)
    return torch.clamp(images + moved * share.to(moved).view(-1, 1, 1, 1), 0, 1)


def slack(eps: float) -> float:
    """What rounding may add to a distance of eps; the sums of L2 and L1 round more where they are larger."""
    return TOLERANCE * max(1.0, eps)


def largest_radius(norm: str, shape: tuple[int, ...]) -> float:
    """How far two images (C, H, W) in [0, 1] can be from each other."""
    values = math.prod(shape)
    return {"Linf": 1.0, "L2": math.sqrt(values), "L1": float(values), "L0": values / shape[0]}[norm]


# What attacks ask of a network


def as_floats(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 images as floats in [0, 1]; floats as they are."""
    return images.to(dtype) / 255 if images.dtype == torch.uint8 else images


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


def number_of_classes(model: nn.Module, images: Tensor) -> int:
    """How many logits the model gives, asked without being counted as a pass of the attack."""
    known = getattr(model, "number_of_classes", None)
    if isinstance(known, int):
        return known
    with torch.no_grad(), eval_mode(model):
        logits = model(images[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"a model should return logits of shape (images, classes), this one returned {came} for 1 image")
    return logits.shape[1]


def answers(model: nn.Module, images: Tensor) -> Tensor:
    """Logits by the model in eval mode."""
    with torch.no_grad(), eval_mode(model):
        logits: Tensor = model(images)
    return logits


def classes_of(logits: Tensor) -> Tensor:
    """The class of the largest logit; -1, no class, where a logit is NaN or infinite."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), -1)


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """What a model takes images for."""
    return classes_of(answers(model, images))


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

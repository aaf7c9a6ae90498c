"""Attack: proposes perturbed images. Clipping, budget checks, random state and accuracy are not the attack's to decide.

Subclasses are frozen dataclasses whose fields are the strengths. Images are floats in [0, 1], models return logits.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from robustbench_dec import parts as shared
from robustbench_dec.attacking.model_use import (
    PassCounter,
    accuracy,
    as_floats,
    device_of,
    eval_mode,
    number_of_classes,
    predictions,
    untouched,
)
from robustbench_dec.bars import bar
from robustbench_dec.errors import BadInput

__all__ = [
    "Attack", "Failed", "Outcome", "Part", "PassCounter", "Shift", "accuracy", "as_floats", "distances", "eval_mode",
    "evaluate", "number_of_classes", "predictions", "propose", "put_back", "slack",
]  # fmt: skip

TOLERANCE = 1e-6
"""Floats after a projection read 0.10000002 for a radius of 0.1."""

NORMS = ("Linf", "L2", "L1", "L0")
"""How a radius is measured; L0 counts pixels, whatever the number of their colours that change."""

GIVE_UP = 3
"""Batches that may fail before an attack is not tried on the next ones."""


@dataclass(frozen=True)
class Attack(shared.Part, ABC):
    """One attack at one radius."""

    norm: ClassVar[str] = "Linf"
    universal: ClassVar[bool] = False
    """Whether one perturbation serves all images; such an attack learns it in `fit`."""
    one_step: ClassVar[bool] = False
    """Whether it is a single step, which an attack of several must not be weaker than."""

    eps: shared.Radius

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuse, before anything is attacked, images (C, H, W) or a number of classes that it cannot handle."""

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> "Attack":
        """What universal attacks learn on (uint8) training images, once per radius; others have nothing to learn."""
        return self

    @abstractmethod
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """Images like `images`, meant to be misclassified."""


@dataclass(frozen=True)
class Shift(Attack):
    """A known universal perturbation y (C, H, W), added to every image."""

    universal: ClassVar[bool] = True
    y: Tensor

    def settings(self) -> dict[str, Any]:
        return {"eps": self.eps, "y_sha256": hashlib.sha256(self.y.float().cpu().numpy().tobytes()).hexdigest()}

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        if tuple(self.y.shape) != tuple(shape):
            raise BadInput(
                f"a perturbation for these images has the shape {tuple(shape)}, this one has {tuple(self.y.shape)}"
            )

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images + self.y.to(images)


class Part(NamedTuple):
    """What an attack did to one batch."""

    clean: Tensor  # (n,) bool
    robust: Tensor  # (n,) bool
    forwards: int
    backwards: int
    gradients: int  # gradients of single images that were computed
    zeros: int  # those of them that were zero in every pixel
    flags: tuple[str, ...]


class Failed(BadInput):
    """An attack raised on some batches; the others are kept."""


@dataclass(frozen=True)
class Outcome:
    """What an attack did to a set of images."""

    clean: Tensor  # (N,) bool: right before the attack
    robust: Tensor  # (N,) bool: right under it, and for attacks on single images right before it too
    forwards: int  # images passed forward by the attack
    backwards: int
    flags: tuple[str, ...]
    perturbation: Tensor | None  # (C, H, W) of a universal attack
    zero_gradients: float | None = None  # share of single images' gradients that were zero; None without gradients

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
    parts: MutableMapping[int, Part] | None = None,
) -> Outcome:
    """Attack images (uint8 or floats in [0, 1]) and tell which the model still gets right.

    Attacks on single images spare those that are wrong anyway; universal ones are fitted on `train` first and meet all.
    Every batch runs under its own random state, derived from `seed`. Batches that `parts` has are not attacked again;
    with `parts`, an attack that raises on one batch is tried on the next ones, and `Failed` is raised at the end.
    """
    if len(images) == 0:
        raise BadInput("there are no images to attack")
    device = device_of(model)
    attack.check(tuple(images.shape[1:]), number_of_classes(model, as_floats(images[:1]).to(device)))
    counter = PassCounter(model)
    perturbation = None
    if attack.universal and not isinstance(attack, Shift):
        try:
            attack = _fitted(attack, counter, train, seed, progress)
        except Exception as error:
            if parts is None or isinstance(error, BadInput):
                raise
            raise Failed(f"{type(attack).__name__}.fit raised {type(error).__name__}: {error}") from error
        parts = None  # what is dear is the fit, which belongs to no batch
    if isinstance(attack, Shift):
        perturbation = attack.y
    spent = counter.counts()  # by the fit
    done: MutableMapping[int, Part] = {} if parts is None else parts
    failures: dict[int, Exception] = {}
    batches = range(0, len(images), batch_size)
    for number, first in enumerate(bar(batches, desc=progress, show=progress is not None, nested=1)):
        if number in done:
            continue
        batch = images[first : first + batch_size], labels[first : first + batch_size]
        try:
            part = _attack_batch(attack, counter, *batch, seed=seed + 1 + number)
        except Exception as error:  # whatever the attack raises
            if parts is None:
                raise
            failures[number] = error
            if len(failures) == GIVE_UP:
                break
        else:
            done[number] = part  # a full disk, which may show here, is not the attack's failure
    if failures:
        raise _told(attack, failures, len(batches), len(done))
    ordered = [done[number] for number in range(len(batches))]
    forwards, backwards, gradients, zeros = (
        sum(column) for column in zip(spent, *(part[2:6] for part in ordered), strict=True)
    )
    return Outcome(
        torch.cat([part.clean for part in ordered]),
        torch.cat([part.robust for part in ordered]),
        forwards,
        backwards,
        tuple(sorted({flag for part in ordered for flag in part.flags})),
        perturbation,
        zeros / gradients if gradients else None,
    )


def _fitted(
    attack: Attack, model: nn.Module, train: tuple[Tensor, Tensor] | None, seed: int, progress: str | None
) -> Attack:
    name = type(attack).__name__
    if train is None:
        raise BadInput(f"{name} is universal: it needs training images to learn its perturbation")
    # How many passes a fit takes only the attack knows, so this bar counts them and has no end.
    with bar(desc=f"{progress}, fit", unit="pass", show=progress is not None, nested=1) as shown:

        def count(*call: Any) -> None:
            shown.update()

        hook = model.register_forward_hook(count)
        try:
            with untouched(model, seed):
                fitted = attack.fit(model, *train)
        finally:
            hook.remove()
    if fitted.eps != attack.eps:
        raise BadInput(
            f"{name}.fit should return an attack of radius {attack.eps:g}, it returned one of {fitted.eps:g}"
        )
    return fitted


def _attack_batch(attack: Attack, counter: PassCounter, images: Tensor, labels: Tensor, seed: int) -> Part:
    device = device_of(counter)
    a, b = as_floats(images).to(device), labels.to(device)
    check_box(a)
    before, flags = counter.counts(), set[str]()
    right = predictions(counter.model, a) == b
    # What is wrong already needs no attack; but a universal perturbation meets every image, and may even right one.
    met = torch.ones_like(right) if attack.universal else right
    still = right.clone()
    if met.any():
        proposed = propose(attack, counter, a[met], b[met], seed=seed, flags=flags)
        still[met] = predictions(counter.model, proposed) == b[met]
    forwards, backwards, gradients, zeros = (now - then for now, then in zip(counter.counts(), before, strict=True))
    return Part(right.cpu(), still.cpu(), forwards, backwards, gradients, zeros, tuple(sorted(flags)))


def _told(attack: Attack, failures: dict[int, Exception], batches: int, kept: int) -> Failed:
    first, error = next(iter(failures.items()))
    what = str(error) if isinstance(error, BadInput) else f"it raised {type(error).__name__}: {error}"
    name, also = type(attack).__name__, f" (and on {len(failures) - 1} more)" if len(failures) > 1 else ""
    return Failed(
        f"{name} failed on batch {first + 1} of {batches}{also}: {what}; the results of {kept} batches are kept, and "
        f"the same command starts again at batch {first + 1}"
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
    # Clipping a + y to [0, 1] is part of applying a universal y, so its box is not judged, and its budget is y's own.
    moved = attack.y[None] if isinstance(attack, Shift) else proposed - images
    if (distances(moved, attack.norm) > attack.eps + slack(attack.eps)).any():
        flags.add("budget")
    if (proposed.min() < -TOLERANCE or proposed.max() > 1 + TOLERANCE) and not attack.universal:
        flags.add("box")
    return put_back(images, proposed, attack.eps, attack.norm)


def distances(moved: Tensor, norm: str) -> Tensor:
    """The size (N,) of each perturbation in (N, C, H, W)."""
    if norm == "L0":
        return (moved.abs() > TOLERANCE).any(1).flatten(1).sum(1).to(moved)
    flat = moved.flatten(1)
    return flat.abs().amax(1) if norm == "Linf" else flat.norm(p=int(norm[1:]), dim=1)


def put_back(images: Tensor, proposed: Tensor, eps: float, norm: str = "Linf") -> Tensor:
    """The proposed images in the ball of radius eps and in [0, 1].

    Linf: each pixel is clipped. L2 and L1: a perturbation that is too long is shortened. L0: an image with too many
    changed pixels is given back as it was, because nothing says which of them to keep.
    """
    moved = proposed - images
    if norm == "Linf":
        return torch.clamp(images + moved.clamp(-eps, eps), 0, 1)
    sizes = distances(moved, norm)
    far = sizes > eps + slack(eps)
    share = torch.where(far, 0 if norm == "L0" else eps / sizes.clamp_min(TOLERANCE), 1)
    return torch.clamp(images + moved * share.to(moved).view(-1, 1, 1, 1), 0, 1)


def slack(eps: float) -> float:
    """What rounding may add to a distance of eps; the sums of L2 and L1 round more where they are larger."""
    return TOLERANCE * max(1.0, eps)


def check_box(images: Tensor) -> None:
    """Refuse images that are not in [0, 1]; NaN is not."""
    if not (images.min() >= 0 and images.max() <= 1):
        raise BadInput(
            f"attacks take images in [0, 1], these reach from {images.min().item():.3g} to {images.max().item():.3g}; "
            "put the normalisation inside the model"
        )

"""Evaluate: an attack proposes images, and a network that it never had tells which of them are still right.

The judge is a copy that stays here; its parameters, buffers, hooks and modes are checked before and after every batch.
An attack gets another copy, new for every batch, in a process of its own if it is a user's file (attack_process.py).
docs/harness.md tells what this guards against, and what it does not.
"""

import functools
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from robustbench_dec.attack import (
    NORMS,
    OWN_FLAGS,
    TOLERANCE,
    Attack,
    Ball,
    Look,
    OutOfPasses,
    Shift,
    as_floats,
    classes_of,
    distances,
    largest_radius,
    number_of_classes,
    put_back,
    slack,
)
from robustbench_dec.attacking.model_use import PassCounter, copied, unpatched, untouched, without_threads
from robustbench_dec.attacking.scene import Scene, check_box
from robustbench_dec.attacking.ways import averaged, still_moves
from robustbench_dec.attacking.witness import Seen, contradicted, questions
from robustbench_dec.bars import bar
from robustbench_dec.errors import BadInput, raised

GIVE_UP = 3
"""Batches that may fail before an attack is not tried on the next ones."""


@dataclass(frozen=True)
class Limits:
    """What an attack may use; None: as much as it likes."""

    passes: int | None = None
    """Images through the network per image that is attacked, forward and back together."""
    seconds: float | None = 3600.0
    """Of one batch or one fit, for an attack in a process of its own."""
    gigabytes: float | None = 16.0
    """Of memory, likewise."""

    def __post_init__(self) -> None:
        for name, option in (("passes", "--max-passes"), ("seconds", "--max-seconds"), ("gigabytes", "--max-memory")):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"{option} must be more than 0, not {value}")


class Part(NamedTuple):
    """What an attack did to one batch."""

    clean: Tensor  # (n,) bool
    robust: Tensor  # (n,) bool
    forwards: int
    backwards: int
    gradients: int  # gradients of single images that were computed
    zeros: int  # those of them that were zero in every pixel
    flags: tuple[str, ...]
    trace: tuple[Look, ...] = ()
    answered: tuple[int, ...] = ()  # of a universal attack: images that the network took for each class


class Played(NamedTuple):
    """What an attack gave back, as it came, and what it did to the network in its hands."""

    result: Tensor
    counts: tuple[int, int, int, int]  # as PassCounter has them
    flags: frozenset[str]
    trace: tuple[Look, ...] = ()  # what one of the suite's own attacks told of its way
    seen: Seen | None = None  # what the network told it on the way, where that was in this process


class Failed(BadInput):
    """An attack raised on some batches; the others are kept."""


class Player(Protocol):
    """Who runs an attack: this process, or one of its own. Every call is on a network as it was at the start."""

    def fit(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played: ...

    def perturb(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played: ...


@dataclass(frozen=True)
class Outcome:
    """What an attack did to a set of images."""

    ball: Ball  # in which the images were judged
    clean: Tensor  # (N,) bool: right before the attack
    robust: Tensor  # (N,) bool: right under it, and for attacks on single images right before it too
    forwards: int  # images passed forward by the attack
    backwards: int
    flags: tuple[str, ...]
    perturbation: Tensor | None  # (C, H, W) of a universal attack
    zero_gradients: float | None = None  # share of single images' gradients that were zero; None without gradients
    trace: tuple[Look, ...] = ()  # of its ascents; of an attack on single images, the means over all of them
    answered: tuple[int, ...] = ()  # of a universal attack: images that the network took for each class

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
    seed: int = 0,
    batch_size: int = 500,
    **how: Any,
) -> Outcome:
    """Attack images (uint8 or floats in [0, 1]) once and tell which the model still gets right; `how` as in `attacked`.

    Who attacks the same network and images more than once makes one `Scene` for all.
    """
    return attacked(attack, Scene(model, images, labels, seed=seed, batch_size=batch_size), **how)


@torch.inference_mode(False)
def attacked(
    attack: Attack,
    scene: Scene,
    *,
    train: tuple[Tensor, Tensor] | None = None,
    progress: str | None = None,
    parts: MutableMapping[int, Part] | None = None,
    limits: Limits = Limits(),
    start: Shift | None = None,
) -> Outcome:
    """Which images of a scene its network still gets right under the attack.

    Attacks on single images spare those that are wrong anyway; universal ones are fitted on `train` first and meet all.
    `start` is what the attack's groundwork found, where that is known; else it is fitted first, with the same end.
    Every batch runs under its own random state, derived from the scene's seed. Batches that `parts` has are not
    attacked again; with `parts`, an attack that raises on one batch is tried on the next ones, and `Failed` is raised
    at the end.
    """
    judge, network, shape = scene.judge, scene.network, scene.shape
    flags, classes = network.flags | {each for each in attack.remarks() if each in OWN_FLAGS}, network.classes
    ball, universal = Ball(str(attack.norm), float(attack.eps)), bool(attack.universal)
    _check_radius(ball, shape)
    attack.check(shape, classes)
    perturbation, spent, way = None, (0, 0, 0, 0), tuple[Look, ...]()
    with _player(attack, judge.model, classes, shape, limits) as player:
        if universal:
            if isinstance(attack, Shift):
                y = _plain(attack, "y", attack.y)
            else:
                most = None if limits.passes is None else limits.passes * len(scene.images)
                try:
                    y, spent, found, way = _fitted(attack, player, scene, train, most, progress, start)
                except Exception as error:
                    if parts is None or isinstance(error, BadInput):
                        raise
                    raise Failed(f"{type(attack).__name__}.fit raised {raised(error)}") from error
                flags |= found
                parts = None  # what is dear is the fit, which belongs to no batch
            # Its y is all that is taken of it, and adding that is no work for the attack.
            attack = Shift(y, eps=ball.eps) if ball.norm == "Linf" else Shift(y)
            attack.check(shape, classes)
            player = Here(attack, judge.model, classes)
            perturbation = attack.y
        try:
            done = _batches(attack, ball, player, scene, progress, parts, limits.passes)
        except RuntimeError as error:
            if network.differentiable:
                raise
            raise BadInput(
                f"the network has no gradient for its images, which {type(attack).__name__} needs; attacks by queries, "
                "such as torchattacks:Square, do without"
            ) from error
    ordered = [done[number] for number in sorted(done)]
    scene.check(ordered[0].clean)
    forwards, backwards, gradients, zeros = (
        sum(column) for column in zip(spent, *(part[2:6] for part in ordered), strict=True)
    )
    way = way or averaged([look for part in ordered for look in part.trace])
    flags = flags.union(*(part.flags for part in ordered), {"not_converged"} if still_moves(way) else ())
    return Outcome(
        ball,
        torch.cat([part.clean for part in ordered]),
        torch.cat([part.robust for part in ordered]),
        forwards,
        backwards,
        tuple(sorted(flags)),
        perturbation,
        zeros / gradients if gradients else None,
        way,
        tuple(sum(column) for column in zip(*(part.answered for part in ordered), strict=True)),
    )


def propose(
    attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int, flags: set[str] | None = None
) -> Tensor:
    """The attack's images, put back into the ball and into [0, 1]; what had to be put back is told in `flags`."""
    flags = set() if flags is None else flags
    check_box(images)
    played = play(attack, "perturb", PassCounter(copied(model), number_of_classes(model, images)), images, labels, seed)
    flags |= played.flags
    return accepted(attack, Ball(attack.norm, attack.eps), images, played.result, flags)


def play(
    attack: Attack,
    method: str,
    counter: PassCounter,
    images: Tensor,
    labels: Tensor,
    seed: int,
    start: Shift | None = None,
) -> Played:
    """Call `fit` or `perturb` on a copy of the network; what comes back becomes a plain tensor."""
    flags = set()
    call = getattr(attack, method) if start is None else functools.partial(attack.fit_from, start)
    with unpatched(counter.model), untouched(counter, seed):
        counter.begin()
        try:
            result = call(counter, images.clone(), labels.clone())
        except OutOfPasses:
            flags.add("passes")
            result = Shift(torch.zeros(images.shape[1:])) if method == "fit" else images
        except SystemExit as error:
            raise RuntimeError(f"it called sys.exit({error.code})") from error
        if counter.changed():
            flags.add("model")
    if method == "fit":
        result = _perturbation(attack, result)
    plain = _plain(attack, method, result)
    return Played(plain, counter.counts(), frozenset(flags), tuple(counter.trace), counter.seen)


def _perturbation(attack: Attack, fitted: object) -> Tensor:
    """The one y of a universal attack; a `Shift` has it, whatever else its class does."""
    if not isinstance(fitted, Shift):
        raise BadInput(
            f"{type(attack).__name__}.fit should return a Shift, one perturbation for all images, it returned "
            f"{type(fitted).__name__}; an attack on single images has universal = False and perturb"
        )
    return fitted.y


def _plain(attack: Attack, method: str, result: object) -> Tensor:
    """A tensor without a class, a history or a memory that the attack still holds."""
    if not isinstance(result, Tensor):
        raise BadInput(f"{type(attack).__name__}.{method} should return a tensor, it returned {type(result).__name__}")
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        shape, dtype = torch.Tensor.size(result), torch.float64 if result.dtype == torch.float64 else torch.float32
        plain = torch.empty(shape, dtype=dtype, device=result.device)
        plain.copy_(result)  # which may answer with anything, if the result's class has a say in it
        return plain


@dataclass(frozen=True)
class Here:
    """An attack in this process: one of the suite's own, or an object or function that Python code handed over."""

    attack: Attack
    network: nn.Module
    classes: int
    progress: str | None = None
    start: Shift | None = None

    def fit(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played:
        counter = PassCounter(copied(self.network), self.classes, most)
        # How many passes a fit takes only the attack knows, so this bar counts them and has no end.
        with bar(desc=f"{self.progress}, fit", unit="pass", show=self.progress is not None, nested=1) as shown:

            def count(*call: object) -> None:  # what a hook returns would be taken for the network's answer
                shown.update()

            counter.register_forward_hook(count)
            with without_threads():
                return play(self.attack, "fit", counter, as_floats(images), labels, seed, self.start)

    def perturb(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played:
        counter = PassCounter(copied(self.network), self.classes, most)
        with without_threads():
            return play(self.attack, "perturb", counter, images, labels, seed)


def _player(
    attack: Attack, network: nn.Module, classes: int, shape: tuple[int, ...], limits: Limits
) -> AbstractContextManager[Player]:
    apart = getattr(attack, "apart", None)  # of an attack in a user's file
    if apart is not None:
        return cast(AbstractContextManager[Player], apart(network, classes, shape, limits))
    check_methods(attack)
    return nullcontext(Here(attack, network, classes))


def check_methods(attack: Attack) -> None:
    """Refuse an attack that lacks what its kind needs."""
    name, fits = type(attack).__name__, type(attack).fit is not Attack.fit
    if isinstance(attack, Shift):
        return
    if attack.universal and not fits:
        raise BadInput(
            f"{name} says universal = True, but has no fit that returns a Shift, one perturbation for all images; an "
            "attack on single images leaves universal out"
        )
    if not attack.universal and type(attack).perturb is Attack.perturb:
        raise BadInput(f"{name} has no perturb" + ("; with fit alone, say universal = True" if fits else ""))


def _fitted(
    attack: Attack,
    player: Player,
    scene: Scene,
    train: tuple[Tensor, Tensor] | None,
    most: int | None,
    progress: str | None,
    start: Shift | None,
) -> tuple[Tensor, tuple[int, int, int, int], frozenset[str], tuple[Look, ...]]:
    """The y of a universal attack, what it cost, its flags and its way."""
    if train is None:
        raise BadInput(f"{type(attack).__name__} is universal: it needs training images to learn its perturbation")
    spent, noted, ground = (0, 0, 0, 0), frozenset[str](), attack.groundwork()
    if isinstance(player, Here):
        player = replace(player, progress=progress)
        if ground is not None and start is None:
            below = replace(player, attack=ground)
            y, spent, noted, _ = _fitted(ground, below, scene, train, most, progress, None)
            start = Shift(y, eps=ground.eps)
        player = replace(player, start=start if ground is not None else None)
    y, counts, flags, way, seen = player.fit(*train, scene.seed, most)
    flags |= contradicted(seen, scene.judge.answers(*questions(seen)))
    forwards, backwards, gradients, zeros = (before + now for before, now in zip(spent, counts, strict=True))
    return y.float().cpu(), (forwards, backwards, gradients, zeros), flags | noted, way


def _batches(
    attack: Attack,
    ball: Ball,
    player: Player,
    scene: Scene,
    progress: str | None,
    parts: MutableMapping[int, Part] | None,
    passes: int | None,
) -> MutableMapping[int, Part]:
    done: MutableMapping[int, Part] = {} if parts is None else parts
    failures: dict[int, Exception] = {}
    for number in bar(scene.batches, desc=progress, show=progress is not None, nested=1):
        if number in done:
            continue
        try:
            part = _attack_batch(attack, ball, player, scene, number, passes)
        except Exception as error:  # whatever the attack raises
            if parts is None:
                raise
            failures[number] = error
            if len(failures) == GIVE_UP:
                break
        else:
            done[number] = part  # a full disk, which may show here, is not the attack's failure
    if failures:
        raise _failed(attack, failures, len(scene.batches), len(done)) from next(iter(failures.values()))
    return done


def _attack_batch(attack: Attack, ball: Ball, player: Player, scene: Scene, number: int, passes: int | None) -> Part:
    a, b, right = scene.clean(number)
    flags, counts, way, answered = set[str](), (0, 0, 0, 0), tuple[Look, ...](), list[int]()
    # What is wrong already needs no attack; but a universal perturbation meets every image, and may even right one.
    met = torch.ones_like(right) if isinstance(attack, Shift) else right
    still = right.clone()
    if met.any():
        most = None if passes is None else passes * int(met.sum())
        proposed, counts, found, way, seen = player.perturb(a[met], b[met], scene.seed + 1 + number, most)
        moved = accepted(attack, ball, a[met], proposed, flags)
        logits, *again = scene.judge.answers(moved, *questions(seen))
        flags |= found | contradicted(seen, again)
        found_in = classes_of(logits)
        still[met] = found_in == b[met]
        if isinstance(attack, Shift):
            answered = found_in[found_in >= 0].bincount(minlength=logits.shape[1]).tolist()
    scene.clean(number)  # is it still what it was?
    return Part(right.cpu(), still.cpu(), *counts, tuple(sorted(flags)), way, tuple(answered))


def accepted(attack: Attack, ball: Ball, images: Tensor, proposed: Tensor, flags: set[str]) -> Tensor:
    """What an attack proposed, put back into the ball and into [0, 1]; what had to be put back is told in `flags`."""
    name, fixed = type(attack).__name__, isinstance(attack, Shift)
    if proposed.shape != images.shape:
        raise BadInput(
            f"{name}.perturb should return images of shape {tuple(images.shape)}, it returned {tuple(proposed.shape)}"
        )
    proposed = proposed.to(images)
    finite = proposed.isfinite()
    if not finite.all():
        if not finite.flatten(1).all(1).any():
            raise BadInput(f"{name}.perturb returned NaN or infinity in every image")
        flags.add("nan")
        proposed = torch.where(finite, proposed, images)
    # Clipping a + y to [0, 1] is part of applying a universal y, so its box is not judged, and its budget is y's own.
    moved = attack.y[None] if isinstance(attack, Shift) else proposed - images
    if (distances(moved, ball.norm) > ball.eps + slack(ball.eps)).any():
        flags.add("budget")
    if (proposed.min() < -TOLERANCE or proposed.max() > 1 + TOLERANCE) and not fixed:
        flags.add("box")
    return put_back(images, proposed, ball.eps, ball.norm)


def _check_radius(ball: Ball, shape: tuple[int, ...]) -> None:
    """Refuse a radius that no image reaches."""
    if ball.norm not in NORMS:
        raise BadInput(f"an attack's norm is one of {', '.join(NORMS)}, not {ball.norm!r:.40}")
    largest = largest_radius(ball.norm, shape)
    if ball.eps > largest:
        raise BadInput(
            f"no two images of shape {shape} in [0, 1] are {ball.eps:g} apart in {ball.norm}; at most {largest:g}"
        )


def _failed(attack: Attack, failures: dict[int, Exception], batches: int, kept: int) -> Failed:
    first, error = next(iter(failures.items()))
    what = str(error) if isinstance(error, BadInput) else f"it raised {raised(error)}"
    name, also = type(attack).__name__, f" (and on {len(failures) - 1} more)" if len(failures) > 1 else ""
    return Failed(
        f"{name} failed on batch {first + 1} of {batches}{also}: {what}; the results of {kept} batches are kept, and "
        f"the same command starts again at batch {first + 1}"
    )

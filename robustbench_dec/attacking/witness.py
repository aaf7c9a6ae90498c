"""Witness: what a network told an attack on the way, asked of the judge again.

A network could know who asks, by the stack say, and mislead the attack alone. So a few passes of an attack are kept,
with the answer and the gradient that it got, and the judge is asked for the same images together with those that it
judges. Another answer is refused; a gradient that the judge's own answers contradict gets the flag `gradient`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustbench_dec.errors import BadInput

KEPT = 32
"""Images of a pass that are kept."""

ALIKE = 1e-3
"""Differences between two answers that rounding explains, relative to the largest logit."""

STEP = 1e-3
"""How far a pixel is moved to see what a gradient promises."""

CLEAR = 1e-4
"""A promise that is less than this share of the logits drowns in their rounding, and is not looked at."""


@dataclass
class Seen:
    """One pass: its first images, what was answered, and what came of going back from the logits with `pull`."""

    images: Tensor
    logits: Tensor
    pull: Tensor | None = None
    gradient: Tensor | None = None

    @classmethod
    def of(cls, images: Tensor, logits: Tensor) -> "Seen":
        """A pass as it is now, whatever becomes of its tensors."""
        return cls(images[:KEPT].detach().clone(), logits[:KEPT].detach().clone())

    def goes_back(self, pull: Tensor) -> None:
        """Someone differentiates the logits, with this gradient."""
        self._coming = pull[:KEPT].detach().clone()

    def went_back(self, gradient: Tensor) -> None:
        """The images have their gradient; that of several pulls at once is left alone."""
        gradient = gradient[:KEPT].detach().clone()
        if self._coming.shape == self.logits.shape and gradient.shape == self.images.shape:
            self.pull, self.gradient = self._coming, gradient


def kept(passes: int) -> bool:
    """Whether this pass is kept: the first, second, fourth, eighth, ... one, each in the place of the one before."""
    return passes & (passes - 1) == 0


def questions(seen: Seen | None) -> list[Tensor]:
    """What the judge is asked beside the images it judges."""
    if seen is None:
        return []
    if seen.gradient is None:
        return [seen.images]
    step = STEP / 2 * seen.gradient.sign()
    return [seen.images, seen.images + step, seen.images - step]


def contradicted(seen: Seen | None, answered: Sequence[Tensor]) -> frozenset[str]:
    """The flags that follow from the judge's answers; a refusal is raised."""
    if seen is None:
        return frozenset()
    if differ(seen.logits, answered[0]):
        raise BadInput(
            "the network answered the attack otherwise than it answers the same images here, so the attack did not see "
            "what judges it; nothing is kept"
        )
    if seen.gradient is None or seen.pull is None:
        return frozenset()
    pull = seen.pull.double()
    moved = (pull * (answered[1].double() - answered[2].double())).sum(1)
    rounding = CLEAR * float(answered[0].abs().max()) * pull.abs().sum(1)
    return frozenset() if as_promised(moved, seen.gradient, rounding) else frozenset({"gradient"})


def as_promised(moved: Tensor, gradient: Tensor, least: Tensor | float = 0.0) -> bool:
    """Whether something moved (n,) by what its gradient says, in the median image, after a `STEP` along its sign.

    Images for which it says no more than `least` are left out.
    """
    promised = STEP * gradient.flatten(1).abs().sum(1).double()
    clear = promised > least
    if not clear.any():
        return True  # gradients that are zero are counted and flagged by themselves
    return 0.5 <= float((moved[clear] / promised[clear]).median()) <= 2


def differ(first: Tensor, second: Tensor) -> bool:
    """Whether two answers to the same images differ by more than rounding explains."""
    both = first.isfinite() & second.isfinite()
    if not torch.equal(first.isfinite(), second.isfinite()):
        return True
    scale = float(first[both].abs().max()) if both.any() else 1.0
    return bool(((first - second).abs() > ALIKE * (scale or 1.0))[both].any())

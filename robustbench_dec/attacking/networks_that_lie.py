"""What is asked of a network before it is attacked, lest its accuracy under attack say nothing.

Refused: logits of a wrong shape, too few classes, NaN, probabilities in the place of logits (their gradient vanishes),
answers that change from one time to the next, that depend on the other images of the batch, or on whether they are
differentiated. Told by a flag: a gradient that is not the one of the answers, in the direction in which it points.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustbench_dec.attack import eval_mode
from robustbench_dec.attacking.witness import STEP, as_promised, differ
from robustbench_dec.errors import BadInput

ASKED = 32
"""Images that a network is tried on."""


class Findings(NamedTuple):
    """What a network that can be attacked is like."""

    classes: int
    differentiable: bool  # without it, attacks by queries still work
    flags: frozenset[str]


def examine(model: nn.Module, images: Tensor, labels: Tensor) -> Findings:
    """Try a network on images in [0, 1], on its device; a refusal is raised."""
    images, labels = images[:ASKED], labels[:ASKED]
    with torch.inference_mode(False), torch.no_grad(), eval_mode(model):
        logits = _answer(model, images)
        _check_logits(logits, images, labels)
        again, backwards = _answer(model, images), _answer(model, images.flip(0)).flip(0)
        alone = torch.cat([_answer(model, image[None]) for image in images[:2]])
        with torch.enable_grad():
            followed = _answer(model, images.clone().requires_grad_())
    if differ(logits, again):
        raise BadInput("the network answers the same images differently from one time to the next; take its chance out")
    if differ(logits, backwards) or differ(logits[:2], alone):
        raise BadInput(
            "the network's answer to an image depends on the images beside it (as in batch normalisation with the "
            "batch's own statistics); one that depends on the image alone can be attacked"
        )
    if differ(logits, followed.detach()):
        raise BadInput("the network answers otherwise where it is differentiated, so attacks do not see what judges")
    true = not followed.requires_grad or _gradient_is_its_own(model, images)
    return Findings(logits.shape[1], followed.requires_grad, frozenset() if true else frozenset({"gradient"}))


def _answer(model: nn.Module, images: Tensor) -> Tensor:
    try:
        logits = model(images)
    except Exception as error:  # whatever a user's network raises
        raise BadInput(
            f"{type(model).__name__} cannot answer images of shape {tuple(images.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(
            f"a model should return logits of shape (images, classes), this one returned {came} for "
            f"{len(images)} images"
        )
    return logits


def _check_logits(logits: Tensor, images: Tensor, labels: Tensor) -> None:
    classes = logits.shape[1]
    if not logits.isfinite().all():
        bad = int((~logits.isfinite().all(1)).sum())
        raise BadInput(f"the network answers NaN or infinity for {bad} of the first {len(images)} images")
    if classes < 2:
        raise BadInput("the network has 1 class; one that can be attacked tells at least 2 apart")
    if int(labels.max()) >= classes or int(labels.min()) < 0:
        raise BadInput(
            f"the network has {classes} classes, but there are labels from {int(labels.min())} to {int(labels.max())}"
        )
    if (logits >= 0).all() and torch.allclose(logits.sum(1), torch.ones_like(logits[:, 0]), atol=1e-4):
        raise BadInput(
            "the network answers probabilities, whose gradient vanishes where it is sure; take its last softmax out, "
            "so that it answers logits"
        )


def _gradient_is_its_own(model: nn.Module, images: Tensor) -> bool:
    """Whether the margin falls by what the gradient says, in the median image, after a small step along its sign."""

    def margins(a: Tensor) -> Tensor:
        top = model(a).double().topk(2).values
        return top[:, 0] - top[:, 1]

    with torch.inference_mode(False), eval_mode(model), torch.enable_grad():
        a = images.clone().requires_grad_()
        (g,) = torch.autograd.grad(margins(a).sum(), a, allow_unused=True)
    if g is None or g.isnan().any():
        return False
    with torch.inference_mode(False), torch.no_grad(), eval_mode(model):
        step = STEP / 2 * g.sign()
        moved = margins(images + step) - margins(images - step)
    return as_promised(moved, g)

"""What is asked of a user's own network before it is trained, lest its parameters x say less than all about it.

Refused: parameters that are no flat float32 vector, layers that keep or share something between images (BatchNorm),
chance (dropout), answers that are no logits, or depend on the mode, the other images, or on what the constructor drew
beside the parameters; forward passes that change the network, or that cannot be differentiated.
"""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import vector_to_parameters

from robustbench_dec.architecture import Architecture, NormalisedNetwork, flat_parameters
from robustbench_dec.errors import BadInput, raised

IMAGES = 4
"""Images of noise that a network is tried on."""

ALIKE = 1e-3
"""Differences between two answers that rounding explains, relative to the largest logit."""


def check(architecture: Architecture) -> None:
    """Try a network on a few images of noise; a refusal is raised."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = architecture.build()
        _check_parts(network.inside, architecture.name)
        images = torch.rand(IMAGES, *architecture.shape)
        logits = _check_answers(network, images, architecture)
        torch.manual_seed(1)
        other = architecture.build()
        if flat_parameters(other).numel() != flat_parameters(network).numel():
            raise BadInput(f"{architecture.name} has another number of parameters every time it is built")
        vector_to_parameters(flat_parameters(network), other.parameters())
        if _differ(logits, _answer(other, images, architecture), logits):
            raise BadInput(
                f"{architecture.name} draws numbers when it is built that are no parameters, so x does not tell all "
                "about it; make them parameters, or constants"
            )
        _check_gradients(network, images, architecture.name)


def _check_parts(network: nn.Module, name: str) -> None:
    for where, layer in network.named_modules():
        what = f"{name}'s layer '{where}' is a {type(layer).__name__}"
        if isinstance(layer, _BatchNorm):
            raise BadInput(
                f"{what}, which shares statistics between images and keeps them outside of x; take nn.GroupNorm"
            )
        if isinstance(layer, _DropoutNd) and layer.p > 0:
            raise BadInput(f"{what}, which draws at random in every pass; leave it out, as nn.Dropout(0) does")
    parameters = dict(network.named_parameters())
    for where, parameter in parameters.items():
        if isinstance(parameter, UninitializedParameter):
            raise BadInput(f"{name}'s parameter '{where}' has no shape before a first pass; take no lazy layer")
        if parameter.dtype != torch.float32:
            raise BadInput(f"{name}'s parameter '{where}' is of {parameter.dtype}; parameters are torch.float32")
        if not parameter.requires_grad:
            raise BadInput(f"{name}'s parameter '{where}' is frozen, but all are trained; make it a constant")
        if not parameter.isfinite().all():
            raise BadInput(f"{name}'s parameter '{where}' starts with NaN or infinity")
    if not parameters:
        raise BadInput(f"{name} has no parameters, so there is nothing to train; assign layers to self in __init__")
    kept = {*network.state_dict()} - {*parameters}
    for where, _ in network.named_buffers():
        if where in kept:
            layer = type(network.get_submodule(where.rpartition(".")[0])).__name__
            raise BadInput(
                f"{name} keeps a buffer '{where}' in a {layer}, and x has no place for it; take a layer without "
                "one (nn.GroupNorm, not nn.BatchNorm), or register a constant with persistent=False"
            )


def _check_answers(network: NormalisedNetwork, images: Tensor, card: Architecture) -> Tensor:
    name, before = card.name, _state(network)
    with torch.no_grad():
        logits = _answer(network, images, card)
        if any(not a.equal(b) for a, b in zip(before, _state(network), strict=True)):
            raise BadInput(f"{name} changes its own parameters or buffers in its forward pass; only a trainer may")
        torch.manual_seed(2)
        again, alone = _answer(network, images, card), _answer(network, images[:1], card)
        torch.manual_seed(3)
        training = _answer(network.train(), images, card)
    network.eval()
    if _differ(logits, again, logits):
        raise BadInput(f"{name} answers the same images differently from one time to the next; take its chance out")
    if _differ(logits, training, logits):
        raise BadInput(
            f"{name} answers otherwise in training mode than in eval mode (as dropout and BatchNorm do); one that is "
            "the same function in both can be trained here"
        )
    if _differ(logits[:1], alone, logits):
        raise BadInput(
            f"{name}'s answer to an image depends on the images beside it; normalise every image by itself, as "
            "nn.GroupNorm does"
        )
    return logits


def _answer(network: NormalisedNetwork, images: Tensor, card: Architecture) -> Tensor:
    def refuse(came: str) -> NoReturn:
        raise BadInput(
            f"{card.name} should return logits of shape (images, classes), ({len(images)}, {card.classes}) for "
            f"{len(images)} images, not {came}"
        )

    logits = _tried(lambda: network(images), card.name, f"cannot answer images of shape {tuple(images.shape)}")
    if not isinstance(logits, Tensor):
        refuse(f"a {type(logits).__name__}")
    if logits.shape != (len(images), card.classes):
        refuse(f"{tuple(logits.shape)}")
    if logits.dtype != torch.float32:
        refuse(f"{logits.dtype}")
    if not logits.isfinite().all():
        raise BadInput(f"{card.name} answers NaN or infinity before it is trained")
    sums = logits.sum(1)
    if card.classes > 1 and (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        raise BadInput(f"{card.name} answers probabilities; take its last softmax out, so that it answers logits")
    return logits


def _check_gradients(network: NormalisedNetwork, images: Tensor, name: str) -> None:
    parameters = dict(network.named_parameters())
    x = flat_parameters(network).requires_grad_()
    sizes = [parameter.numel() for parameter in parameters.values()]
    parts = {where: part.view_as(parameters[where]) for where, part in zip(parameters, x.split(sizes), strict=True)}
    inputs = images.clone().requires_grad_()

    def differentiated() -> tuple[Tensor | None, ...]:
        loss = nn.functional.cross_entropy(
            functional_call(network, parts, (inputs,)), torch.zeros(len(images), dtype=torch.int64)
        )
        if not loss.requires_grad:
            return None, None
        return torch.autograd.grad(loss, (x, inputs), allow_unused=True)

    gradients = _tried(differentiated, name, "cannot be differentiated")
    assert isinstance(gradients, tuple)
    for gradient, what in zip(gradients, ("its parameters", "the images"), strict=True):
        if gradient is None or not gradient.any():
            raise BadInput(
                f"{name}'s logits have no gradient in {what}; its forward pass may not detach, round, or compute "
                "outside of torch"
            )
        if not gradient.isfinite().all():
            raise BadInput(f"{name}'s gradient in {what} is NaN or infinite before it is trained")


def _tried(do: Callable[[], object], name: str, what: str) -> object:
    try:
        return do()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's network raises
        raise BadInput(f"{name} {what}: {raised(error)}") from error


def _state(network: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*network.parameters(), *network.buffers())]


def _differ(first: Tensor, second: Tensor, logits: Tensor) -> bool:
    return not bool(((first - second).abs() <= ALIKE * (float(logits.abs().max()) or 1.0)).all())

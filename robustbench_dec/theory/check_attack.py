"""Check of an attack: what every attack on the shelf promises, tried on anybody's, on a small network for digits."""

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from robustbench_dec import data
from robustbench_dec.attack import Attack, as_floats
from robustbench_dec.attacking import evaluate as judging
from robustbench_dec.errors import BadInput
from robustbench_dec.theory import binary_head, indicators
from robustbench_dec.theory.check import Outcome, Verdict, tried

EPS = 0.25
"""The radius where none is given: large enough that every attack that works shows it."""

IMAGES, TRAINING, ROUNDS = 60, 200, 60
"""Test images that are attacked, training images for a fit, and steps in which the network is trained."""

HEADS = 10
"""Images around which an adversarial one is known to exist."""

LEFT_THE_BALL = {"budget", "box", "nan"}
"""Flags of what an attack proposed; the others are of what it did to the network."""


def verdicts(attack: Attack, device: str = "cpu") -> Iterator[Verdict]:
    """Every promise in turn; an attack's own errors count as broken promises, bad settings are raised as BadInput."""
    return tried(PROMISES, attack, device)


@functools.cache
def bench() -> tuple[nn.Module, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """A network, test images with labels, and training images with labels."""
    digits = data.load("digits")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(ROUNDS):
            optimiser.zero_grad()
            logits = network(as_floats(digits.train_images))
            nn.functional.cross_entropy(logits, digits.train_labels).backward()
            optimiser.step()
    training = digits.train_images[:TRAINING], digits.train_labels[:TRAINING]
    return network, as_floats(digits.test_images[:IMAGES]), digits.test_labels[:IMAGES], training


def attacked(attack: Attack, device: str, seed: int = 0) -> judging.Outcome:
    network, images, labels, training = bench()
    return judging.evaluate(attack, network.to(device), images, labels, train=training, seed=seed)


def lowers_the_accuracy(attack: Attack, device: str) -> tuple[bool, str]:
    outcome = attacked(attack, device)
    seen = f"{outcome.clean_accuracy:.0%} right without it, {outcome.robust_accuracy:.0%} under it at {attack.eps:g}"
    return outcome.robust_accuracy < outcome.clean_accuracy, seen


def stays_in_its_ball(attack: Attack, device: str) -> tuple[bool, str]:
    left = {}
    for eps in (0.0, attack.eps):
        flags = LEFT_THE_BALL.intersection(attacked(replace(attack, eps=eps), device).flags)
        if flags:
            left[eps] = f"flagged {', '.join(sorted(flags))} at eps {eps:g}"
    return not left, "; ".join(left.values()) or f"nothing had to be put back at eps 0 and {attack.eps:g}"


def leaves_things_alone(attack: Attack, device: str) -> tuple[bool, str]:
    network, *_ = bench()
    before = surroundings(network)
    flags = set(attacked(attack, device).flags) - LEFT_THE_BALL
    after = surroundings(network)
    changed = [name for name in before if before[name] != after[name]] + [f"flag {flag}" for flag in sorted(flags)]
    return not changed, ", ".join(changed) or ", ".join(before)


def surroundings(network: nn.Module) -> dict[str, object]:
    """All that an attack must leave alone, as plain values."""
    return {
        "weights": {name: value.tolist() for name, value in network.state_dict().items()},
        "gradients": [None if p.grad is None else p.grad.tolist() for p in network.parameters()],
        "flags": [p.requires_grad for p in network.parameters()] + [module.training for module in network.modules()],
        "random state": (
            torch.get_rng_state().tolist(),
            [np.asarray(part).tolist() for part in np.random.get_state()],
            random.getstate(),
        ),
    }


def repeats_itself(attack: Attack, device: str) -> tuple[bool, str]:
    if attack.universal:
        first, second = (attacked(attack, device).perturbation for _ in range(2))
        what = "perturbation"
    else:
        network, images, labels, _ = bench()
        first, second = (judging.propose(attack, network, images, labels, seed=0) for _ in range(2))
        what = f"{len(images)} images"
    equal = first is not None and second is not None and torch.equal(first, second)
    return equal, f"{what}, twice" if equal else f"the {what} of two runs with seed 0 differ"


def is_metered(attack: Attack, device: str) -> tuple[Outcome, str]:
    outcome = attacked(attack, device)
    forwards, backwards = (passes / IMAGES for passes in (outcome.forwards, outcome.backwards))
    seen = f"{forwards:.1f} passes forward and {backwards:.1f} back per image"
    if not forwards:
        return "lacks", f"{seen}: it never asks the network that it is given"
    return "kept", seen


def sees_through_a_binary_head(attack: Attack, device: str) -> tuple[Outcome | bool, str]:
    network, images, *_ = bench()
    assert isinstance(network, nn.Sequential)
    try:
        outcome = binary_head.tried(attack, network[:-1].to(device), images[:HEADS])
    except BadInput as error:  # such as an attack that needs four classes
        return "lacks", f"not tried: {error}"
    seen = f"found in {outcome.found} of {outcome.heads} balls around an image; docs/flags.md tells how they are made"
    return outcome.passed, seen


def gives_back_what_it_found(attack: Attack, device: str) -> tuple[Outcome, str]:
    if attack.universal:
        return "kept", "one perturbation for all images has no way of its own for each"
    network, images, labels, _ = bench()
    way = indicators.watch(attack, network.to(device), images.to(device), labels.to(device))
    if way.silent:
        return "lacks", f"{way.silent} of {way.images} images were broken on the way and given back right"
    return "kept", f"no image that was broken in one of {way.passes} passes was given back right"


def climbs_to_the_end(attack: Attack, device: str) -> tuple[Outcome, str]:
    if attack.universal:
        return "kept", "not looked at for a universal attack"
    network, images, labels, _ = bench()
    way = indicators.watch(attack, network.to(device), images.to(device), labels.to(device))
    if way.moved is None:
        return "kept", f"not judged by {way.passes} passes of all images"
    seen = f"{way.moved:.0%} of the loss's rise came in the last tenth of {way.passes} passes"
    return ("lacks", f"{seen}: more steps would go on") if way.moved > indicators.MOVES else ("kept", seen)


PROMISES: dict[str, Callable[[Attack, str], tuple[Outcome | bool, str]]] = {
    "it lowers the accuracy of a small network": lowers_the_accuracy,
    "it finds an adversarial image that is known to exist": sees_through_a_binary_head,
    "what it finds on the way it gives back": gives_back_what_it_found,
    "its loss has stopped rising at the end": climbs_to_the_end,
    "it stays in its ball and in [0, 1] by itself": stays_in_its_ball,
    "weights, gradients, flags and random state are left alone": leaves_things_alone,
    "same seed, same bits": repeats_itself,
    "its passes through the network are counted": is_metered,
}

"""The unit test of attacks: an adversarial image exists by construction, and only an attack that tries finds it."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustbench_dec import shelf
from robustbench_dec.attack import NORMS, Attack, Shift, distances
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.theory import binary_head, check_attack, indicators
from tests.support import ROOT

EPS = 0.25


@pytest.fixture(scope="module")
def features() -> nn.Module:
    network, *_ = check_attack.bench()
    assert isinstance(network, nn.Sequential)
    return network[:-1]


@pytest.fixture(scope="module")
def images() -> Tensor:
    return check_attack.bench()[1][:3]


@dataclass(frozen=True)
class GivesBack(Attack):
    """The clean image."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return images


@dataclass(frozen=True)
class Ascent(Attack):
    """PGD by hand, with a step and a factor on the gradient."""

    step: float = 0.25
    factor: float = 1.0

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        low, high = (images - self.eps).clamp(0, 1), (images + self.eps).clamp(0, 1)
        moved = images + (2 * torch.rand_like(images) - 1) * self.eps * self.step
        for _ in range(20):
            moved = moved.detach().clamp(low, high).requires_grad_()
            (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(moved), labels), moved)
            moved = moved + self.step * self.eps * (self.factor * g).sign()
        return moved.detach().clamp(low, high)


@dataclass(frozen=True)
class Guess(Attack):
    """One random point of the ball."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return (images + (2 * torch.rand_like(images) - 1) * self.eps).clamp(0, 1)


@dataclass(frozen=True)
class Nothing(Attack):
    """A universal perturbation that is none."""

    universal = True

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Shift:
        return Shift(torch.zeros(images.shape[1:]))


@pytest.mark.parametrize("norm", NORMS)
def test_the_boundary_points_are_adversarial_and_the_draws_inside_are_not(
    norm: str, features: nn.Module, images: Tensor
) -> None:
    eps = 10.0 if norm == "L0" else EPS
    for number, image in enumerate(images):
        head = binary_head.constructed(features, image, norm, eps, number)
        assert head is not None
        with torch.random.fork_rng():
            torch.manual_seed(number)  # the same draws again
            inside = binary_head._drawn(image, norm, eps, binary_head.INSIDE, boundary=False)
            edge = binary_head._drawn(image, norm, eps, binary_head.BOUNDARY, boundary=True)
        for points in (inside, edge):
            assert (distances(points - image, norm) <= eps + 1e-5).all() and points.min() >= 0 and points.max() <= 1
        with torch.no_grad():
            assert (head(edge).argmax(1) == 1).all()
            assert (head(torch.cat([inside, image[None]])).argmax(1) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [GivesBack(EPS), Guess(EPS), Ascent(EPS, factor=0.0), Ascent(EPS, step=1e-3), Nothing(EPS)],
    ids=["clean image", "one guess", "zeroed gradient", "steps of eps / 1000", "no universal perturbation"],
)
def test_who_does_not_try_fails(attack: Attack, features: nn.Module, images: Tensor) -> None:
    outcome = binary_head.tried(attack, features, images)
    assert outcome.heads == len(images) and outcome.found == 0 and not outcome.passed


@pytest.mark.slow
def test_the_same_ascent_with_its_gradient_passes(features: nn.Module, images: Tensor) -> None:
    assert binary_head.tried(Ascent(EPS), features, images).passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fgsm", {}),
        ("pgd", {}),
        ("uap", {"steps": 20, "search": 5, "restarts": 1, "sga": 0, "looks": 1}),
        ("uap", {"steps": 20, "search": 0, "step": "sign", "restarts": 1, "sga": 0, "looks": 1}),
        ("uap", {"steps": 10, "search": 0, "restarts": 1, "sga": 1, "looks": 1}),
        ("uap_annealed", {"steps": 10, "search": 5, "starts": 1, "kept": 1, "looks": 1}),
        ("strong", {}),
        ("torchattacks:MIFGSM", {}),
        ("torchattacks:PGDL2", {}),
        ("torchattacks:Square", {"n_queries": 500}),
    ],
)
def test_who_tries_passes(name: str, settings: dict[str, Any], features: nn.Module, images: Tensor) -> None:
    attack = shelf.make(attack_named(name), {"eps": EPS, **settings})
    assert binary_head.tried(attack, features, images).passed


@dataclass(frozen=True)
class Forgets(Attack):
    """Asks about a good image, and gives back the clean one."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        model(Ascent(self.eps).perturb(model, images, labels))
        return images


def test_a_success_on_the_way_that_is_not_given_back_is_seen() -> None:
    network, images, labels, _ = check_attack.bench()
    right = network(images).argmax(1) == labels
    images, labels = images[right], labels[right]
    assert indicators.watch(Forgets(EPS), network, images, labels).silent > len(images) // 2
    assert indicators.watch(GivesBack(EPS), network, images, labels).silent == 0
    assert check_attack.gives_back_what_it_found(Forgets(EPS), "cpu")[0] == "lacks"


def test_a_loss_that_still_rises_is_seen() -> None:
    network, images, labels, _ = check_attack.bench()
    slow = indicators.watch(Ascent(EPS, step=0.01), network, images, labels).moved
    done = indicators.watch(Ascent(EPS, step=0.25), network, images, labels).moved
    assert slow is not None and done is not None and done <= indicators.MOVES < slow
    assert check_attack.climbs_to_the_end(Ascent(EPS, step=0.01), "cpu")[0] == "lacks"
    assert indicators.watch(GivesBack(EPS), network, images, labels).moved is None


def test_an_attack_for_more_classes_is_told_not_tried() -> None:
    attack = shelf.make(attack_named("torchattacks:APGDT"), {"eps": EPS, "steps": 2})
    outcome, seen = check_attack.sees_through_a_binary_head(attack, "cpu")
    assert outcome == "lacks" and "classes" in seen


def test_at_least_twenty_of_the_librarys_attacks_pass() -> None:
    """The whole library is tried by benchmarks/binary_heads.py, which takes minutes; this reads what it wrote."""
    with Path(ROOT / "benchmarks" / "binary_heads.csv").open() as file:
        rows = list(csv.DictReader(file))
    theirs = [row for row in rows if row["attack"].startswith("torchattacks:")]
    assert len(theirs) == 39 - 2  # all but the two that the shelf refuses
    assert sum(row["passed"] == "True" for row in theirs) >= 20
    ours = {row["attack"]: row["passed"] for row in rows if row not in theirs}
    assert ours == dict.fromkeys(("fgsm", "pgd", "strong", "uap", "uap_annealed"), "True")
    for row in rows:
        if row["heads"]:
            assert (row["passed"] == "True") == (int(row["found"]) >= binary_head.FOUND * int(row["heads"]))

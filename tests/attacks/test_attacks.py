"""What every attack on the shelf promises, and what the harness does not let any attack decide."""

import copy
import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torchattacks
from torch import Tensor, nn
from tqdm import tqdm

from attacks.fgsm import FGSM
from attacks.pgd import PGD
from attacks.uap import UAP
from robustbench_dec import shelf
from robustbench_dec.attack import TOLERANCE, Attack, Shift, as_floats, predictions
from robustbench_dec.attacking.evaluate import evaluate, propose
from robustbench_dec.errors import BadInput

Training = tuple[Tensor, Tensor]

QUICK: dict[str, dict[str, Any]] = {
    "uap": {"steps": 20, "batch": 64, "search": 3, "restarts": 1, "looks": 2},
    "uap_annealed": {"steps": 10, "search": 4, "starts": 2, "kept": 1, "judged": 200},
    "strong": {"steps": 5, "queries": 20},
}
"""Settings that make an attack's tests fast; one without an entry runs with its defaults."""

on_every_attack = pytest.mark.parametrize("name", shelf.names("attack"))


def built(name: str, eps: float, **settings: Any) -> Attack:
    cls = shelf.find("attack", name, Attack)
    return shelf.make(cls, {"eps": eps, **QUICK.get(name, {}), **settings})


# Every attack


@pytest.mark.slow
@on_every_attack
def test_it_lowers_the_accuracy_of_a_trained_network(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    outcome = evaluate(built(name, 0.25), model, images, labels, train=training)
    assert outcome.clean_accuracy > 0.8
    assert outcome.robust_accuracy < outcome.clean_accuracy - 0.15


@pytest.mark.slow
@on_every_attack
@pytest.mark.parametrize("eps", [0.0, 0.03, 0.3])
def test_it_stays_in_its_ball_and_in_the_box_by_itself(
    name: str, eps: float, model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    attack = built(name, eps)
    outcome = evaluate(attack, model, images, labels, train=training)
    assert {*outcome.flags} <= {"not_converged"}  # the harness had nothing to put back; these are few steps
    fitted = attack.fit(model, *training) if attack.universal else attack
    flags: set[str] = set()
    proposed = propose(fitted, model, images, labels, seed=0, flags=flags)
    assert flags == set()
    assert (proposed - images).abs().max() <= eps + TOLERANCE
    assert proposed.min() >= 0 and proposed.max() <= 1
    if eps == 0:
        assert outcome.robust.equal(outcome.clean)
    else:
        assert (proposed - images).abs().max() > 0.9 * eps


@pytest.mark.slow
@on_every_attack
def test_what_was_wrong_before_is_right_after_only_if_the_one_perturbation_for_all_rights_it(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    mixed = torch.where(torch.arange(len(labels)) % 2 == 0, labels, (labels + 1) % 10)
    attack = built(name, 0.3)
    outcome = evaluate(attack, model, images, mixed, train=training)
    assert outcome.clean.any() and not outcome.clean.all()
    assert outcome.clean.equal(predictions(model, images) == mixed)
    if attack.universal:
        assert outcome.perturbation is not None
        assert outcome.robust.equal(predictions(model, (images + outcome.perturbation).clamp(0, 1)) == mixed)
    else:
        assert not (outcome.robust & ~outcome.clean).any()


@pytest.mark.slow
@on_every_attack
def test_same_seed_same_result_whatever_the_global_random_state(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    outcomes = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)
        random.seed(state)
        outcomes.append(evaluate(built(name, 0.1), model, images, labels, train=training, seed=5))
    first, second = outcomes
    assert first.robust.equal(second.robust)
    if first.perturbation is None or second.perturbation is None:
        assert first.perturbation is second.perturbation
    else:
        assert first.perturbation.equal(second.perturbation)
    assert (first.forwards, first.backwards) == (second.forwards, second.backwards)


class Left(list[int]):
    """Passes that are left to a network and all its copies."""

    def __deepcopy__(self, memo: object) -> "Left":
        return self


class Delicate(nn.Module):
    """Dropout, batch normalisation, frozen parts and gradients in waiting; on demand it fails in an attack's pass."""

    def __init__(self, passes: int | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)
            )
        self.passes = None if passes is None else Left([passes])
        self.train()
        self.layers[2].eval()  # a frozen normalisation in a model that trains
        self.layers[1].weight.requires_grad_(False)
        self.layers[5].weight.grad = torch.ones(10, 32)

    def forward(self, images: Tensor) -> Tensor:
        if self.passes is not None and images.requires_grad:
            self.passes[0] -= 1
            if self.passes[0] < 0:
                torch.rand(3), np.random.rand(3), random.random()
                self.train()
                raise RuntimeError("half-way")
        logits: Tensor = self.layers(images)
        return logits


def everything_about(model: nn.Module) -> dict[str, Any]:
    """All that an attack must leave alone, as plain values."""
    return {
        "training": [module.training for module in model.modules()],
        "tensors": {name: value.tolist() for name, value in model.state_dict().items()},
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "gradients": [None if p.grad is None else (id(p.grad), p.grad.tolist()) for p in model.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
        "torch": torch.get_rng_state().tolist(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
        "python": random.getstate(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


@pytest.mark.slow
@on_every_attack
def test_it_leaves_model_and_random_state_alone(name: str, images: Tensor, training: Training) -> None:
    model = Delicate()
    labels = predictions(copy.deepcopy(model).eval(), images)
    before = everything_about(model)
    outcome = evaluate(built(name, 0.3), model, images, labels, train=training)
    assert everything_about(model) == before
    assert outcome.clean.all() and not outcome.robust.all()


@pytest.mark.slow
@on_every_attack
def test_it_leaves_model_and_random_state_alone_when_it_fails_half_way(
    name: str, images: Tensor, training: Training
) -> None:
    model = Delicate(passes=2 if name == "fgsm" else 3)  # two of them are the harness's own
    labels = predictions(copy.deepcopy(model).eval(), images)
    before = everything_about(model)
    with pytest.raises(RuntimeError, match="half-way"):
        evaluate(built(name, 0.3), model, images, labels, train=training)
    assert everything_about(model) == before


# The two attacks of torchattacks


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack, direct",
    [
        (FGSM(0.1), lambda model: torchattacks.FGSM(model, eps=0.1)),
        (
            PGD(0.1, steps=8, random_start=False),
            lambda model: torchattacks.PGD(model, eps=0.1, alpha=0.025, steps=8, random_start=False),
        ),
        (
            PGD(0.1, steps=8, rel_alpha=0.5),
            lambda model: torchattacks.PGD(model, eps=0.1, alpha=0.05, steps=8, random_start=True),
        ),
    ],
    ids=["fgsm", "pgd", "pgd-random-start"],
)
def test_it_equals_a_direct_torchattacks_call(
    attack: Attack, direct: Callable[[nn.Module], Any], model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = direct(model)(images, labels)
        torch.manual_seed(7)
        assert attack.perturb(model, images, labels).equal(expected)
    proposed = propose(attack, model, images, labels, seed=7)
    assert (proposed - expected).abs().max() < 1e-6  # the harness clips once more, in floats
    # The harness attacks only what is right, under the seed of its first batch.
    right = predictions(model, images) == labels
    with torch.random.fork_rng():
        torch.manual_seed(7)
        still = predictions(model, direct(model)(images[right], labels[right])) == labels[right]
    outcome = evaluate(attack, model, images, labels, seed=6)
    assert outcome.robust[right].equal(still)
    assert not still.all()


def test_the_random_start_of_pgd_depends_on_the_seed(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    attack = PGD(0.1, steps=1, rel_alpha=1.0)
    assert not propose(attack, model, images, labels, seed=0).equal(propose(attack, model, images, labels, seed=1))


def test_pgd_steps_grow_with_the_radius_unless_they_are_given() -> None:
    assert PGD(0.2).settings()["alpha"] == 2 * PGD(0.1).settings()["alpha"] > 0
    assert PGD(0.2, alpha=0.04).settings()["alpha"] == PGD(0.1, alpha=0.04).settings()["alpha"] == 0.04


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 3}, "3 steps of alpha 0.025 cannot reach the radius 0.1"),
        ({"steps": 40, "alpha": 2 / 1000}, "cannot reach"),
        ({"alpha": float("nan")}, "cannot reach"),
        ({"alpha": float("inf")}, "cannot reach"),
        ({"alpha": -0.1}, "cannot reach"),
        ({"steps": 0}, "at least 1 step"),
        ({"eps": -0.1}, "0 or more"),
        ({"eps": float("nan")}, "0 or more"),
        ({"eps": float("inf")}, "0 or more"),
    ],
)
def test_a_pgd_that_cannot_work_is_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        PGD(**{"eps": 0.1} | settings)  # type: ignore[arg-type]


def test_pgd_may_reach_its_radius_exactly() -> None:
    assert PGD(0.3, steps=10, rel_alpha=0.1).step_size * 10 == pytest.approx(0.3)


# The universal perturbation


class Shared(list[Tensor]):
    """What all copies of a network write into."""

    def __deepcopy__(self, memo: Any) -> "Shared":
        return self


class Recorder(nn.Module):
    """A model that keeps what it was shown."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.seen = Shared()

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images.detach().clone())
        logits: Tensor = self.model(images)
        return logits


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"step": "sign", "search": 0},
        {"step": "adam", "search": 0},
        {"step": "momentum", "steps": 30, "search": 10},
    ],
    ids=lambda settings: settings["step"],
)
def test_a_uap_is_the_same_for_all_images_and_within_its_radius(
    settings: dict[str, Any], model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    attack = built("uap", 0.25, **settings)
    recorder = Recorder(model)
    labels = torch.cat([labels[:50], (labels[50:] + 1) % 10])  # wrong ones meet it too
    outcome = evaluate(attack, recorder, images, labels, train=training)
    y = outcome.perturbation
    assert y is not None and y.shape == images.shape[1:]
    assert 0.2 < y.abs().max() <= 0.25 + TOLERANCE
    judged = recorder.seen[-2]  # what decided the accuracy; the last are the clean images once more
    assert torch.allclose(judged, (images + y).clamp(0, 1), atol=1e-6)
    assert outcome.robust_accuracy < outcome.clean_accuracy - 0.1


def test_a_fit_shows_its_passes(
    model: nn.Module, images: Tensor, labels: Tensor, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars = []

    def silent(*arguments: Any, show: bool, **settings: Any) -> Any:
        bars.append(tqdm(*arguments, file=io.StringIO(), **settings))
        assert show
        return bars[-1]

    monkeypatch.setattr("robustbench_dec.attacking.evaluate.bar", lambda *a, nested, **settings: silent(*a, **settings))
    plain = {"steps": 7, "search": 0, "sga": 0, "looks": 1}
    evaluate(built("uap", 0.2, **plain), model, images, labels, train=training, progress="uap 0.2")
    assert [(bar.desc, bar.n) for bar in bars] == [("uap 0.2, fit", 7 + 1), ("uap 0.2", 1)]  # one judges the end


@pytest.mark.slow
def test_a_uap_is_fitted_on_training_images_only(
    model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    def fitted(first: int, last: int, train: Training = training) -> Tensor:
        outcome = evaluate(built("uap", 0.2), model, images[first:last], labels[first:last], train=train)
        assert outcome.perturbation is not None
        return outcome.perturbation

    assert fitted(0, 30).equal(fitted(30, 60))
    assert not fitted(0, 30).equal(fitted(0, 30, (training[0][:50], training[1][:50])))


def test_fitting_shows_the_model_perturbed_training_images_only(model: nn.Module, training: Training) -> None:
    recorder = Recorder(model)
    attack = UAP(0.0, steps=3, batch=16, search=1)  # radius 0, so that images can be recognised
    attack.fit(recorder, *training)
    known = {image.numpy().tobytes() for image in as_floats(training[0])}
    assert all(image.numpy().tobytes() in known for batch in recorder.seen for image in batch)


def test_without_training_images_there_is_no_uap(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    with pytest.raises(BadInput, match="needs training images"):
        evaluate(UAP(0.2), model, images, labels)
    with pytest.raises(BadInput, match="call fit first"):
        UAP(0.2).perturb(model, images, labels)


# The harness


@pytest.mark.slow
def test_passes_are_counted_for_the_images_that_are_attacked(
    model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    labels = torch.cat([labels[:50], (labels[50:] + 1) % 10])  # ten at least are wrong before the attack
    correct = int((predictions(model, images) == labels).sum())
    assert 40 <= correct <= 50
    fgsm = evaluate(FGSM(0.1), model, images, labels)
    assert (fgsm.forwards, fgsm.backwards) == (correct, correct)
    pgd = evaluate(PGD(0.1, steps=7), model, images, labels, batch_size=25)
    assert (pgd.forwards, pgd.backwards) == (7 * correct, 7 * correct)
    plain = UAP(0.1, steps=5, batch=16, restarts=2, search=0, sga=0, looks=1)
    uap = evaluate(plain, model, images, labels, train=training)
    assert uap.backwards == 2 * 5 * 16
    assert uap.forwards == 2 * (5 * 16 + len(training[0]))


@dataclass(frozen=True)
class Mine(Attack):
    """A user's attack that returns whatever a test wants."""

    answer: Callable[[Tensor], Any]
    given: list[Tensor] = field(default_factory=list)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        self.given.append(images.clone())
        result: Tensor = self.answer(images)
        return result


@pytest.mark.parametrize(
    "answer, came",
    [
        (lambda images: images[:-1], r"images of shape \(60, 1, 8, 8\).*\(59, 1, 8, 8\)"),
        (lambda images: images.flatten(1), r"\(60, 64\)"),
        (lambda images: None, "NoneType"),
        (lambda images: images.tolist(), "list"),
    ],
    ids=["fewer", "flat", "nothing", "list"],
)
def test_images_of_another_shape_are_refused(
    answer: Callable[[Tensor], Any], came: str, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    with pytest.raises(BadInput, match=rf"Mine\.perturb should return .*{came}"):
        propose(Mine(0.1, answer), model, images, labels, seed=0)


def spoiled(images: Tensor, value: float) -> Tensor:
    images = images.clone()
    images[1:] = value
    return images


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nothing_but_nan_is_no_attack(value: float, model: nn.Module, images: Tensor, labels: Tensor) -> None:
    with pytest.raises(BadInput, match=r"Mine\.perturb returned NaN or infinity in every image"):
        evaluate(Mine(0.1, lambda images: torch.full_like(images, value)), model, images, labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer, flags",
    [
        (lambda images: spoiled(images, torch.nan), {"nan"}),
        (lambda images: spoiled(images, torch.inf), {"nan"}),
        (lambda images: torch.where(images < 0.5, images + 0.2, images - 0.2), {"budget"}),
        (lambda images: images - 0.1, {"box"}),
        (lambda images: images + 0.1, {"box"}),
        (lambda images: images + 3, {"box", "budget"}),
        (lambda images: (images + 0.1).clamp(0, 1), set()),
    ],
    ids=["nan", "infinity", "budget", "below", "above", "both", "fair"],
)
def test_what_leaves_the_rules_is_flagged_and_put_back(
    answer: Callable[[Tensor], Tensor], flags: set[str], model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    attack = Mine(0.1, answer)
    found: set[str] = set()
    proposed = propose(attack, model, images, labels, seed=0, flags=found)
    assert found == flags
    assert proposed.isfinite().all()
    assert (proposed - images).abs().max() <= 0.1 + TOLERANCE
    assert proposed.min() >= 0 and proposed.max() <= 1
    if flags == {"nan"}:
        assert proposed.equal(images)
    outcome = evaluate(attack, model, images, labels)
    assert outcome.flags == tuple(sorted(flags))
    assert outcome.robust[outcome.clean].equal((predictions(model, proposed) == labels)[outcome.clean])


def test_an_attack_cannot_write_into_the_images_it_is_given(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    attack = Mine(0.1, lambda images: images.fill_(0.5))
    found: set[str] = set()
    proposed = propose(attack, model, images, labels, seed=0, flags=found)
    assert found == {"budget"}
    assert (proposed - images).abs().max() == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("spoil", [2.0, -0.01, torch.nan], ids=["above", "below", "nan"])
@pytest.mark.parametrize("right", [True, False])
def test_images_outside_the_unit_box_are_refused_whether_classified_right_or_not(
    spoil: float, right: bool, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    images = images.clone()
    images[3, 0, 0, 0] = spoil
    predicted = predictions(model, images)
    with pytest.raises(BadInput, match=r"images in \[0, 1\]"):
        evaluate(FGSM(0.1), model, images, predicted if right else (predicted + 1) % 10)


def test_no_images_are_refused(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    with pytest.raises(BadInput, match="no images"):
        evaluate(FGSM(0.1), model, images[:0], labels[:0])


def test_only_images_that_are_right_are_attacked_and_no_attack_earns_points(
    model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    predicted = predictions(model, images)
    attack = Mine(1.0, lambda attacked: attacked)
    wrong = evaluate(attack, model, images, (predicted + 1) % 10)
    assert wrong.clean_accuracy == wrong.robust_accuracy == 0
    assert attack.given == []  # nothing to attack
    third = torch.where(torch.arange(len(images)) % 3 == 0, predicted, (predicted + 1) % 10)
    mixed = evaluate(attack, model, images, third)
    assert mixed.robust.equal(mixed.clean)
    assert mixed.robust_accuracy == pytest.approx(1 / 3)
    assert torch.cat(attack.given).equal(images[::3])


@pytest.mark.slow
def test_bytes_and_floats_are_attacked_alike_and_batches_do_not_matter(
    model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    as_bytes = (images * 255).round().to(torch.uint8)
    expected = evaluate(FGSM(0.1), model, images, labels)
    for outcome in (
        evaluate(FGSM(0.1), model, as_bytes, labels),
        evaluate(FGSM(0.1), model, images, labels, batch_size=7),
    ):
        assert outcome.robust.equal(expected.robust) and outcome.clean.equal(expected.clean)


@pytest.mark.slow
def test_a_model_that_was_left_in_train_mode_is_judged_in_eval_mode(images: Tensor) -> None:
    model = Delicate()
    judged = copy.deepcopy(model).eval()
    labels = predictions(judged, images)
    as_left, expected = evaluate(FGSM(0.05), model, images, labels), evaluate(FGSM(0.05), judged, images, labels)
    assert as_left.clean.all()
    assert as_left.robust.equal(expected.robust)


@pytest.mark.slow
@pytest.mark.parametrize("outer", [torch.no_grad, torch.inference_mode])
def test_attacks_differentiate_wherever_they_are_called(
    outer: Callable[[], Any], model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    expected = evaluate(FGSM(0.1), model, images, labels)
    with outer():
        inside = evaluate(FGSM(0.1), model, images, labels)
    assert inside.robust.equal(expected.robust)
    assert inside.backwards == expected.backwards > 0


@dataclass(frozen=True)
class Cheat(Attack):
    """A universal attack whose fit widens the radius, or whose perturbation is wider than it says."""

    universal: ClassVar[bool] = True
    claimed: float
    used: float

    def fit(self, model: nn.Module, images: Tensor, labels: Tensor) -> Attack:
        return Shift(torch.full(images.shape[1:], self.used), eps=self.claimed)


@pytest.mark.slow
def test_a_fit_cannot_widen_the_radius(model: nn.Module, images: Tensor, labels: Tensor, training: Training) -> None:
    fair = evaluate(Cheat(0.1, 0.1, 0.1), model, images, labels, train=training)
    assert fair.flags == ()
    for claimed in (0.1, 0.9):
        outcome = evaluate(Cheat(0.1, claimed, 0.9), model, images, labels, train=training)
        assert outcome.flags == ("budget",) and outcome.robust.equal(fair.robust)


@dataclass(frozen=True)
class Vandal(FGSM):
    """Reseeds, flips modes and flags, and gives up half-way."""

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        super().perturb(model, images, labels)
        torch.manual_seed(0), np.random.seed(0), random.seed(0)
        model.train()
        for p in model.parameters():
            p.requires_grad_(True)
            p.grad = torch.zeros_like(p)
        raise RuntimeError("half-way")


def test_a_users_attack_that_raises_half_way_leaves_all_as_it_was(images: Tensor) -> None:
    model = Delicate()
    labels = predictions(copy.deepcopy(model).eval(), images)
    before = everything_about(model)
    with pytest.raises(RuntimeError, match="half-way"):
        evaluate(Vandal(0.1), model, images, labels)
    assert everything_about(model) == before

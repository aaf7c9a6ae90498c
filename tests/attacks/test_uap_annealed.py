"""UAP by anneals: what its steps are, which of them go on, what radii share, and that it finds what is there."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacks.uap_annealed import COOL, HOT, WARM, UAPAnnealed
from robustbench_dec.attack import Shift, accuracy, as_floats
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.climb import Climb, Direction, Found
from robustbench_dec.errors import BadInput
from tests.support.universal import Linear, Listener, images_of_linear

Training = tuple[Tensor, Tensor]
SMALL: dict[str, Any] = {"steps": 10, "search": 4, "starts": 2, "kept": 2}


def test_the_strongest_perturbation_of_a_linear_network_is_found() -> None:
    """Known by construction (see test_uap.py): y = eps sign(w_1 - w_0) leaves 60 of 200 right, no other end fewer."""
    network = Linear()
    images, labels = images_of_linear(network)
    strongest = (network.w[1] - network.w[0]).detach().sign().view(1, 4, 4)
    for eps in (0.05, 0.1, 0.2):
        outcome = evaluate(UAPAnnealed(eps, anchor=0.1, **SMALL), network, images, labels, train=(images, labels))
        assert outcome.robust_accuracy == pytest.approx(0.3)
        assert outcome.perturbation is not None and torch.equal(outcome.perturbation.sign(), strongest)


def followed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Tensor, list[float], Found]]:
    """Every ascent: its name, where it began, its steps and where it ended."""
    ascents: list[tuple[str, Tensor, list[float], Found]] = []
    climbed = Climb.up

    def up(
        climb: Climb, start: Tensor, direction: Direction, alphas: Sequence[float], name: str, looks: int = 1
    ) -> Found:
        found = climbed(climb, start, direction, alphas, name, looks)
        ascents.append((name, start, list(alphas), found))
        return found

    monkeypatch.setattr(Climb, "up", up)
    return ascents


def test_the_best_go_on_and_the_worst_y_is_taken(
    model: nn.Module, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    ascents = followed(monkeypatch)
    y = UAPAnnealed(0.3, **SMALL).fit(model, *training).y
    searched, starts, kept, refined, sga = ascents[:10], ascents[10:14], ascents[14:16], ascents[16:19], ascents[19:]
    assert [name for name, *_ in searched] == [f"search {c}" for c in range(10)]
    best = sorted(range(10), key=lambda c: searched[c][3].accuracy)[:2]
    assert [name for name, *_ in starts] == [f"start {k} to {c}" for k in range(2) for c in best]
    assert [name for name, *_ in kept] == ["kept 0", "kept 1"]
    assert [name for name, *_ in refined + sga] == ["refine 0", "refine 1", "refine 2", "sga 0"]
    for name, start, alphas, _ in searched + starts:
        assert not start.any() and alphas[0] == pytest.approx(0.3 * HOT), name
        assert len(alphas) == (4 if name.startswith("search") else 10)
    ends = sorted(found for *_, found in starts)
    for (_, start, alphas, _), end in zip(kept, ends, strict=False):
        assert start.equal(end.y) and len(alphas) == 20 and alphas[0] == pytest.approx(0.3 * WARM)
    for place, (name, start, alphas, _) in enumerate(refined + sga, 16):
        assert start.equal(min(found for *_, found in ascents[:place]).y)
        rho = {"refine 0": HOT, "refine 1": WARM}.get(name, COOL)
        assert alphas[0] == pytest.approx(0.3 * rho) and len(alphas) == (2 if name == "sga 0" else 20)
        assert alphas == sorted(alphas, reverse=True) and alphas[-1] == pytest.approx(alphas[0] / len(alphas))
    assert y.equal(min(found for *_, found in ascents).y)


def test_twice_the_steps_are_twice_the_steps_of_every_anneal(
    model: nn.Module, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    ascents = followed(monkeypatch)
    for times in (1, 2):
        UAPAnnealed(0.3, **SMALL | {"steps": 10 * times, "search": 4 * times}).fit(model, *training)
    lengths = [len(alphas) for _, _, alphas, _ in ascents]
    half = len(lengths) // 2
    assert [2 * length for length in lengths[:half]] == lengths[half:]


@pytest.mark.parametrize("kind", ["pulled", "refined"])
def test_the_first_step_follows_the_formula(kind: str, model: nn.Module, training: Training) -> None:
    """y1 = P(rho eps sign g) from y = 0, and from y: the gradients of the docstring."""
    alone = training[0][:1].expand(32, -1, -1, -1), training[1][:1].expand(32)  # every minibatch is this image
    image, label = as_floats(alone[0][:1]), alone[1][:1]
    rest: dict[str, Any] = {"classes": 1, "starts": 1, "kept": 1, "sga": 0, "looks": 1, "pull": 0.5}

    def stepped(y: Tensor, rho: float, c: int | None) -> Tensor:
        y = y.clone().requires_grad_()
        logits = model((image + y).clamp(0, 1))
        if c is None:
            gain = -logits.softmax(1)[0, label.item()]
        else:
            away, towards = (nn.functional.cross_entropy(logits, t) for t in (label, torch.tensor([c])))
            gain = away - 0.5 * towards
        return (y + rho * 0.2 * torch.autograd.grad(gain, y)[0].sign()).clamp(-0.2, 0.2).detach()

    zero = torch.zeros(image.shape[1:])
    with pytest.MonkeyPatch.context() as patch:
        ascents = followed(patch)
        UAPAnnealed(0.2, search=1, steps=1, rounds=1, **rest).fit(model, *alone)
    by_name = {name: (start, found) for name, start, _, found in ascents}
    if kind == "pulled":
        for c in range(10):
            assert by_name[f"search {c}"][1].y.equal(stepped(zero, HOT, c))
    else:  # of two steps the second is half as long
        start, found = by_name["refine 0"]
        assert found.y.sub(stepped(start, HOT, None)).abs().max() <= 0.2 * HOT / 2 + 1e-6
        assert found.y.sub(start).abs().max() > 0


def test_a_radius_that_starts_from_another_gives_the_same_whether_that_one_is_stored_or_not(
    model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    attack = UAPAnnealed(0.2, anchor=0.25, **SMALL)
    ground = attack.groundwork()
    assert ground == UAPAnnealed(0.25, anchor=0.25, **SMALL) and ground.groundwork() is None
    below = evaluate(ground, model, images, labels, train=training, seed=3)
    assert below.perturbation is not None
    stored = Shift(below.perturbation, eps=0.25)
    fresh = evaluate(attack, model, images, labels, train=training, seed=3)
    again = evaluate(attack, model, images, labels, train=training, seed=3, start=stored)
    assert fresh.perturbation is not None and again.perturbation is not None
    assert fresh.perturbation.equal(again.perturbation) and fresh.trace == again.trace
    assert fresh.backwards == again.backwards + below.backwards
    assert again.trace[0].ascent == "stretched"
    assert {look.ascent for look in again.trace} == {"stretched", "refine 0", "refine 1", "refine 2", "sga 0"}


def test_what_is_taken_is_the_worst_of_all_that_was_told(model: nn.Module, training: Training) -> None:
    listener = Listener(model)
    y = UAPAnnealed(0.2, **SMALL).fit(listener, *training).y
    left = accuracy(model, (as_floats(training[0]) + y).clamp(0, 1), training[1])
    assert left == min(look.accuracy for look in listener.trace)
    assert {look.images for look in listener.trace} == {len(training[0])}


def test_every_setting_is_told() -> None:
    assert UAPAnnealed(0.1).settings().keys() == {field.name for field in fields(UAPAnnealed)}


@pytest.mark.parametrize(
    "settings",
    [
        *({"steps": 0}, {"batch": 0}, {"starts": 0}, {"classes": 0}, {"kept": 0}, {"rounds": 0}, {"search": 0}),
        *({"sga": -1}, {"pull": -0.1}, {"looks": 0}, {"judged": 0}, {"anchor": 0.0}),
    ],
)
def test_what_cannot_work_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(settings))):
        UAPAnnealed(0.1, **settings)

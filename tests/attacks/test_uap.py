"""UAP: what its steps are, which of its iterates is taken, what radii share, and that it finds what is there."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attacks.uap import UAP, _Climb
from robustbench_dec.attack import Look, Shift, accuracy, as_floats
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.attacking.ways import averaged, read, still_moves, written
from robustbench_dec.climb import KEY, Direction, Found
from robustbench_dec.errors import BadInput
from tests.support.universal import Linear, Listener, images_of_linear

Training = tuple[Tensor, Tensor]
PLAIN: dict[str, Any] = {"search": 0, "sga": 0, "restarts": 1, "looks": 1}
SMALL: dict[str, Any] = {"steps": 12, "batch": 32, "search": 4, "restarts": 1, "looks": 3}


def test_the_strongest_perturbation_of_a_linear_network_is_found() -> None:
    """Known by construction: all 200 images in class 1 leaves 60 right, all in class 0 leaves 100, and no other end is
    reachable; y = eps sign(w_1 - w_0) gets there."""
    network = Linear()
    images, labels = images_of_linear(network)
    clean = accuracy(network, images, labels)
    assert clean == pytest.approx(0.8)  # class 2 is never seen
    strongest = 0.1 * (network.w[1] - network.w[0]).detach().sign().view(1, 4, 4)
    assert accuracy(network, (images + strongest).clamp(0, 1), labels) == pytest.approx(0.3)
    assert accuracy(network, (images - strongest).clamp(0, 1), labels) == pytest.approx(0.5)
    outcome = evaluate(UAP(0.1, **SMALL), network, images, labels, train=(images, labels))
    assert outcome.robust_accuracy == pytest.approx(0.3)
    assert outcome.perturbation is not None and torch.equal(outcome.perturbation.sign(), strongest.sign())


@pytest.mark.slow
def test_at_other_radii_of_a_sweep_it_is_found_too() -> None:
    network = Linear()
    images, labels = images_of_linear(network)
    for eps in (0.05, 0.1, 0.2):
        outcome = evaluate(UAP(eps, anchor=0.1, **SMALL), network, images, labels, train=(images, labels))
        assert outcome.robust_accuracy == pytest.approx(0.3)


@pytest.mark.parametrize("step", ["sign", "adam", "momentum"])
def test_the_first_step_follows_the_formula(step: str, model: nn.Module, training: Training) -> None:
    """y1 = P(alpha d(g)), d(g) = sign(g), also by momentum, or, for Adam, g / (|g| + tiny)."""
    alone = training[0][:1].expand(8, -1, -1, -1), training[1][:1].expand(8)  # every minibatch is this image
    y = torch.zeros(alone[0].shape[1:], requires_grad=True)
    logits = model((as_floats(alone[0]) + y).clamp(0, 1))
    g = torch.autograd.grad(nn.functional.cross_entropy(logits, alone[1]), y)[0]
    direction = g / (g.abs() + 1e-12) if step == "adam" else g.sign()
    shift = UAP(0.3, step=step, steps=1, batch=8, rel_alpha=0.5, **PLAIN).fit(model, *alone)  # type: ignore[arg-type]
    assert torch.allclose(shift.y, 0.15 * direction, atol=1e-7)
    assert g.abs().max() > 1e-4


def test_one_outer_step_of_sga_goes_along_the_mean_of_its_inner_gradients(model: nn.Module, training: Training) -> None:
    alone = training[0][:1].expand(10, -1, -1, -1), training[1][:1].expand(10)
    y, total = torch.zeros(alone[0].shape[1:]), torch.zeros(alone[0].shape[1:])
    for _ in range(2):  # 20 images in minibatches of 10
        inner = y.clone().requires_grad_()
        loss = nn.functional.cross_entropy(model((as_floats(alone[0]) + inner).clamp(0, 1)), alone[1])
        g = torch.autograd.grad(loss, inner)[0]
        total, y = total + g, (y + 0.1 * g.sign()).clamp(-0.2, 0.2)
    listener = Listener(model)
    attack = UAP(0.2, steps=1, batch=20, rel_alpha=0.5, search=0, sga=1, looks=1, restarts=1)
    ends = [attack.fit(listener, *alone).y, 0.1 * total.sign()]
    assert {look.ascent for look in listener.trace} == {"away 0", "sga 0"}
    climb_sga = listener.trace[1].accuracy
    assert climb_sga == accuracy(model, (as_floats(alone[0]) + ends[1]).clamp(0, 1), alone[1])
    assert listener.trace[1].loss == pytest.approx(
        nn.functional.cross_entropy(model((as_floats(alone[0]) + ends[1]).clamp(0, 1)), alone[1]).item(), abs=1e-5
    )


def test_what_is_taken_is_the_worst_of_all_that_was_looked_at(model: nn.Module, training: Training) -> None:
    listener = Listener(model)
    attack = UAP(0.2, **SMALL | {"judged": 100})
    y = attack.fit(listener, *training).y
    chosen = np.random.Generator(np.random.Philox(KEY)).permutation(len(training[0]))[:100]
    judged, labels = as_floats(training[0][chosen]), training[1][chosen]
    assert accuracy(model, (judged + y).clamp(0, 1), labels) == min(look.accuracy for look in listener.trace)
    names = {look.ascent for look in listener.trace}
    assert names == {*(f"search {c}" for c in range(10)), "away 0", "towards 0", "sga 0"}
    assert [look.step for look in listener.trace if look.ascent == "away 0"] == [4, 8, 12]


@pytest.mark.slow
def test_the_search_goes_on_from_the_class_that_leaves_the_fewest_right(model: nn.Module, training: Training) -> None:
    listener = Listener(model)
    UAP(0.3, **SMALL | {"steps": 1, "looks": 1, "rel_alpha": 0.0, "search": 1}).fit(listener, *training)
    assert len({look.accuracy for look in listener.trace}) == 1  # steps of length 0 stay where they are
    listener.trace.clear()
    UAP(0.3, **SMALL).fit(listener, *training)
    searched = [look.accuracy for look in listener.trace if look.ascent.startswith("search")]
    first = next(look for look in listener.trace if look.ascent == "towards 0")
    assert first.accuracy < sorted(searched)[1]  # from another class it would begin above


@pytest.mark.slow
def test_each_ascent_goes_on_from_the_best_y_so_far(
    model: nn.Module, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    ascents: list[tuple[Tensor, Found, str]] = []
    climbed = _Climb.up

    def up(
        climb: _Climb, start: Tensor, direction: Direction, alphas: Sequence[float], name: str, looks: int = 1
    ) -> Found:
        found = climbed(climb, start, direction, alphas, name, looks)
        ascents.append((start, found, name))
        return found

    monkeypatch.setattr(_Climb, "up", up)
    y = UAP(0.3, **SMALL | {"restarts": 3}).fit(model, *training).y
    search, chain = ascents[:10], ascents[10:]
    assert [name for *_, name in chain] == [*(f"{kind} {k}" for k in range(3) for kind in ("away", "towards")), "sga 0"]
    assert chain[0][0].equal(min(found for _, found, _ in search).y)
    for place, (start, *_) in enumerate(chain[1:], 1):
        assert start.equal(min(found for _, found, _ in chain[:place]).y)
    assert y.equal(min(found for _, found, _ in ascents).y)


def test_decaying_steps_shrink_to_nothing(model: nn.Module, training: Training) -> None:
    """Sign steps of alpha (1 - t / steps), t = 0, 1, ..., on one image: at most alpha (steps + 1) / 2 in all."""
    alone = training[0][:1].expand(8, -1, -1, -1), training[1][:1].expand(8)
    common: dict[str, Any] = {"step": "sign", "steps": 4, "batch": 8, "rel_alpha": 1 / 30, **PLAIN}
    near, far = (UAP(0.3, decay=decay, **common).fit(model, *alone).y for decay in (True, False))
    assert near.abs().max() == pytest.approx(0.025) and far.abs().max() == pytest.approx(0.04)


@pytest.mark.slow
def test_a_radius_that_starts_from_another_gives_the_same_whether_that_one_is_stored_or_not(
    model: nn.Module, images: Tensor, labels: Tensor, training: Training
) -> None:
    attack = UAP(0.2, anchor=0.25, **SMALL)
    ground = attack.groundwork()
    assert ground == UAP(0.25, anchor=0.25, **SMALL) and ground.groundwork() is None
    below = evaluate(ground, model, images, labels, train=training, seed=3)
    assert below.perturbation is not None
    stored = Shift(below.perturbation, eps=0.25)
    fresh = evaluate(attack, model, images, labels, train=training, seed=3)
    again = evaluate(attack, model, images, labels, train=training, seed=3, start=stored)
    assert fresh.perturbation is not None and again.perturbation is not None
    assert fresh.perturbation.equal(again.perturbation) and fresh.trace == again.trace
    assert fresh.backwards == again.backwards + below.backwards
    assert {look.ascent for look in again.trace} == {"away 0", "towards 0", "sga 0"}


def test_every_setting_is_told() -> None:
    assert UAP(0.1, search=5).settings().keys() == {field.name for field in fields(UAP)}


@pytest.mark.parametrize(
    "settings",
    [
        *({"steps": 0}, {"batch": 0}, {"restarts": 0}, {"rel_alpha": -0.1}, {"search": -1}, {"sga": -1}),
        *({"looks": 0}, {"judged": 0}, {"anchor": 0.0}, {"anchor": 0.2, "search": 0}),
    ],
)
def test_what_cannot_work_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(settings))):
        UAP(0.1, **settings)


# The way of an attack


def way(*accuracies: float, ascent: str = "away 0", images: int = 100) -> list[Look]:
    return [Look(ascent, 10 * (k + 1), 1.0, value, images) for k, value in enumerate(accuracies)]


@pytest.mark.parametrize(
    "looks, moves",
    [
        (way(0.9, 0.5, 0.3, 0.295), False),
        (way(0.9, 0.5, 0.3, 0.28), True),
        (way(0.9, 0.28, 0.5, 0.279), False),  # the best one so far counts
        (
            way(0.9, 0.5, 0.3, 0.2) + way(0.4, 0.1, 0.1, 0.1, ascent="sga 0"),
            False,
        ),  # the winner stands
        (way(0.9, 0.5, 0.3, 0.3) + way(0.5, 0.4, 0.35, 0.295, ascent="away 1"), False),  # no better than before it
        (way(0.9, 0.5, 0.3, 0.3) + way(0.5, 0.4, 0.35, 0.2, ascent="away 1"), True),
        (way(0.5), False),
        ([], False),
    ],
)
def test_an_ascent_has_not_converged_if_its_last_quarter_still_moves(looks: list[Look], moves: bool) -> None:
    assert still_moves(looks) is moves


def test_the_ways_of_batches_are_averaged_over_their_images() -> None:
    (look,) = averaged(way(0.5, images=100) + way(0.8, images=50))
    assert look.accuracy == pytest.approx(0.6) and look[:3] == ("away 0", 10, 1.0) and look.images == 150


def test_a_way_is_read_as_it_was_written() -> None:
    looks = tuple(way(0.5, 0.25))
    assert read(written(looks)) == looks


def test_pgd_tells_its_way_and_is_not_changed_by_it(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    from attacks.pgd import PGD

    outcome = evaluate(PGD(0.1, steps=6), model, images, labels, batch_size=40)
    right = int(outcome.clean.sum())
    assert [(look.step, look.images) for look in outcome.trace] == [(step, right) for step in range(6)]
    assert outcome.trace[-1].loss > outcome.trace[0].loss
    assert not model._forward_hooks

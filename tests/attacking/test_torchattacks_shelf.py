"""Every attack of torchattacks runs on the zoo's network for MNIST, or is refused with its reason."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustbench_dec import load_model, shelf
from robustbench_dec.architecture import Architecture
from robustbench_dec.attack import Attack, distances, slack
from robustbench_dec.attacking import torchattacks_shelf as library
from robustbench_dec.attacking.evaluate import evaluate, propose
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.errors import BadInput

TINY = {
    **{"steps": "2", "n_queries": "3", "max_iterations": "10", "binary_search_steps": "1", "nb_sample": "4"},
    **{"max_batch_size": "4", "num_iter_set": "2", "popsize": "2", "restarts": "1", "noise_batch_size": "2"},
    **{"gamma": "0.003", "N": "1", "m": "1"},
}
"""As they come from the command line: texts."""

REASONS = {
    "MultiAttack": "list of other attacks",
    "LGV": "trains new networks",
    **dict.fromkeys(["TIFGSM", "PIFGSM", "PIFGSMPP"], "needs images of 3 colours, these have 1"),
}


def built(name: str, eps: str | None = None, **settings: Any) -> Attack:
    cls = attack_named(f"torchattacks:{name}")
    known = {field.name for field in fields(cls)}
    radius = eps or ("0.1" if cls.norm == "Linf" else "5")
    tiny = {key: value for key, value in TINY.items() if key in known}
    return shelf.make(cls, {"eps": radius, **tiny, **settings})


def network(shape: tuple[int, int, int], classes: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        colours = shape[0]
        name = "cnn2" if colours == 1 else "cnn3"
        mean, std = (0.5,) * colours, (0.25,) * colours
        return Architecture(name=name, shape=shape, classes=classes, mean=mean, std=std).build()


def images_for(model: nn.Module, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    return images, model(images).argmax(1)


def test_the_library_has_its_39_attacks() -> None:
    assert len(library.names()) == 39


@pytest.mark.slow
@pytest.mark.parametrize("name", library.names())
def test_it_runs_on_the_zoos_mnist_network_or_says_why_not(name: str) -> None:
    model = load_model("mnist/dec_fedtrack")
    images, labels = images_for(model, (1, 28, 28))
    if name in REASONS:
        with pytest.raises(BadInput, match=REASONS[name]):
            evaluate(built(name), model, images, labels)
        return
    attack, flags = built(name), set[str]()
    outcome = evaluate(attack, model, images, labels)
    assert outcome.clean.all() and outcome.flags == ()
    proposed = propose(attack, model, images, labels, seed=1, flags=flags)
    assert flags == set() and (distances(proposed - images, attack.norm) <= attack.eps + slack(attack.eps)).all()
    again = evaluate(attack, model, images, labels)
    assert again.robust.equal(outcome.robust) and again.forwards == outcome.forwards  # its own random state


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TIFGSM", "PIFGSM", "PIFGSMPP"])
def test_attacks_for_three_colours_run_on_three_colours(name: str) -> None:
    model = network((3, 32, 32), 2)
    images, labels = images_for(model, (3, 32, 32))
    assert evaluate(built(name), model, images, labels).forwards > 0


@pytest.mark.parametrize(
    "name, settings, least",
    [
        ("APGD", {"loss": "dlr"}, 3),
        ("APGDT", {}, 4),
        ("AutoAttack", {}, 4),
        ("AutoAttack", {"version": "rand"}, 3),
        ("JSMA", {}, 10),
    ],
)
def test_what_needs_more_classes_is_refused_with_a_sentence(name: str, settings: dict[str, str], least: int) -> None:
    model = network((1, 28, 28), 2)
    images, labels = images_for(model, (1, 28, 28))
    with pytest.raises(BadInput, match=rf"{name} as it is set needs at least {least} classes, the model has 2"):
        evaluate(built(name, **settings), model, images, labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["APGD", pytest.param("FAB", marks=pytest.mark.slow), "Square", "DeepFool"])
def test_two_classes_are_enough_for_the_others(name: str) -> None:
    model = network((1, 28, 28), 2)
    images, labels = images_for(model, (1, 28, 28))
    assert evaluate(built(name), model, images, labels).forwards > 0


def test_a_default_step_size_grows_with_the_radius_and_reaches_it() -> None:
    for name in ("PGD", "MIFGSM", "BIM", "PGDL2", "FFGSM"):
        small, large = (built(name, eps, **({} if name == "FFGSM" else {"steps": 10})) for eps in ("0.1", "0.3"))
        assert large.settings()["alpha"] == pytest.approx(3 * small.settings()["alpha"])
    with pytest.raises(BadInput, match=r"10 steps of alpha 0.00784.* cannot reach the radius 0.3"):
        built("PGD", "0.3", steps="10", alpha="2/255")
    assert built("SPSA", "0.3").settings()["lr"] == pytest.approx(0.3)  # not 0.01, its one step


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("NOPE", {}, "torchattacks has no attack 'NOPE'; there are: APGD"),
        ("PGD", {"stepz": "3"}, "PGD has no setting 'stepz'; there are: .*steps"),
        ("PGD", {"steps": "many"}, "PGD's setting 'steps' cannot be 'many'"),
        ("PGD", {"seed": "3"}, "PGD has no setting 'seed'"),
        ("Square", {"norm": "L7"}, "setting 'norm' cannot be 'L7'"),
        ("EADL1", {"max_iterations": "3"}, "max_iterations of at least 10"),
    ],
)
def test_a_name_or_setting_that_there_is_not_is_refused(name: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        built(name, **settings)


@pytest.mark.slow
def test_norms_are_told_and_what_is_too_far_away_counts_as_not_found() -> None:
    model = network((1, 28, 28), 10)
    images, labels = images_for(model, (1, 28, 28))
    norms = {name: built(name).norm for name in ("PGD", "PGDL2", "CW", "EADL1", "OnePixel", "JSMA")}
    expected = {"PGD": "Linf", "PGDL2": "L2", "CW": "L2", "EADL1": "L1", "OnePixel": "L0", "JSMA": "L0"}
    assert norms == expected and built("FAB", norm="L2").norm == "L2"
    # It stops where two classes are level; the overshoot takes it further than rounding could.
    across = {"steps": "20", "overshoot": "0.5"}
    far, near = (evaluate(built("DeepFool", eps, **across), model, images, labels) for eps in ("1e-4", "20"))
    assert far.robust.all() and far.flags == () and not near.robust.any()


@pytest.mark.parametrize("name", ["APGD", "Square", "FAB"])
def test_two_batches_do_not_share_their_random_start(name: str) -> None:
    """The library's seed = 0 would start every batch alike."""
    model = network((1, 28, 28), 10)
    images, _labels = images_for(model, (1, 28, 28))
    attack = built(name)
    seeds = []
    for state in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(state)
            seeds.append(attack.arguments(model, images)["seed"])  # type: ignore[attr-defined]
    assert seeds[0] != seeds[1]

"""`benchmark`: what it takes for an attack, how its result looks, and that every bad argument is one sentence."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchattacks
from torch import Tensor, nn

from attacks.fgsm import FGSM
from robustbench_dec import benchmark, load_model
from robustbench_dec.api import Benchmark
from robustbench_dec.attack import Attack, Shift
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.errors import BadInput

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True)
class Mine(Attack):
    share: float = 1.0

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        images.requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(images), labels, reduction="sum"), images)
        return (images.detach() + self.share * self.eps * g.sign()).clamp(0, 1)


def a_function(model: nn.Module, images: Tensor, labels: Tensor, eps: float, share: float = 1.0) -> Tensor:
    return Mine(eps, share).perturb(model, images, labels)


class Theirs:
    """In torchattacks' manner, with a model of its own."""

    def __init__(self, model: nn.Module, eps: float = 0.1) -> None:
        self.model, self.eps = model, eps

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        return Mine(self.eps).perturb(self.model, images, labels)


def run(model: nn.Module, attacks: Any = "fgsm", **options: Any) -> Benchmark:
    usual: dict[str, Any] = {"dataset": "digits", "n_examples": 40, "progress": False}
    return benchmark(model, attacks=attacks, **usual | options)


@pytest.mark.slow
def test_an_attack_may_be_a_name_a_class_an_object_or_a_function(model: nn.Module) -> None:
    objects = [torchattacks.FGSM(model, eps=0.1), torchattacks.PGD(model, eps=0.1, alpha=0.05, steps=4), Theirs(model)]
    attacks = [
        "fgsm",
        Mine,
        Mine(eps=0.1),
        a_function,
        torchattacks.FGSM,
        Theirs,
        *objects,
        Shift(torch.zeros(1, 8, 8)),
    ]
    result = run(model, attacks, eps=[0.1])
    names = [cell.name for cell in result.cells]
    assert names[:6] == ["fgsm", "Mine", "Mine", "a_function", "torchattacks:FGSM", "Theirs"]
    assert names[6:] == ["torchattacks:FGSM", "torchattacks:PGD", "Theirs", "Shift"]
    first = result.cells[0].outcome
    for cell in (*result.cells[:7], result.cells[8]):  # all but PGD and the shift are FGSM
        assert cell.outcome.robust.equal(first.robust) and cell.flags == ()
        assert (cell.outcome.forwards, cell.outcome.backwards) == (first.forwards, first.backwards)
    pgd = result.cells[7]
    assert pgd.attack.settings()["steps"] == 4 and pgd.outcome.forwards == 4 * first.forwards
    assert result.cells[9].outcome.robust.equal(first.clean)


@pytest.mark.slow
def test_objects_have_their_radius_and_classes_get_each(model: nn.Module) -> None:
    result = run(model, [Mine, Mine(eps=0.3), torchattacks.FGSM(model, eps=0.02)], eps=["8/255", 0.1])
    assert [cell.attack.eps for cell in result.cells] == [8 / 255, 0.1, 0.3, 0.02]
    weak = run(model, {a_function: {"share": 0.1}}, eps=0.1)
    assert weak.robust_acc > run(model, a_function).robust_acc


def test_an_object_is_judged_in_its_own_norm(model: nn.Module) -> None:
    apgd = torchattacks.APGD(model, norm="L2", eps=0.5, steps=2, n_restarts=1)
    (cell,) = run(model, [apgd]).cells
    assert cell.outcome.ball == ("L2", 0.5) and cell.attack.settings()["norm"] == "L2" and "budget" not in cell.flags


def test_settings_of_an_object_that_cannot_reach_its_radius_are_told(model: nn.Module) -> None:
    (cell,) = run(model, torchattacks.PGD(model, eps=0.1, alpha=0.001, steps=4)).cells
    assert cell.flags == ("short_steps",)


@pytest.mark.slow
def test_the_result_is_short_and_says_the_norm(model: nn.Module) -> None:
    result = run(model, ["fgsm", "torchattacks:PGDL2"], eps=[0.5])
    text = repr(result)
    assert len(text.splitlines()) == 3 and "Linf 0.5" in text and "L2 0.5" in text and "tensor" not in text
    assert "40 images" in text
    page = result._repr_html_()
    assert page.count("<tr>") == 3 and "L2 0.5" in page
    assert list(result.frame["norm"]) == ["Linf", "L2"]
    clean, robust = result
    assert robust == result.robust_acc <= clean == result.clean_acc


def test_the_callers_network_and_modes_stay_as_they_are(model: nn.Module) -> None:
    model.train()
    before = [p.clone() for p in model.parameters()]
    run(model, [Mine])
    assert model.training and all(p.equal(q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.slow
def test_images_of_ones_own(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    result = run(model, dataset=(images, labels), n_examples=None)
    assert result.cells[0].outcome.robust.equal(evaluate(FGSM(0.1), model, images, labels).robust)
    as_arrays = run(model, dataset=(images.numpy(), labels.numpy()), n_examples=None)
    assert as_arrays.robust_acc == result.robust_acc
    with pytest.raises(BadInput, match="needs training images"):
        run(model, "uap", dataset=(images, labels))


@pytest.mark.slow
@pytest.mark.parametrize("eps", [np.float32(0.1), torch.tensor(0.1), np.array([0.05, 0.1]), (0.1,), "1/10", 0.1])
def test_a_radius_may_be_any_number(eps: Any, model: nn.Module) -> None:
    assert run(model, eps=eps, n_examples=10).cells[-1].attack.eps == pytest.approx(0.1)


@dataclass(frozen=True)
class Raises(Attack):
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        raise ValueError("of my own")


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad, words",
    [
        ({"model": None}, "takes a torch.nn.Module, not NoneType"),
        ({"model": lambda a: a}, "takes a torch.nn.Module, not function"),
        ({"eps": 99}, r"Linf radius of 99 cannot be meant for images in \[0, 1\]"),
        ({"eps": "x"}, "expected a number such as 0.1 or 8/255"),
        ({"eps": None}, "a radius is a number"),
        ({"eps": True}, "a radius is a number"),
        ({"eps": []}, "at least one eps"),
        ({"eps": -0.1}, "0 or more"),
        ({"n_examples": 20.0}, "n_examples must be a whole number of at least 1, not 20.0"),
        ({"n_examples": -5}, "n_examples must be a whole number of at least 1, not -5"),
        ({"n_examples": 0}, "n_examples must be"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"seed": "a"}, "seed must be a whole number of at least 0, not 'a'"),
        ({"max_passes": 0}, "max_passes must be"),
        ({"device": "cuda:77"}, "cannot use the device 'cuda:77'"),
        ({"device": 3.5}, "cannot use the device 3.5"),
        ({"dataset": 3}, "dataset is a name or .images, labels., not int"),
        ({"dataset": (torch.zeros(3), torch.zeros(3))}, r"expected images \(N, C, H, W\)"),
        ({"dataset": (object(), object())}, "images of a data set are a tensor or an array"),
        ({"dataset": "mnist "}, "no data set"),
        ({"attacks": 3}, "attacks are names, classes"),
        ({"attacks": [3]}, "is no attack; one is a name"),
        ({"attacks": [print]}, "is no attack; one is a name"),
        ({"attacks": {"fgsm": 3}}, "settings of an attack are a mapping"),
        ({"attacks": "torchattacks:Pixle", "eps": 0.1}, "L0 radius is a whole number of pixels, not 0.1"),
        ({"attacks": "torchattacks:PGDL2", "eps": 99}, "are 99 apart in L2; at most 8"),
        ({"attacks": Raises}, "Raises raised ValueError: of my own"),
        ({"model": nn.Flatten()}, r"64 logits"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 5))}, "5 classes, but there are labels"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(63, 10))}, "cannot answer images of shape"),
    ],
)
def test_every_bad_argument_is_one_sentence(bad: dict[str, Any], words: str, model: nn.Module) -> None:
    arguments: dict[str, Any] = {
        "model": model,
        "n_examples": 20,
        "dataset": "digits",
        "attacks": "fgsm",
        "progress": False,
    } | bad
    with pytest.raises(BadInput, match=words):
        benchmark(**arguments | {"progress": False} | bad)


def test_load_model_takes_a_name() -> None:
    with pytest.raises(BadInput, match="a name of the zoo or a path, not 3"):
        load_model(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_universal_example_is_short_and_works(model: nn.Module) -> None:
    example = EXAMPLES / "universal.py"
    assert len(example.read_text().splitlines()) <= 28
    (cell,) = run(model, str(example), eps=0.25).cells
    assert cell.flags == () and cell.outcome.perturbation is not None
    assert cell.outcome.robust_accuracy < cell.outcome.clean_accuracy - 0.1

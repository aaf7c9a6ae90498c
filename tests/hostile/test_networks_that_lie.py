"""Networks that lie: none gets an accuracy under attack that it does not deserve."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacks.fgsm import FGSM
from attacks.pgd import PGD
from robustbench_dec.attack import predictions
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.attacking.scene import Judge
from robustbench_dec.errors import BadInput


class Liar(nn.Module):
    """A trained network behind something that lies."""

    seen: Tensor

    def __init__(self, model: nn.Module, answer: Callable[["Liar", Tensor], Any]) -> None:
        super().__init__()
        self.model, self.answer = model, answer
        self.register_buffer("seen", torch.zeros(()))
        self.last: Tensor | None = None

    def forward(self, images: Tensor) -> Any:
        return self.answer(self, images)


class Straight(torch.autograd.Function):
    """The identity, with the gradient of its opposite."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        return images.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def remembers(self: Liar, images: Tensor) -> Tensor:
    """The answers of the time before, if there were as many images: what comes after the clean ones is the attacked."""
    if self.last is None or len(self.last) != len(images):
        self.last = self.model(images).detach()
    return self.last


def learns(self: Liar, images: Tensor) -> Tensor:
    """Changes itself a little whenever it is asked."""
    self.seen += 1
    return self.model(images) + 1e-9 * self.seen


REFUSED: dict[str, tuple[Callable[[Liar, Tensor], Any], str]] = {
    "random": (lambda self, a: self.model(a) + torch.randn(len(a), 10), "differently from one time to the next"),
    "softmax": (lambda self, a: self.model(a).softmax(1), "answers probabilities"),
    "one-hot": (lambda self, a: nn.functional.one_hot(self.model(a).argmax(1), 10).float(), "answers probabilities"),
    "nan": (lambda self, a: self.model(a) * torch.nan, "NaN or infinity for 32 of the first 32 images"),
    "five classes": (lambda self, a: self.model(a)[:, :5], "5 classes, but there are labels from 0 to 9"),
    "one class": (lambda self, a: self.model(a)[:, :1], "1 class"),
    "a tuple": (lambda self, a: (self.model(a), a), "logits of shape .* returned tuple"),
    "one row": (lambda self, a: self.model(a).mean(0, keepdim=True), r"returned \(1, 10\) for 32 images"),
    "knows gradients": (
        lambda self, a: self.model(a) * (-1 if a.requires_grad else 1),
        "answers otherwise where it is differentiated",
    ),
    "knows grad mode": (
        lambda self, a: self.model(a) * (-1 if torch.is_grad_enabled() else 1),
        "answers otherwise where it is differentiated",
    ),
    "batch statistics": (lambda self, a: self.model(a) - self.model(a).mean(0), "depends on the images beside it"),
    "remembers": (remembers, "depends on the images beside it"),
    "learns": (learns, "network that judges was changed"),
    "other shapes": (lambda self, a: a.flatten(1) @ torch.zeros(3, 10), "cannot answer images of shape"),
    "no gradient": (lambda self, a: self.model(a).detach(), "no gradient for its images, which FGSM needs"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", REFUSED)
def test_it_gets_no_number(lie: str, model: nn.Module, images: Tensor, labels: Tensor) -> None:
    answer, words = REFUSED[lie]
    before = torch.get_rng_state()
    with pytest.raises(BadInput, match=words):
        evaluate(FGSM(0.1), Liar(model, answer), images, labels)
    assert torch.get_rng_state().equal(before)
    assert evaluate(FGSM(0.1), model, images, labels).flags == ()  # the next one is not stopped


def test_nan_for_attacked_images_is_a_wrong_answer(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """argmax takes NaN for the largest logit, so it could be the right one."""
    clean = {image.numpy().tobytes() for image in images}

    def spoiled(self: Liar, a: Tensor) -> Tensor:
        known = torch.tensor([image.detach().numpy().tobytes() in clean for image in a])
        nan = torch.zeros(len(a), 10).index_fill(1, torch.arange(10), torch.nan)
        return torch.where(known[:, None], self.model(a), nan if not a.requires_grad else self.model(a))

    outcome = evaluate(FGSM(0.1), Liar(model, spoiled), images, labels)
    assert outcome.clean_accuracy > 0.8 and outcome.robust_accuracy == 0


def test_a_gradient_that_is_not_the_functions_is_flagged(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    liar = Liar(model, lambda self, a: self.model(Straight.apply(a)))
    outcome = evaluate(PGD(0.1, steps=5), liar, images, labels)
    assert outcome.flags == ("gradient",) and outcome.robust_accuracy > 0.8


def test_zero_gradients_are_counted(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    def rounded(self: Liar, a: Tensor) -> Tensor:
        return self.model((a * 20).round() / 20)

    outcome = evaluate(FGSM(0.1), Liar(model, rounded), images, labels)
    assert outcome.zero_gradients == 1.0
    sure = evaluate(FGSM(0.1), Liar(model, lambda self, a: 1e6 * self.model(a)), images, labels)
    assert sure.zero_gradients is not None and sure.zero_gradients > 0.5


def test_a_network_that_knows_its_mode_gains_nothing(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    liar = Liar(model, lambda self, a: self.model(a) * (-1 if self.training else 1)).train()
    lying, honest = (evaluate(FGSM(0.1), network, images, labels) for network in (liar, model))
    assert lying.robust.equal(honest.robust) and liar.training


def test_without_a_gradient_there_are_attacks_by_queries(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    liar = Liar(model, lambda self, a: self.model(a).detach())
    square = attack_named("torchattacks:Square").make({"eps": 0.3, "n_queries": 50})
    outcome = evaluate(square, liar, images, labels)
    assert outcome.robust_accuracy < outcome.clean_accuracy
    assert outcome.clean.equal(predictions(model, images) == labels)


def attacked_now() -> bool:
    """Whether an attack is among those who wait for this answer."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("play", "passed"):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


class FalseGradient(torch.autograd.Function):
    """The identity, with a gradient that leads attacks away, and only them."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.lies = attacked_now()
        return images.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient if ctx.lies else gradient


MOMENTUM = Path(__file__).parents[2] / "examples" / "momentum.py"


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["here", "in a process"])
def test_a_network_that_lies_to_the_attack_alone_is_found_out(
    apart: bool, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    attack = attack_named(str(MOMENTUM)).make({"eps": 0.1}) if apart else PGD(0.1, steps=5)
    otherwise = Liar(model, lambda self, a: self.model(a) * (-1 if attacked_now() else 1))
    with pytest.raises(BadInput, match="answered the attack otherwise than it answers the same images here"):
        evaluate(attack, otherwise, images, labels)
    misleading = Liar(model, lambda self, a: self.model(FalseGradient.apply(a)))
    outcome = evaluate(attack, misleading, images, labels)
    assert outcome.flags == ("gradient",) and outcome.robust_accuracy > 0.8
    assert "gradient" not in evaluate(attack, model, images, labels).flags


@pytest.mark.slow
def test_a_network_that_remembers_its_clean_images_gains_nothing(
    model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """It answers what is near an image that it has seen as it answered that one: all attacks would fail."""

    class Remembers(Liar):
        """Keeps what is no parameter and no buffer."""

        past: list[tuple[Tensor, Tensor]]

    def remembers_all(self: Any, a: Tensor) -> Tensor:
        answer: Tensor = self.model(a)
        for k, image in enumerate(a.detach()):
            near = [old for past, old in self.past if (past - image).abs().max() <= 0.11]
            if near and not a.requires_grad:
                answer = torch.cat([answer[:k], near[0][None], answer[k + 1 :]])
            else:
                self.past.append((image, answer[k].detach()))
        return answer

    liar = Remembers(model, remembers_all)
    liar.past = []
    judge, moved = Judge(liar), (images + 0.1 * torch.randn(images.shape).sign()).clamp(0, 1)
    assert judge.right(images, labels).equal(predictions(model, images) == labels)
    assert judge.right(moved, labels).equal(predictions(model, moved) == labels)
    with pytest.raises(BadInput, match="answered the attack otherwise"):
        evaluate(FGSM(0.1), liar, images, labels)


def test_a_network_that_patches_the_judge_gets_no_number(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    from robustbench_dec.attacking import evaluate as module

    def patches(self: Liar, a: Tensor) -> Tensor:
        module.put_back = lambda images, *ball: images
        return self.model(a)

    with pytest.raises(BadInput, match=r"the network replaced \S+\.put_back, by which it is judged"):
        evaluate(FGSM(0.1), Liar(model, patches), images, labels)
    assert evaluate(FGSM(0.1), model, images, labels).robust_accuracy < 0.8


def test_a_network_whose_copies_are_itself_gets_no_number(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    class Single(Liar):
        def __deepcopy__(self, memo: object) -> "Single":
            return self

    with pytest.raises(BadInput, match="a copy of Single shares its weights"):
        evaluate(FGSM(0.1), Single(model, lambda self, a: self.model(a)), images, labels)

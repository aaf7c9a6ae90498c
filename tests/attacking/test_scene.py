"""A sweep over radii shares what the radii have in common, and gives the same bits as one attack after the other."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from attacks.fgsm import FGSM
from attacks.pgd import PGD
from robustbench_dec.attack import Shift, predictions
from robustbench_dec.attacking.evaluate import attacked, evaluate
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.errors import BadInput

IMAGES, LABELS = torch.linspace(0, 1, 12 * 64).view(12, 1, 8, 8), torch.arange(12) % 3


class Counting(nn.Module):
    """A linear network that counts the images it is asked for, in all of its copies."""

    asked: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.linear = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        Counting.asked += len(images)
        return self.linear(images.flatten(1))


@pytest.mark.slow
def test_a_sweep_on_one_scene_has_the_bits_of_attacks_one_by_one_and_asks_less() -> None:
    sweep = [cls(eps=eps) for cls in (FGSM, PGD) for eps in (0.05, 0.1, 0.3)]
    model = Counting()
    asked = []
    outcomes = []
    for shared in (False, True):
        Counting.asked = 0
        scene = Scene(model, IMAGES, LABELS, seed=3, batch_size=5)
        outcomes.append(
            [
                attacked(attack, scene) if shared else evaluate(attack, model, IMAGES, LABELS, seed=3, batch_size=5)
                for attack in sweep
            ]
        )
        asked.append(Counting.asked)
    for alone, together in zip(*outcomes, strict=True):
        assert alone.robust.equal(together.robust) and alone.clean.equal(together.clean)
        assert (alone.forwards, alone.backwards, alone.flags) == (together.forwards, together.backwards, together.flags)
    assert asked[0] - asked[1] >= (len(sweep) - 1) * len(IMAGES)


@pytest.mark.slow
def test_a_universal_perturbation_is_known_by_the_class_it_hits() -> None:
    model, y = Counting(), torch.full((1, 8, 8), 0.3)
    outcome = evaluate(Shift(y), model, IMAGES, LABELS, batch_size=5)
    classes = predictions(model, (IMAGES + y).clamp(0, 1)).bincount(minlength=3)
    assert outcome.answered == tuple(classes.tolist()) and sum(outcome.answered) == len(IMAGES)
    assert evaluate(FGSM(0.1), model, IMAGES, LABELS).answered == ()


def test_a_judge_that_was_changed_judges_no_later_attack() -> None:
    scene = Scene(Counting(), IMAGES, LABELS)
    attacked(FGSM(eps=0.1), scene)
    with torch.no_grad():
        next(scene.judge.model.parameters()).mul_(-1)
    with pytest.raises(BadInput, match="network that judges was changed"):
        attacked(FGSM(eps=0.2), scene)

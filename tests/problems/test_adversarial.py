"""The yardstick: each image's own perturbation is PGD's, its steps are charged, and K-GT trains on it."""

from pathlib import Path

import pytest
import torch
import torchattacks
from torch import nn

from attacks.pgd import PGD
from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger
from robustbench_dec.networks.crew import Alone
from robustbench_dec.networks.faults import Faults
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.adversarial import Adversarial
from robustbench_dec.problems.universal import Universal
from robustbench_dec.running import cells
from robustbench_dec.running.train import train
from robustbench_dec.specs.run import NetworkSpec, RunSpec
from robustbench_dec.store.problems import problem_of
from robustbench_dec.store.results import Results
from tests.support.by_path import QUIET
from trainers.k_gt import KGT

PROBLEM = Adversarial(eps=0.2, steps=3, rel_alpha=0.4)


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return PROBLEM.images.train_images[:12], PROBLEM.images.train_labels[:12]


def test_the_perturbations_are_those_of_pgd_without_a_random_start(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, _ = PROBLEM.start(0)
    images, labels = batch[0] / 255, batch[1]
    moved = PROBLEM.attacked(x, images, labels)
    network = PROBLEM.module(x).eval()
    theirs = torchattacks.PGD(network, eps=0.2, alpha=0.08, steps=3, random_start=False)(images, labels)
    assert (moved - theirs).abs().max() < 1e-6
    assert (moved - images).abs().max() <= 0.2 + 1e-6 and moved.min() >= 0 and moved.max() <= 1
    assert (moved - images).flatten(1).abs().amax(1).min() > 0.1  # each image has its own
    with torch.no_grad():
        before, after = (nn.functional.cross_entropy(network(each), labels) for each in (images, moved))
    assert after > before


def test_the_gradient_is_that_of_the_loss_at_the_images_that_were_found(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    x, _ = PROBLEM.start(1)
    Gx, losses = PROBLEM.grads_x(x[None], None, tuple(part[None] for part in batch))
    network = PROBLEM.module(x)
    loss = nn.functional.cross_entropy(network(PROBLEM.attacked(x, batch[0] / 255, batch[1])), batch[1])
    by_hand = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))])
    assert losses[0].item() == pytest.approx(loss.item(), rel=1e-5)
    assert (Gx[0] - by_hand).norm() <= 1e-4 * by_hand.norm()
    without = Universal(eps=0.2).grads_x(x[None], None, tuple(part[None] for part in batch))[0]
    assert (Gx - without).norm() > 0.1 * without.norm()


def test_a_gradient_costs_a_call_and_one_more_for_each_step() -> None:
    ledger = Ledger(2, 2)
    oracle = Oracle(PROBLEM, 2, 0, ledger)
    X, Y = oracle.start()
    assert Y.shape == (2, 0)
    oracle.grad_x(X, None, oracle.draw(8))
    assert (ledger.sfo, ledger.sfo_x, ledger.sfo_y) == (8 * 4, 8, 8 * 3)


@pytest.mark.slow
def test_k_gt_pays_by_hand_for_ten_rounds() -> None:
    """One batch for the first correction, K in a round; each of its b samples costs 1 + steps calls."""
    net = Alone().connect(NetworkSpec(nodes=3).build(), Faults(), (0, 0))
    oracle = Oracle(PROBLEM, 3, 0, net.ledger)
    trainer = KGT(eta_c=0.1, K=2, batch=4)
    state = trainer.init(oracle, net)
    for _ in range(10):
        state = trainer.step(state, oracle, net)
    in_x, in_y = (1 + 10 * 2) * 4, (1 + 10 * 2) * 4 * 3
    assert (net.ledger.sfo, net.ledger.sfo_x, net.ledger.sfo_y) == (in_x + in_y, in_x, in_y)
    numbers = 2 * state.X.shape[1]  # x and z, in float32
    assert (net.ledger.exchanges, net.ledger.all_reduces) == (10, 1)
    assert net.ledger.bytes_per_edge == 10 * 4 * numbers


@pytest.mark.slow
def test_k_gt_learns_to_resist_what_it_is_trained_against(tmp_path: Path) -> None:
    accuracies = {}
    for name, more in (("adversarial", {"steps": 3, "rel_alpha": 0.5}), ("universal", {})):
        run = RunSpec(
            problem={"name": name, "dataset": "digits", "eps": 0.15, **more},
            network=NetworkSpec(nodes=2),
            trainer="k_gt",
            trainer_settings={"eta_c": 0.1, "K": 5, "batch": 64},
            rounds=12,
            seed=0,
            curve=[],
            curve_points=1,
            curve_examples=10,
        )
        home = train(run, Results(tmp_path), QUIET)
        assert ("eps" in home.record.settings.problem) == (name == "adversarial")
        wanted = cells.requests([("pgd", PGD(eps=0.15, steps=10))], 0, n_examples=100)
        problem = problem_of(home.record)
        assert type(problem).__name__ == name.capitalize()
        (cell,) = cells.attack(home, wanted, problem=problem, progress=False)
        accuracies[name] = cell.robust_acc
    assert accuracies["adversarial"] > accuracies["universal"] + 0.1, accuracies


def test_a_method_with_y_and_steps_that_cannot_reach_are_refused_in_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"adversarial has no y, which dec_fedtrack trains; .* k_gt"):
        RunSpec({"name": "adversarial"}, NetworkSpec(), "dec_fedtrack", {"eta_c": 0.1, "eta_d": 0.1}, 1, 0, [], 1, 10)
    with pytest.raises(BadInput, match=r"2 steps of 0.3 eps cannot reach the radius"):
        Adversarial(steps=2, rel_alpha=0.3)

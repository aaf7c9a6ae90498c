"""What every trainer promises, and what the paper says of Dec-FedTrack and K-GT."""

from dataclasses import replace

import pytest
import torch

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.problems.universal import Universal
from robustbench_dec.trainer import Trainer
from tests.support.quick_trainers import BOXED, NOISY, QUICK, QUIET, dec_fedtrack, drawing, k_gt, settle, stage, states
from trainers.dec_fedtrack import DecFedTrack
from trainers.k_gt import KGT


def test_every_trainer_on_the_shelf_is_tested_here() -> None:
    assert sorted(QUICK) == shelf.names("trainer")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_same_seed_gives_same_bits(name: str) -> None:
    trainer = drawing(name, batch=4)
    first, second = states(trainer, NOISY, 10)[-1], states(trainer, NOISY, 10)[-1]
    other = states(trainer, NOISY, 10, seed=1)[-1]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first.X, other.X)


@pytest.mark.parametrize("name", QUICK)
def test_later_steps_leave_earlier_states_alone(name: str) -> None:
    trainer = drawing(name, batch=4)
    oracle, net = stage(NOISY)
    state = trainer.init(oracle, net)
    kept = [value.clone() for value in state]
    trainer.step(trainer.step(state, oracle, net), oracle, net)
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("problem", [QUIET, BOXED], ids=["unconstrained", "box"])
@pytest.mark.parametrize("K, correction", [(1, "lemma"), (5, "lemma"), (20, "lemma"), (5, "gossip"), (5, "zero")])
def test_dec_fedtrack_finds_the_stationary_point_of_a_heterogeneous_quadratic(
    K: int, problem: Quadratic, correction: str
) -> None:
    oracle, net = stage(problem)
    exact = problem.exact(oracle.shards)
    assert settle(dec_fedtrack(K, correction=correction), oracle, net, exact.grad_phi, 1e-8) <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("problem", [QUIET, BOXED], ids=["unconstrained", "box"])
@pytest.mark.parametrize("K", [1, 5, 20])
def test_without_corrections_local_steps_stall_away_from_the_stationary_point(K: int, problem: Quadratic) -> None:
    oracle, net = stage(problem)
    exact = problem.exact(oracle.shards)
    trainer = dec_fedtrack(K, correction="zero")
    state = trainer.init(oracle, net)
    for _ in range(600):
        state = trainer.step(state, oracle, net)._replace(C=torch.zeros_like(state.C), D=torch.zeros_like(state.D))
    assert exact.grad_phi(state.X.mean(0)).norm() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, 5, 20])
def test_k_gt_minimises_f_at_zero_y_and_stalls_without_corrections(K: int) -> None:
    problem = Quadratic(instance=4, coercive=True, amplitude=0.5)
    oracle, net = stage(problem)
    exact = problem.exact(oracle.shards)
    trainer = k_gt(K)
    assert settle(trainer, oracle, net, exact.grad_f_at_zero_y, 1e-8) <= 1e-8
    bare = trainer.init(oracle, net)
    for _ in range(600):
        bare = trainer.step(bare, oracle, net)._replace(C=torch.zeros_like(bare.C))
    assert exact.grad_f_at_zero_y(bare.X.mean(0)).norm() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("problem", [NOISY, replace(NOISY, bound=0.2, coercive=True)], ids=["free", "box"])
@pytest.mark.parametrize("correction", ["lemma", "gossip", "zero"])
def test_corrections_average_to_zero_at_all_times(problem: Quadratic, correction: str) -> None:
    for state in states(dec_fedtrack(batch=4, correction=correction), problem, 50):
        assert state.C.mean(0).abs().max() < 1e-12
        assert state.D.mean(0).abs().max() < 1e-12
    for state in states(k_gt(batch=4, correction=correction), problem, 50):
        assert state.C.mean(0).abs().max() < 1e-12


def test_one_local_step_is_stochastic_gradient_tracking() -> None:
    """Z+ = W Z + G+ - G from Z0 = G0 + C0, X+ = W (X - eta_x Z), and likewise for y with a plus."""
    trainer = dec_fedtrack(K=1, batch=4, eta_c=0.05, eta_d=0.1, eta_s=0.8, eta_r=0.7)
    path = states(trainer, NOISY, 40)
    oracle, net = stage(NOISY)
    start = trainer.init(oracle, net)
    W = torch.from_numpy(net.matrix())
    X, Y = start.X, start.Y
    Gx, Gy = oracle.grad(X, Y, oracle.draw(4))
    Z, R = Gx + start.C, Gy + start.D
    for state in path[1:]:
        X, Y = W @ (X - 0.8 * 0.05 * Z), W @ (Y + 0.7 * 0.1 * R)
        assert (state.X - X).abs().max() < 1e-10
        assert (state.Y - Y).abs().max() < 1e-10
        Gx_prev, Gy_prev = Gx, Gy
        Gx, Gy = oracle.grad(X, Y, oracle.draw(4))
        Z, R = W @ Z + Gx - Gx_prev, W @ R + Gy - Gy_prev


def test_one_local_step_depends_only_on_the_global_step_sizes() -> None:
    first = states(dec_fedtrack(K=1, batch=4, eta_c=0.04, eta_s=1.0, eta_d=0.08, eta_r=0.5), NOISY, 30)[-1]
    second = states(dec_fedtrack(K=1, batch=4, eta_c=0.4, eta_s=0.1, eta_d=0.05, eta_r=0.8), NOISY, 30)[-1]
    other = states(dec_fedtrack(K=1, batch=4, eta_c=0.4, eta_s=0.2, eta_d=0.05, eta_r=0.8), NOISY, 30)[-1]
    assert (first.X - second.X).abs().max() < 1e-10
    assert (first.Y - second.Y).abs().max() < 1e-10
    assert (first.X - other.X).abs().max() > 1e-4


@pytest.mark.slow
def test_y_never_leaves_its_box() -> None:
    reached = 0.0
    for state in states(dec_fedtrack(batch=4, eta_d=0.5, eta_r=0.9), replace(NOISY, bound=0.2, coercive=True), 100):
        assert state.Y.abs().max() <= 0.2 + 1e-6
        reached = max(reached, state.Y.abs().max().item())
    assert reached > 0.19  # the constraint was active, or this test has shown nothing


@pytest.mark.slow
@pytest.mark.parametrize("clamp", [False, True])
def test_radius_zero_makes_dec_fedtrack_walk_as_k_gt_on_a_network_bit_for_bit(clamp: bool) -> None:
    problem = Universal(eps=0.0, clamp=clamp)
    robust = states(dec_fedtrack(batch=16, eta_c=0.1, eta_d=1.0), problem, 5, nodes=3)
    plain = states(k_gt(batch=16, eta_c=0.1), problem, 5, nodes=3)
    for with_y, without_y in zip(robust, plain, strict=True):
        assert torch.equal(with_y.X, without_y.X)
        assert torch.equal(with_y.C, without_y.C)


@pytest.mark.parametrize("graph, edges", [("ring", 20), ("complete", 90)])
def test_costs_are_those_of_the_paper(graph: str, edges: int) -> None:
    K, b, T, d, q, double = 5, 4, 7, NOISY.d, NOISY.q, 8
    for trainer, payload, split in [(dec_fedtrack(K, b), 2 * (d + q), 2), (k_gt(K, b), 2 * d, 1)]:
        oracle, net = stage(NOISY, graph=graph)
        state = trainer.init(oracle, net)
        for _ in range(T):
            state = trainer.step(state, oracle, net)
        ledger = net.ledger
        assert ledger.sfo == (T * K + 1) * b
        assert ledger.sfo_x + ledger.sfo_y == split * (T * K + 1) * b
        assert list(ledger.totals.values()) == [10 * (T * K + 1) * b, 10 * split * (T * K + 1) * b]
        assert ledger.exchanges == T
        assert ledger.messages == T * edges
        assert ledger.bytes_per_edge == T * payload * double
        assert ledger.all_reduces == 1


@pytest.mark.parametrize("correction, exchanges, all_reduces", [("gossip", 1, 0), ("zero", 0, 0), ("lemma", 0, 1)])
def test_first_corrections_are_charged_where_they_arise(correction: str, exchanges: int, all_reduces: int) -> None:
    oracle, net = stage(NOISY)
    dec_fedtrack(batch=4, correction=correction).init(oracle, net)
    assert (net.ledger.exchanges, net.ledger.all_reduces) == (exchanges, all_reduces)
    assert net.ledger.sfo == (0 if correction == "zero" else 4)


@pytest.mark.parametrize(
    "settings, word",
    [({"eta_r": 1.2}, "eta_r"), ({"K": 0}, "K"), ({"eta_c": 0.0}, "eta_c"), ({"eta_d": -1.0}, "eta_d")],
)
def test_bad_step_sizes_are_refused_by_name(settings: dict[str, float], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        shelf.make(DecFedTrack, {"eta_c": 0.1, "eta_d": 0.1} | settings)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"no trainer 'adam'; there are: .*dec_fedtrack, .*k_gt"):
        shelf.find("trainer", "adam", Trainer)  # type: ignore[type-abstract]
    with pytest.raises(BadInput, match=r"no setting 'etac'; there are: eta_c"):
        shelf.make(KGT, {"etac": 0.1})

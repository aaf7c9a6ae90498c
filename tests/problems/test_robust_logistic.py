"""What robust logistic regression promises: unbiased gradients in closed form, an exact Phi, and a y on the simplex."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from robustbench_dec import data, shelf, simplex
from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Batch, Problem
from robustbench_dec.problems import robust_logistic
from robustbench_dec.problems.robust_logistic import RobustLogistic
from trainers.dec_fedtrack import DecFedTrack
from trainers.k_gt import KGT

NODES, SAMPLES, FEATURES = 4, 30, 3  # m = 7 and N = 28: two samples are left over
STRONG = {"theta": 0.3, "nu": 2.0}  # a regulariser that is seen beside the data
SCALINGS = pytest.mark.parametrize("scaling", ["A", "B", "C"])


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> data.Tabular:
    """A set `small` of random rows, `blank`, the same without a test part, and `large`, with 30 times as large rows."""
    random = np.random.default_rng(0)
    features = sparse.csr_matrix(random.standard_normal((SAMPLES, FEATURES)) * random.integers(0, 2, (SAMPLES, 3)))
    labels = torch.from_numpy(random.permutation(np.repeat([-1, 1], [18, 12])))
    test = sparse.csr_matrix(random.standard_normal((11, FEATURES))), torch.from_numpy(random.choice([-1, 1], 11))
    small = data.Tabular("small", ("-1", "+1"), features, labels, *test, digest="")
    blank = dataclasses.replace(small, test_features=features[:0], test_labels=labels[:0])
    real, identity = data.load_tabular, data.identity
    sets = {"small": small, "blank": blank, "large": dataclasses.replace(small, train_features=30 * features)}
    monkeypatch.setattr(robust_logistic.data, "load_tabular", lambda name: sets[name] if name in sets else real(name))
    named = lambda name, kind: {"dataset": name} if name in sets else identity(name, kind)  # noqa: E731
    monkeypatch.setattr(robust_logistic.data, "identity", named)
    return small


def small(**settings: object) -> RobustLogistic:
    return RobustLogistic(**({"dataset": "small", "nodes": NODES, **STRONG} | settings))  # type: ignore[arg-type]


def point(problem: RobustLogistic, seed: int = 0, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """X of normal numbers and Y in the simplex."""
    generator = torch.Generator().manual_seed(seed)
    rows = rows or problem.nodes
    X = torch.randn(rows, FEATURES + 1, generator=generator, dtype=torch.float64)
    return X, simplex.project(torch.randn(rows, problem.N, generator=generator, dtype=torch.float64) / problem.N)


def objective(problem: RobustLogistic, x: Tensor, y: Tensor, shards: Batch) -> Tensor:
    """f(x, y) as the scalings define it, sum by sum over the N samples."""
    N = problem.N
    losses = torch.log1p(torch.exp(-shards[0].flatten(0, 1) @ x))
    squares = problem.nu * x**2
    g = problem.theta * (squares / (1 + squares)).sum()
    distance = ((y - 1 / N) ** 2).sum()
    match problem.scaling:
        case "A":
            return (y * losses).sum() / N - distance / 2 + g
        case "B":
            return (y * losses).sum() - distance / 2 + g
        case _:
            return (y * losses).sum() - N * distance / 2 + g


# Gradients


@SCALINGS
@pytest.mark.parametrize("size", [1, 3, 7])
def test_closed_form_gradients_equal_autograd(scaling: str, size: int) -> None:
    problem = small(scaling=scaling)
    X, Y = point(problem)
    batch = tuple(part[:, 2 : 2 + size] for part in problem.shards(NODES, seed=0))
    for ours, automatic in zip(problem.grads(X, Y, batch), Problem.grads(problem, X, Y, batch), strict=True):
        torch.testing.assert_close(ours, automatic, rtol=1e-12, atol=1e-12)
    for Z in (Y, None):
        for ours, automatic in zip(problem.grads_x(X, Z, batch), Problem.grads_x(problem, X, Z, batch), strict=True):
            torch.testing.assert_close(ours, automatic, rtol=1e-12, atol=1e-12)


@SCALINGS
def test_the_mean_of_the_nodes_full_gradients_is_the_gradient_of_the_whole_objective(scaling: str) -> None:
    problem = small(scaling=scaling)
    shards = problem.shards(NODES, seed=0)
    x, y = (rows[0].requires_grad_() for rows in point(problem))
    f = objective(problem, x, y, shards)
    expected = torch.autograd.grad(f, (x, y))
    Gx, Gy, losses = problem.grads(x.detach().expand(NODES, -1), y.detach().expand(NODES, -1), shards)
    for ours, theirs in ((Gx, expected[0]), (Gy, expected[1]), (losses, f.detach())):
        torch.testing.assert_close(ours.mean(0), theirs, rtol=1e-12, atol=1e-12)


def test_the_papers_formula_has_gradients_in_x_that_are_n_times_smaller() -> None:
    """But for g, whose weight theta is the same: here it is 0. docs/reproduction.md says so."""
    papers, ours = (small(scaling=scaling, theta=0.0) for scaling in ("A", "C"))
    shards, (X, Y) = ours.shards(NODES, seed=0), point(ours)
    torch.testing.assert_close(ours.N * papers.grads(X, Y, shards)[0], ours.grads(X, Y, shards)[0], rtol=1e-12, atol=0)
    said = " ".join((Path(__file__).parents[2] / "docs" / "reproduction.md").read_text().split())
    assert '(`scaling = "A"`) a sample\'s gradient in x is N times smaller' in said


@SCALINGS
@pytest.mark.parametrize("size", [1, 7])
def test_minibatch_gradients_are_unbiased(scaling: str, size: int) -> None:
    """Over all minibatches of a size, each equally likely, they average to the full gradient."""
    problem = small(scaling=scaling, nodes=2)  # m = 15
    X, Y = point(problem)
    shards = problem.shards(2, seed=0)
    full = problem.grads(X, Y, shards)
    # Every window of the samples in a circle: each sample is in `size` of the 15.
    windows = [[(start + k) % problem.m for k in range(size)] for start in range(problem.m)]
    several = [problem.grads(X, Y, tuple(part[:, window] for part in shards)) for window in windows]
    for k, whole in enumerate(full):
        torch.testing.assert_close(torch.stack([batch[k] for batch in several]).mean(0), whole, rtol=1e-12, atol=1e-12)


def test_a_node_touches_only_its_own_samples_coordinates_in_the_data_part() -> None:
    problem = small()
    X, Y = point(problem)
    shards = problem.shards(NODES, seed=0)
    Gy = problem.grads(X, Y, tuple(part[:, :2] for part in shards))[1]
    data_part = Gy + problem.mu * (Y - 1 / problem.N)
    for i in range(NODES):
        touched = (data_part[i].abs() > 1e-9).nonzero().flatten().tolist()
        assert touched == [i * problem.m, i * problem.m + 1]


@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_nodes_gradient_does_not_depend_on_the_nodes_beside_it(precision: str) -> None:
    problem = RobustLogistic(precision=precision)
    oracle = Oracle(problem, 10, 0, SimulatedNetwork(topology.build("ring", 10)).ledger)
    X, Y = oracle.start()
    X = X + torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).to(X)
    for batch in (oracle.draw(1), oracle.draw(5), oracle.draw(16), oracle.draw(39), oracle.shards):
        together = problem.grads(X, Y, batch)
        for rows in (slice(3, 4), slice(2, 5)):
            apart = problem.grads(X[rows], Y[rows], tuple(part[rows] for part in batch))
            assert all(torch.equal(a, b[rows]) for a, b in zip(apart, together, strict=True))


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["node by node", "sparse"])
def test_large_shares_have_the_same_gradients_and_no_node_depends_on_those_beside_it(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = small()
    shards, (X, Y) = problem.shards(NODES, seed=0), point(problem)
    expected = problem.grads(X, Y, shards)
    monkeypatch.setattr(robust_logistic, "LARGE", 1)
    monkeypatch.setattr(robust_logistic, "SPARSE", share)
    large = small()
    assert large.is_sparse == (share == 1)
    found = large.grads(X, Y, shards)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    for rows in (slice(3, 4), slice(1, 3)):
        apart = large.grads(X[rows], Y[rows], tuple(part[rows] for part in shards))
        assert all(torch.equal(a, b[rows]) for a, b in zip(apart, found, strict=True))


def test_a_gradient_in_one_block_is_that_of_the_pair() -> None:
    problem = small()
    shards, (X, Y) = problem.shards(NODES, seed=0), point(problem)
    Gx, Gy, values = problem.grads(X, Y, shards)
    assert torch.equal(problem.grads_x(X, Y, shards)[0], Gx)
    assert all(torch.equal(a, b) for a, b in zip(problem.grads_y(X, Y, shards), (Gy, values), strict=True))
    torch.testing.assert_close(problem.grads_x(X, Y, shards)[1], values, rtol=0, atol=1e-13)


def test_a_method_without_y_weighs_all_samples_alike() -> None:
    problem = small()
    X, _ = point(problem)
    shards = problem.shards(NODES, seed=0)
    uniform = torch.full((NODES, problem.N), 1 / problem.N, dtype=torch.float64)
    for ours, theirs in zip(problem.grads_x(X, None, shards), problem.grads_x(X, uniform, shards), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


def test_large_margins_overflow_nowhere() -> None:
    problem = small()
    X, Y = point(problem)
    for scale in (1e4, -1e4):
        for part in problem.grads(scale * X, Y, problem.shards(NODES, seed=0)):
            assert part.isfinite().all()
        assert problem.exact(problem.shards(NODES, seed=0)).phi(scale * X[0]).isfinite()


# Phi


@SCALINGS
def test_phi_is_the_objective_at_y_hat_and_no_feasible_y_does_better(scaling: str) -> None:
    problem = small(scaling=scaling)
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    for x in 3 * point(problem)[0]:
        y_hat = exact.y_hat(x)
        assert torch.allclose(problem.project(y_hat), y_hat, atol=1e-15)
        torch.testing.assert_close(exact.phi(x), objective(problem, x, y_hat, shards), rtol=1e-12, atol=1e-12)
        for scale in (1.0, 0.01):
            for other in point(problem, seed=1, rows=10)[1]:
                y = y_hat + scale * (other - y_hat)
                assert objective(problem, x, y, shards) <= exact.phi(x) + 1e-14


@SCALINGS
def test_grad_phi_agrees_with_finite_differences_of_phi(scaling: str) -> None:
    problem = small(scaling=scaling)
    exact = problem.exact(problem.shards(NODES, seed=0))
    for x in 2 * point(problem)[0]:
        step = 1e-5 * torch.eye(FEATURES + 1, dtype=torch.float64)
        numeric = torch.stack([(exact.phi(x + e) - exact.phi(x - e)) / 2e-5 for e in step])
        torch.testing.assert_close(exact.grad_phi(x), numeric, rtol=0, atol=1e-8)


def test_phi_of_the_chi_square_scaling_is_mean_plus_half_the_variance_of_the_losses() -> None:
    shards = small().shards(NODES, seed=0)
    x = 0.5 * point(small())[0][0]
    losses = torch.log1p(torch.exp(-shards[0].flatten(0, 1) @ x))
    assert (losses - losses.mean()).min() > -1  # else a weight is 0 and the formula another
    C, A = small(scaling="C"), small(scaling="A")
    risk = losses.mean() + losses.var(correction=0) / 2
    torch.testing.assert_close(C.exact(shards).phi(x), risk + C.g(x))
    torch.testing.assert_close(A.exact(shards).phi(x), risk / A.N + A.g(x))


def test_scaling_c_is_n_times_scaling_a_with_theta_over_n() -> None:
    C, A = small(scaling="C"), small(scaling="A")
    A = dataclasses.replace(A, theta=C.theta / C.N)
    shards, (X, Y) = C.shards(NODES, seed=0), point(C)
    for c, a in zip(C.grads(X, Y, shards), A.grads(X, Y, shards), strict=True):
        torch.testing.assert_close(c, A.N * a, rtol=1e-12, atol=1e-12)


def test_phi_of_scaling_b_is_close_to_the_largest_loss() -> None:
    problem = small(scaling="B", theta=0.0)
    shards = problem.shards(NODES, seed=0)
    x = 20 * point(problem)[0][0]
    largest = torch.log1p(torch.exp(-shards[0].flatten(0, 1) @ x)).max()
    assert largest - 0.5 <= problem.exact(shards).phi(x) <= largest


@SCALINGS
def test_gradients_change_no_faster_than_l_says_and_f_is_as_concave_as_mu_says(scaling: str) -> None:
    problem = small(scaling=scaling)
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    assert exact.kappa == exact.l / exact.mu >= 1
    for seed in range(20):
        (X, Y), (X_other, Y_other) = point(problem, 2 * seed), point(problem, 2 * seed + 1)
        X, X_other = X / 100, X_other / 100  # where the loss curves most
        ours, theirs = problem.grads(X, Y, shards), problem.grads(X_other, Y_other, shards)
        change = torch.cat(ours[:2], 1) - torch.cat(theirs[:2], 1)
        assert (change.norm(dim=1) <= exact.l * torch.cat([X - X_other, Y - Y_other], 1).norm(dim=1)).all()
        ascent = ours[1] - problem.grads(X, Y_other, shards)[1]
        torch.testing.assert_close((ascent * (Y_other - Y)).sum(1), exact.mu * (Y - Y_other).square().sum(1))


@SCALINGS
def test_l_is_close_to_the_curvature_where_y_is_all_on_the_largest_row(scaling: str) -> None:
    problem = small(scaling=scaling, dataset="large")
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    node, row = divmod(int(shards[0].norm(dim=2).argmax()), problem.m)
    batch = tuple(part[node] for part in shards)
    y = torch.zeros(problem.N, dtype=torch.float64)
    y[node * problem.m + row] = 1
    d = FEATURES + 1
    hessian = torch.autograd.functional.hessian(
        lambda z: problem.loss(z[:d], z[d:], batch), torch.cat([torch.zeros(d, dtype=torch.float64), y])
    )
    curvature = torch.linalg.matrix_norm(hessian, 2).item()
    assert curvature <= exact.l <= 1.2 * curvature


def test_a_point_that_diverged_is_measured_as_nan() -> None:
    exact = small().exact(small().shards(NODES, seed=0))
    x = torch.full((FEATURES + 1,), math.nan)
    assert exact.phi(x).isnan() and exact.grad_phi(x).isnan().all()


# Samples


@pytest.mark.parametrize("split", ["iid", "label", "dirichlet(0.5)"])
def test_nodes_hold_equal_shares_of_the_samples_with_a_bias_and_one_coordinate_of_y_each(
    table: data.Tabular, split: str
) -> None:
    problem = small(split=split)
    assert (problem.m, problem.N) == (7, 28)
    signed, coordinates = problem.shards(NODES, seed=3)
    assert signed.shape == (NODES, 7, FEATURES + 1)
    assert coordinates.flatten().tolist() == list(range(28))
    index = data.split(table.train_labels, NODES, split, 3)
    labels = table.train_labels[index].double()
    assert torch.equal(signed[..., -1], labels)  # b times a bias of 1
    features = torch.from_numpy(table.train_features.toarray())[index]
    assert torch.equal(signed[..., :-1], features * labels[..., None])


def test_the_oracle_draws_samples_with_their_coordinates_and_refuses_more_than_a_share() -> None:
    problem = small()
    oracle = Oracle(problem, NODES, 0, SimulatedNetwork(topology.build("ring", NODES)).ledger)
    signed, coordinates = oracle.draw(3)
    for i in range(NODES):
        for row, k in zip(signed[i], coordinates[i], strict=True):
            assert k // problem.m == i
            assert torch.equal(row, oracle.shards[0][i, k % problem.m])
    with pytest.raises(BadInput, match="1 to 7 samples, the size of a node's share, not 8"):
        oracle.draw(8)


def test_accuracy_is_the_share_of_labels_that_are_the_sign_of_the_margin(table: data.Tabular) -> None:
    x = point(small())[0][0]
    rows, labels = table.test_features.toarray(), table.test_labels.numpy()
    right = sum((row @ x[:-1].numpy() + float(x[-1]) > 0) == (b > 0) for row, b in zip(rows, labels, strict=True))
    assert small().accuracy(x) == pytest.approx(right / 11)
    assert small().accuracy(torch.zeros(FEATURES + 1), "train") == pytest.approx(18 / 30)  # all are taken for -1
    assert math.isnan(small(dataset="blank").accuracy(x))
    assert small(dataset="blank").accuracy(x, "train") == small().accuracy(x, "train")


def test_single_precision_computes_in_single_and_measures_in_double() -> None:
    problem = small(precision="single")
    shards, (x0, y0) = problem.shards(NODES, seed=0), problem.start(seed=0)
    assert x0.dtype == y0.dtype == shards[0].dtype == torch.float32
    X, Y = (rows.float() for rows in point(problem))
    ours, exact = problem.grads(X, Y, shards), small().grads(X.double(), Y.double(), small().shards(NODES, seed=0))
    for a, b in zip(ours, exact, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    assert problem.exact(shards).grad_phi(x0).dtype == torch.float64


# Start and settings


def test_the_start_is_common_feasible_and_as_asked() -> None:
    for name, value in (("zeros", 0.0), ("ones", 1.0)):
        x0, y0 = small(x0=name).start(seed=5)
        assert x0.tolist() == [value] * (FEATURES + 1)
        assert y0.tolist() == [1 / 28] * 28
    given = (0.5, *[0.5 / 27] * 27)
    assert small(y0=given).start(seed=0)[1].tolist() == list(given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"y0": (0.5, 0.6)}, "y0 must lie in the simplex, its coordinates 0 or more with the sum 1, not have the sum"),
        ({"y0": (1.5, -0.5)}, "not have the sum 1 and the smallest coordinate -0.5"),
        ({"y0": (math.nan, 1.0)}, "y0 must lie in the simplex"),
        ({"y0": (1.0, math.nan)}, "y0 must lie in the simplex"),
        ({"y0": ()}, "y0 must lie in the simplex"),
        ({"scaling": "D"}, "no scaling 'D'; there are: A, B, C"),
        ({"x0": "normal"}, "no x0 'normal'; there are: zeros, ones"),
        ({"precision": "half"}, "no precision 'half'; there are: double, single"),
        ({"theta": -1.0}, "theta must be 0 or a positive number, not -1.0"),
        ({"nu": math.nan}, "nu must be 0 or a positive number, not nan"),
        ({"nodes": 0}, "a network needs at least 1 node, not 0"),
    ],
)  # fmt: skip
def test_settings_that_make_no_problem_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)) as refusal:
        small(**settings)
    assert "\n" not in str(refusal.value)


def test_a_y0_of_another_length_another_number_of_nodes_and_too_many_nodes_are_refused() -> None:
    with pytest.raises(BadInput, match="y0 must have 28 coordinates, one per sample, not 2"):
        small(y0=(0.5, 0.5)).start(seed=0)
    with pytest.raises(BadInput, match="y was made for the samples of 4 nodes, not 5; set nodes = 5"):
        small().shards(5, seed=0)
    with pytest.raises(BadInput, match="31 nodes are more than the 30 samples of small"):
        small(nodes=31).start(seed=0)


def test_images_are_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="digits holds images, not rows of features"):
        small(dataset="digits").start(seed=0)


def test_it_stands_on_the_shelf_and_its_settings_can_be_told_in_json() -> None:
    assert "robust_logistic" in shelf.names("problem")
    cls = shelf.find("problem", "robust_logistic", Problem)  # type: ignore[type-abstract]
    problem = shelf.make(cls, {"dataset": "small", "nodes": 2, "theta": "1e-5", "y0": [0.5, 0.5]})
    assert problem == RobustLogistic(dataset="small", nodes=2, y0=(0.5, 0.5))
    settings = json.loads(json.dumps(problem.settings()))
    assert shelf.make(cls, settings) == problem


# In use


@pytest.mark.slow
def test_dec_fedtrack_lowers_phi_and_learns_breast_cancer_with_every_y_in_the_simplex() -> None:
    problem = RobustLogistic(split="label")
    net = SimulatedNetwork(topology.build("ring", 10))
    oracle = Oracle(problem, 10, 0, net.ledger)
    exact = problem.exact(oracle.shards)
    trainer = DecFedTrack(eta_c=0.1, eta_d=1e-3 / problem.N, K=2, batch=32)
    state = trainer.init(oracle, net)
    before = exact.phi(state.X.mean(0))
    assert before == pytest.approx(math.log(2))  # x = 0
    for _ in range(120):
        state = trainer.step(state, oracle, net)
    assert exact.phi(state.X.mean(0)) < before / 3
    assert problem.accuracy(state.X.mean(0)) > 0.95
    assert (state.Y >= 0).all()
    torch.testing.assert_close(state.Y.sum(1), torch.ones(10, dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_method_without_y_learns_too() -> None:
    problem = RobustLogistic()
    net = SimulatedNetwork(topology.build("ring", 10))
    oracle = Oracle(problem, 10, 0, net.ledger)
    trainer = KGT(eta_c=0.5, K=1, batch=32)
    state = trainer.init(oracle, net)
    for _ in range(50):
        state = trainer.step(state, oracle, net)
    assert problem.accuracy(state.X.mean(0)) > 0.9

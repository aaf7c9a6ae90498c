"""What the quadratic bench promises: exact gradients, a known solution, and knobs that do what they say."""

import dataclasses
import re

import pytest
import torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.problem import Problem
from robustbench_dec.problems.quadratic import Quadratic

UNCONSTRAINED = Quadratic()
BOX = Quadratic(coercive=True, amplitude=0.5, bound=0.5)
NOISY = Quadratic(d=5, q=3, m=7, noise=0.8, amplitude=0.3)
VARIANTS = pytest.mark.parametrize(
    "problem",
    [UNCONSTRAINED, BOX, NOISY, Quadratic(d=1, q=1), Quadratic(d=3, q=5), Quadratic(d=4, q=4, m=2, noise=1.0)],
    ids=["unconstrained", "box", "noisy", "scalar", "wide", "square"],
)
NODES = 10


def point(problem: Quadratic, rows: int = NODES, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, problem.d, generator=generator, dtype=problem.dtype)
    return X, torch.randn(rows, problem.q, generator=generator, dtype=problem.dtype)


@VARIANTS
def test_closed_form_gradients_equal_autograd(problem: Quadratic) -> None:
    X, Y = point(problem)
    shards = problem.shards(NODES, seed=0)
    for ours, automatic in zip(problem.grads(X, Y, shards), Problem.grads(problem, X, Y, shards), strict=True):
        torch.testing.assert_close(ours, automatic, rtol=1e-12, atol=1e-12)
    for Z in (Y, None):
        for ours, automatic in zip(problem.grads_x(X, Z, shards), Problem.grads_x(problem, X, Z, shards), strict=True):
            torch.testing.assert_close(ours, automatic, rtol=1e-12, atol=1e-12)


@VARIANTS
def test_without_y_is_with_y_zero_bit_for_bit(problem: Quadratic) -> None:
    X, Y = point(problem)
    shards = problem.shards(NODES, seed=0)
    assert torch.equal(problem.grads_x(X, None, shards)[0], problem.grads(X, torch.zeros_like(Y), shards)[0])


@pytest.mark.parametrize("problem", [BOX, NOISY, Quadratic(d=40, q=7), Quadratic(d=64, q=32, m=20, noise=1.0)])
def test_a_nodes_gradient_does_not_depend_on_the_nodes_beside_it(problem: Quadratic) -> None:
    X, Y = point(problem)
    shards = problem.shards(NODES, seed=0)
    together = problem.grads(X, Y, shards)
    for rows in (slice(3, 4), slice(2, 5)):
        apart = problem.grads(X[rows], Y[rows], tuple(part[rows] for part in shards))
        assert all(torch.equal(a, b[rows]) for a, b in zip(apart, together, strict=True))


@VARIANTS
def test_grad_phi_agrees_with_finite_differences_of_phi(problem: Quadratic) -> None:
    exact = problem.exact(problem.shards(NODES, seed=0))
    for x in 2 * point(problem, rows=5)[0]:
        step = 1e-5 * torch.eye(problem.d, dtype=torch.float64)
        numeric = torch.stack([(exact.phi(x + e) - exact.phi(x - e)) / 2e-5 for e in step])
        torch.testing.assert_close(exact.grad_phi(x), numeric, rtol=0, atol=2e-8)


@VARIANTS
def test_phi_is_the_mean_loss_at_y_hat_and_no_feasible_y_does_better(problem: Quadratic) -> None:
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    (x, *_), others = point(problem)

    def f(y: Tensor) -> Tensor:
        return torch.stack([problem.loss(x, y, tuple(part[i] for part in shards)) for i in range(NODES)]).mean()

    y_hat = exact.y_hat(x)
    torch.testing.assert_close(exact.phi(x), f(y_hat), rtol=1e-12, atol=1e-12)
    for scale in (1.0, 1e-3):
        for other in others:
            assert f(problem.project(y_hat + scale * other)) <= exact.phi(x) + 1e-14


@pytest.mark.parametrize("instance", range(5))
def test_the_unconstrained_problem_is_nonconvex_in_x_but_phi_has_a_minimum(instance: int) -> None:
    problem = dataclasses.replace(UNCONSTRAINED, instance=instance)
    exact = problem.exact(problem.shards(NODES, seed=0))
    eigenvalues = torch.linalg.eigvalsh(exact.A)
    assert eigenvalues[0] < -0.2 and eigenvalues[-1] > 0.2
    assert torch.linalg.eigvalsh(exact.hessian)[0] > 0.1
    assert exact.x_star is not None
    assert exact.grad_phi(exact.x_star).norm() < 1e-13
    torch.testing.assert_close(torch.autograd.functional.hessian(exact.phi, exact.x_star), exact.hessian)


@pytest.mark.parametrize("problem", [BOX, Quadratic(bound=0.5, coercive=True), Quadratic(amplitude=0.5)])
def test_no_solution_is_claimed_where_none_is_known(problem: Quadratic) -> None:
    assert problem.exact(problem.shards(NODES, seed=0)).x_star is None


@pytest.mark.parametrize("instance", range(5))
@pytest.mark.parametrize("problem", [UNCONSTRAINED, BOX], ids=["unconstrained", "box"])
def test_constants_are_of_the_promised_size(problem: Quadratic, instance: int) -> None:
    problem = dataclasses.replace(problem, instance=instance)
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    assert 1 < exact.l < 5 and 5 < exact.kappa < 10
    smooth = dataclasses.replace(problem, amplitude=0.0).exact(shards)
    assert exact.l == pytest.approx(smooth.l + problem.amplitude)  # sup |g''| = amplitude
    X, Y = point(problem)
    X_other, Y_other = point(problem, seed=1)
    change = torch.cat(problem.grads(X, Y, shards)[:2], 1) - torch.cat(problem.grads(X_other, Y_other, shards)[:2], 1)
    distance = torch.cat([X - X_other, Y - Y_other], 1).norm(dim=1)
    assert (change.norm(dim=1) <= exact.l * distance).all()
    ascent = problem.grads(X, Y, shards)[1] - problem.grads(X, Y_other, shards)[1]
    assert ((ascent * (Y_other - Y)).sum(1) >= exact.mu * (Y - Y_other).square().sum(1)).all()


def test_the_coercive_variant_is_nonconvex_in_x_and_bounded_below() -> None:
    exact = BOX.exact(BOX.shards(NODES, seed=0))
    smallest = torch.linalg.eigvalsh(exact.A)[0]
    assert 0 < smallest < BOX.amplitude  # so Abar - amplitude I, the Hessian of f(., 0) at x = 0, is not positive
    far = [exact.phi(1e3 * x) for x in point(BOX)[0]]
    assert min(far) > exact.phi(torch.zeros(BOX.d, dtype=torch.float64))


def test_y_hat_in_the_box_satisfies_kkt_with_active_and_inactive_bounds() -> None:
    exact = BOX.exact(BOX.shards(NODES, seed=0))
    assert BOX.bound is not None
    inside_seen = active_seen = 0
    for x in point(BOX, rows=20)[0]:
        y = exact.y_hat(x)
        assert y.abs().max() <= BOX.bound
        gradient = exact.B.T @ x + exact.c - exact.C @ y
        inside = y.abs() < BOX.bound
        assert (gradient[inside].abs() < 1e-12).all()
        assert (gradient[~inside] * y[~inside].sign() >= 0).all()
        inside_seen, active_seen = inside_seen + int(inside.sum()), active_seen + int((~inside).sum())
    assert inside_seen > 5 and active_seen > 5


def test_a_wide_box_changes_nothing_and_an_empty_one_leaves_y_zero() -> None:
    free, wide, empty = (dataclasses.replace(BOX, bound=bound) for bound in (None, 1e3, 0.0))
    shards = free.shards(NODES, seed=0)
    for x in point(free)[0]:
        torch.testing.assert_close(
            wide.exact(shards).grad_phi(x), free.exact(shards).grad_phi(x), rtol=1e-10, atol=1e-10
        )
        assert torch.equal(empty.exact(shards).grad_phi(x), empty.exact(shards).grad_f_at_zero_y(x))


@VARIANTS
def test_grad_f_at_zero_y_is_the_mean_of_the_nodes_gradients(problem: Quadratic) -> None:
    shards = problem.shards(NODES, seed=0)
    x = point(problem)[0][0]
    mean = problem.grads_x(x.expand(NODES, -1), None, shards)[0].mean(0)
    torch.testing.assert_close(problem.exact(shards).grad_f_at_zero_y(x), mean, rtol=1e-12, atol=1e-12)


def test_a_point_that_diverged_is_measured_as_nan() -> None:
    exact = BOX.exact(BOX.shards(NODES, seed=0))
    assert exact.grad_phi(torch.full((BOX.d,), float("nan"))).isnan().all()


def test_projection_is_the_nearest_point_of_the_box() -> None:
    Y = torch.tensor([[0.2, -0.9, 3.0, -0.5]])
    assert torch.equal(BOX.project(Y), torch.tensor([[0.2, -0.5, 0.5, -0.5]]))
    assert torch.equal(BOX.project(Y[0]), BOX.project(Y)[0])
    assert torch.equal(UNCONSTRAINED.project(Y), Y)


def test_without_heterogeneity_all_nodes_are_equal_and_with_it_none_are() -> None:
    for part in dataclasses.replace(NOISY, heterogeneity=0.0, noise=0.0).shards(NODES, seed=0):
        assert (part == part[0, 0]).all()
    for part in UNCONSTRAINED.shards(NODES, seed=0):
        means = part.mean(1).flatten(1)
        assert torch.pdist(means).min() > 1e-3


@pytest.mark.parametrize("heterogeneity", [0.0, 1.0])
@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("nodes", [1, 2, 10])
def test_the_averages_do_not_depend_on_how_they_are_spread(heterogeneity: float, noise: float, nodes: int) -> None:
    reference = UNCONSTRAINED.exact(UNCONSTRAINED.shards(5, seed=0))
    problem = Quadratic(m=3, heterogeneity=heterogeneity, noise=noise)
    exact = problem.exact(problem.shards(nodes, seed=1))
    for name in ("A", "B", "C", "a", "c", "x_star"):
        torch.testing.assert_close(getattr(exact, name), getattr(reference, name), rtol=0, atol=1e-13)


def test_noise_averages_to_zero_in_every_node_and_has_the_promised_variance() -> None:
    noisy, quiet = NOISY.shards(NODES, seed=0), dataclasses.replace(NOISY, noise=0.0).shards(NODES, seed=0)
    for samples, means in zip(noisy, quiet, strict=True):
        torch.testing.assert_close(samples.mean(1), means.mean(1), rtol=0, atol=1e-15)
        assert (samples != means).all()
    for samples in noisy[3:]:  # a and c, the gradients at x = y = 0
        variance = (samples - samples.mean(1, keepdim=True)).square().sum(2).mean(1)
        torch.testing.assert_close(variance, torch.full_like(variance, NOISY.noise**2))


def test_samples_are_symmetric_where_the_formula_needs_it() -> None:
    A, B, C, *_ = Quadratic(d=4, q=4, m=3, noise=1.0).shards(NODES, seed=0)
    assert torch.equal(A, A.mT) and torch.equal(C, C.mT)
    assert not torch.allclose(B, B.mT)


def test_the_seed_deals_the_same_functions_to_other_nodes() -> None:
    first, again, other = (NOISY.shards(NODES, seed=seed) for seed in (0, 0, 1))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c)
        assert torch.equal(a.flatten(1).sum(1).sort().values, c.flatten(1).sum(1).sort().values)
    assert not torch.equal(first[0], dataclasses.replace(NOISY, instance=1).shards(NODES, seed=0)[0])


def test_shapes_and_precision_are_as_asked() -> None:
    problem = Quadratic(d=3, q=2, m=4, dtype=torch.float32)
    shapes = [tuple(part.shape) for part in problem.shards(5, seed=0)]
    assert shapes == [(5, 4, 3, 3), (5, 4, 3, 2), (5, 4, 2, 2), (5, 4, 3), (5, 4, 2)]
    x0, y0 = problem.start(seed=0)
    assert x0.shape == (3,) and y0.shape == (2,)
    assert {x0.dtype, y0.dtype, *(part.dtype for part in problem.shards(5, seed=0))} == {torch.float32}
    assert problem.exact(problem.shards(5, seed=0)).grad_phi(x0).dtype == torch.float64


def test_the_start_is_feasible_and_a_function_of_the_seed() -> None:
    x0, y0 = BOX.start(seed=3)
    assert torch.equal(x0, BOX.start(seed=3)[0]) and not torch.equal(x0, BOX.start(seed=4)[0])
    assert torch.equal(y0, BOX.project(y0))


@pytest.mark.parametrize("problem", [UNCONSTRAINED, BOX], ids=["unconstrained", "box"])
def test_plain_gradient_descent_ascent_finds_a_stationary_point(problem: Quadratic) -> None:
    shards = problem.shards(NODES, seed=0)
    exact = problem.exact(shards)
    central = tuple(part.mean((0, 1))[None, None] for part in shards)
    x, y = (start[None] for start in problem.start(seed=0))
    assert exact.grad_phi(x[0]).norm() > 0.1
    for _ in range(600):
        gx, gy, _ = problem.grads(x, y, central)
        x, y = x - 0.1 * gx, problem.project(y + 0.2 * gy)
    assert exact.grad_phi(x[0]).norm() < 1e-8
    if exact.x_star is not None:
        torch.testing.assert_close(x[0], exact.x_star, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d": 0}, "d must be at least 1, not 0"),
        ({"m": 0}, "m must be at least 1, not 0"),
        ({"heterogeneity": -1.0}, "heterogeneity must be 0 or a positive number, not -1.0"),
        ({"noise": float("nan"), "m": 2}, "noise must be"),
        ({"noise": 1.0}, "noise needs m of 2 or more"),
        ({"bound": -0.1, "coercive": True}, "bound must be 0 or a positive number"),
        ({"bound": 0.5}, "set coercive to true"),
    ],
)
def test_settings_that_make_no_problem_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        Quadratic(**settings)  # type: ignore[arg-type]


def test_heterogeneity_that_would_cost_strong_concavity_is_refused_with_a_value_that_would_do() -> None:
    with pytest.raises(BadInput, match="strong concavity") as refusal:
        Quadratic(heterogeneity=50.0).shards(NODES, seed=0)
    advice = re.search(r"([\d.]+) would do", str(refusal.value))
    assert advice is not None
    problem = Quadratic(heterogeneity=float(advice[1]))
    assert problem.exact(problem.shards(NODES, seed=0)).mu > 0


def test_no_node_is_no_network() -> None:
    with pytest.raises(BadInput, match="at least 1 node"):
        UNCONSTRAINED.shards(0, seed=0)

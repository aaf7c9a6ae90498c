"""What the projection onto the simplex promises: the nearest point, for every row by itself, exact up to rounding."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from robustbench_dec import simplex

# Ordinary numbers, many ties, and numbers of very different sizes.
ENTRIES = st.one_of(
    st.floats(-10, 10),
    st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0]),
    st.floats(-1e6, 1e6),
    st.floats(-1e-6, 1e-6),
)
STACKS = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=30), elements=ENTRIES).map(torch.from_numpy)
VECTORS = st.lists(ENTRIES, min_size=1, max_size=12)


def stack(n: int, N: int, scale: float, seed: int = 0) -> Tensor:
    return scale * torch.randn(n, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.slow
@settings(deadline=None)
@given(STACKS)
def test_without_sorting_it_is_what_it_is_with_sorting(Y: Tensor) -> None:
    tolerance = 1e-14 * (1 + float(Y.abs().max())) * Y.shape[1]
    torch.testing.assert_close(simplex.project(Y), simplex.project_by_sorting(Y), rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-5, 1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n", "N"), [(10, 3000), (2, simplex.BLOCK + 7), (1000, 40)])
def test_large_stacks_too(n: int, N: int, scale: float) -> None:
    Y = stack(n, N, scale)
    torch.testing.assert_close(simplex.project(Y), simplex.project_by_sorting(Y), rtol=0, atol=1e-14 * (1 + scale))


@settings(deadline=None)
@given(VECTORS)
def test_it_is_the_nearest_point_by_exact_arithmetic(entries: list[float]) -> None:
    """The threshold from rational numbers: of all numbers K of coordinates above it, the one that is consistent."""
    y = sorted(map(Fraction, entries), reverse=True)
    taus = [(sum(y[:K]) - 1) / K for K in range(1, len(y) + 1)]
    tau = max(tau for K, tau in enumerate(taus, 1) if y[K - 1] > tau)
    exact = [float(max(Fraction(entry) - tau, Fraction(0))) for entry in entries]
    assert simplex.project(torch.tensor(entries, dtype=torch.float64)).tolist() == pytest.approx(
        exact, abs=4e-16 * (1 + max(map(abs, entries)))
    )


@pytest.mark.slow
@settings(deadline=None)
@given(STACKS)
def test_the_result_lies_in_the_simplex(Y: Tensor) -> None:
    P = simplex.project(Y)
    assert (P >= 0).all()
    torch.testing.assert_close(P.sum(1), torch.ones(len(Y), dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.slow
@settings(deadline=None)
@given(STACKS)
def test_a_point_of_the_simplex_stays(Y: Tensor) -> None:
    P = simplex.project(Y)
    torch.testing.assert_close(simplex.project(P), P, rtol=0, atol=1e-15)


@pytest.mark.slow
@settings(deadline=None)
@given(STACKS, st.integers(0, 2**32))
def test_the_order_of_coordinates_and_a_common_shift_do_not_matter(Y: Tensor, seed: int) -> None:
    order = torch.randperm(Y.shape[1], generator=torch.Generator().manual_seed(seed))
    tolerance = 1e-14 * (1 + float(Y.abs().max())) * Y.shape[1]
    torch.testing.assert_close(simplex.project(Y[:, order]), simplex.project(Y)[:, order], rtol=0, atol=tolerance)
    torch.testing.assert_close(simplex.project(Y + 3), simplex.project(Y), rtol=0, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize(("n", "N"), [(40, 50), (10, 9000), (3, simplex.BLOCK)])
def test_a_row_does_not_depend_on_the_rows_beside_it_to_the_last_bit(n: int, N: int, scale: float) -> None:
    Y = stack(n, N, scale) * torch.logspace(-3, 1, n, dtype=torch.float64)[:, None]  # rows that need few steps and many
    together = simplex.project(Y)
    for rows in (slice(0, 1), slice(1, 3), slice(n - 1, n)):
        assert torch.equal(simplex.project(Y[rows].clone()), together[rows])
    assert torch.equal(simplex.project(Y[1]), together[1])


def test_a_row_that_diverged_is_nan_and_the_others_are_not() -> None:
    Y = stack(5, 20, 1.0)
    expected = simplex.project(Y)
    Y[1, 3], Y[3, 0] = float("nan"), float("inf")
    P = simplex.project(Y)
    assert P[[1, 3]].isnan().all()
    assert torch.equal(P[[0, 2, 4]], expected[[0, 2, 4]])


@pytest.mark.parametrize(
    ("row", "nearest"),
    [
        ([7.0], [1.0]),
        ([-3.0], [1.0]),
        ([0.5, 0.5], [0.5, 0.5]),
        ([0.0, 0.0, 0.0, 0.0], [0.25] * 4),
        ([5.0, 1.0, 1.0], [1.0, 0.0, 0.0]),
        ([1.5, 1.0, -9.0], [0.75, 0.25, 0.0]),
        ([1e17] * 4, [0.25] * 4),  # one is far below the distance of neighbouring numbers
        ([1e17, 1e17, -1e17], [0.5, 0.5, 0.0]),
        ([float("-inf"), 0.0, 0.0], [0.0, 0.5, 0.5]),
    ],
)
def test_results_that_are_known(row: list[float], nearest: list[float]) -> None:
    assert simplex.project(torch.tensor(row, dtype=torch.float64)).tolist() == pytest.approx(nearest, abs=1e-15)


def test_single_precision_is_as_good_as_its_numbers_also_with_a_huge_coordinate_beside_small_ones() -> None:
    N = 20_000
    y = torch.full((1, N), 1 / N)
    y[0, 7] = 0.5
    exact = simplex.project_by_sorting(y.double())
    torch.testing.assert_close(simplex.project(y).double(), exact, rtol=1e-5, atol=1e-5 / N)


@pytest.mark.parametrize("view", [lambda Y: Y, lambda Y: Y.T.contiguous().T, lambda Y: Y[:1].expand(4, -1)])
def test_any_memory_layout_is_read_and_never_written(view: Callable[[Tensor], Tensor]) -> None:
    Y = view(stack(4, 9, 1.0))
    before = Y.clone()
    P = simplex.project(Y)
    assert torch.equal(Y, before) and P.is_contiguous() and P.data_ptr() != Y.data_ptr()
    assert torch.equal(P, simplex.project(before.contiguous()))


def test_the_number_of_steps_is_small_even_on_a_ladder_built_to_need_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each coordinate twice as far below the largest as the one before: a step removes few of them at a time."""
    calls = []
    sign = torch.sign

    def counted(excess: Tensor, out: Tensor) -> Tensor:
        calls.append(1)
        return sign(excess, out=out)

    monkeypatch.setattr(simplex.torch, "sign", counted)
    ladder = torch.cat([-(2.0 ** -torch.arange(0, 40.0)), torch.full((3000,), -1.0)]).double()
    simplex.project(ladder)
    assert 2 <= len(calls) <= 2 * np.log2(len(ladder)) + 53

"""Margins between two methods: exact p-values over all columns, intervals over seeds and images."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.margins import corrected, intervals, margins, studentized

FEW = 300
"""Replicates of the bootstrap."""

SIX = np.array([0.8, 1.1, 0.9, 1.3, 1.0, 0.7])


def test_t_is_that_of_the_paired_test() -> None:
    first, second = SIX, np.array([0.2, 0.9, 1.4, 0.3, 0.8, 0.1])
    ours = studentized((first - second)[:, None])[0]
    assert ours == pytest.approx(stats.ttest_rel(first, second).statistic, rel=1e-12)


def test_one_column_is_the_exact_sign_flip_test() -> None:
    column = np.array([0.5, -0.2, 0.9, 0.1, -0.4, 0.7])
    observed = abs(studentized(column[:, None])[0])
    flips = [np.array(signs) * column for signs in itertools.product((1, -1), repeat=6)]
    expected = np.mean([abs(studentized(flip[:, None])[0]) >= observed * (1 - 1e-9) for flip in flips])
    assert corrected(column[:, None])[0] == expected


@pytest.mark.parametrize("seeds, least", [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_no_p_value_is_below_what_the_seeds_allow(seeds: int, least: float) -> None:
    rising = np.linspace(1, 2, seeds)[:, None] * np.array([1.0, 3.0, -2.0])
    assert corrected(rising) == pytest.approx(np.full(3, least))


def test_six_equal_seeds_are_as_sure_as_can_be() -> None:
    assert corrected(np.ones((6, 2))) == pytest.approx([2 / 64, 2 / 64])


def test_nothing_is_not_a_difference() -> None:
    assert corrected(np.zeros((6, 3))).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(arrays(np.float64, (5, 4), elements=st.floats(-1, 1, allow_subnormal=False).map(lambda value: round(value, 3))))
def test_more_columns_never_make_a_p_value_smaller(table: np.ndarray) -> None:
    alone = [corrected(table[:, [c]])[0] for c in range(4)]
    together = corrected(table)
    assert all(whole >= single - 1e-12 for whole, single in zip(together, alone, strict=True))
    assert np.all((together >= 2 / 2**5 - 1e-12) & (together <= 1))


@pytest.mark.slow
def test_the_whole_family_errs_with_the_level_of_one_test() -> None:
    generator = np.random.default_rng(0)
    common = generator.normal(size=(200, 6, 1))  # columns of one seed rise and fall together
    tables = common + generator.normal(size=(200, 6, 9))
    errors = np.mean([corrected(table).min() <= 0.05 for table in tables])
    assert errors <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_a_flipped_table_has_the_same_p_values() -> None:
    table = np.random.default_rng(1).normal(size=(6, 4))
    assert corrected(table) == pytest.approx(corrected(-table))


def interval(outcomes: np.ndarray, replicates: int = FEW) -> tuple[float, float]:
    low, high = intervals(outcomes[None], replicates)[0]
    return float(low), float(high)


def test_an_interval_holds_the_mean_and_shrinks_with_images() -> None:
    generator = np.random.default_rng(2)
    outcomes = generator.choice([-1, 0, 1], p=[0.1, 0.6, 0.3], size=(6, 2000)).astype(np.int8)
    low, high = interval(outcomes)
    assert low < outcomes.mean() < high
    few_low, few_high = interval(outcomes[:, :100])
    assert few_high - few_low > 2 * (high - low)


def test_an_interval_is_as_wide_as_the_seeds_differ() -> None:
    seeds_agree = np.tile(np.array([1, 0, 0, 0], np.int8), (6, 500))
    one_seed_wins = np.zeros((6, 2000), np.int8)
    one_seed_wins[0] = 1
    agreed, lucky = interval(seeds_agree), interval(one_seed_wins)
    assert agreed[1] - agreed[0] < 0.05 < lucky[1] - lucky[0] and lucky[0] == 0


@pytest.mark.slow
def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Margins of images that all seeds share, and of seeds: the truth is 0.1."""
    generator = np.random.default_rng(3)
    covered = []
    for _ in range(40):
        of_images = generator.uniform(-0.3, 0.5, size=150)
        of_seeds = generator.normal(0, 0.05, size=(10, 1))
        chance = np.clip(of_images + of_seeds, -1, 1)
        wins = generator.uniform(size=chance.shape) < np.abs(chance)
        low, high = interval((np.sign(chance) * wins).astype(np.int8), 100)
        covered.append(low <= 0.1 <= high)
    assert np.mean(covered) >= 0.8


def test_columns_are_told_together() -> None:
    ahead = np.ones((6, 50), np.int8)
    level = np.zeros((6, 50), np.int8)
    first, second = margins(np.stack([ahead, level]), FEW)
    assert (first.mean, first.p, first.excludes_zero) == (1.0, 2 / 64, True)
    assert (second.mean, second.p, second.excludes_zero) == (0.0, 1.0, False)


@pytest.mark.parametrize("shape", [(1, 3), (20, 2)])
def test_too_few_or_too_many_seeds_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="seeds"):
        corrected(np.ones(shape))

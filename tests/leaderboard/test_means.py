"""What a mean over seeds promises: it is the mean, and the order of the seeds is nothing, to the last bit."""

import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustbench_dec.leaderboard.means import Mean

ACCURACIES = st.lists(st.integers(0, 10_000).map(lambda n: n / 10_000), min_size=2, max_size=10)


@given(ACCURACIES, st.randoms())
def test_the_order_of_the_seeds_is_nothing(values: list[float], random: Random) -> None:
    mixed = random.sample(values, len(values))
    assert Mean.of(mixed) == Mean.of(values)
    assert Mean.of(100 * value for value in mixed) == Mean.of(100 * value for value in values)


@given(ACCURACIES)
def test_it_is_the_mean_and_the_sample_deviation(values: list[float]) -> None:
    assert Mean.of(values) == pytest.approx((statistics.fmean(values), statistics.stdev(values), len(values)))


def test_a_single_seed_has_no_deviation_and_none_has_no_mean() -> None:
    assert Mean.of([0.5])[::2] == (0.5, 1) and Mean.of([0.5]).std != Mean.of([0.5]).std
    assert Mean.of([]).seeds == 0 and Mean.of([]).mean != Mean.of([]).mean

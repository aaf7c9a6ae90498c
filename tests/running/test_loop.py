"""The one loop: it counts rounds, ends with the budget, goes on from where a run stands, and knows what diverges."""

import math
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustbench_dec.errors import Diverged
from robustbench_dec.running.loop import At, Watch, rounds
from robustbench_dec.specs.budget import Budget
from tests.support.quick_trainers import NOISY, dec_fedtrack, stage, states


def losses(values: list[float]) -> Watch:
    """A watch that sees these values, whatever the states are."""
    left = iter(values)
    return Watch(lambda state: next(left))


def test_the_loop_makes_the_trainers_own_steps_and_counts_them() -> None:
    oracle, net = stage(NOISY)
    seen = list(rounds(dec_fedtrack(), oracle, net, Budget(rounds=4), Watch(lambda state: oracle.last_loss)))
    assert [at.costs["rounds"] for at in seen] == [0, 1, 2, 3, 4] and net.ledger.rounds == 4
    for at, expected in zip(seen, states(dec_fedtrack(), NOISY, 4), strict=True):
        assert all(torch.equal(Z, other) for Z, other in zip(at.state, expected, strict=True))
    assert seen[-1].costs == net.ledger.row() and seen[-1].reference == min(at.value for at in seen)


def test_a_run_ends_with_the_round_in_which_its_budget_is_spent() -> None:
    oracle, net = stage(NOISY)
    *_, before, last = rounds(dec_fedtrack(K=5, batch=2), oracle, net, Budget(sfo=57), losses([1.0] * 99))
    assert before.costs["sfo"] < 57 <= last.costs["sfo"]


def test_a_run_goes_on_from_where_it_stands() -> None:
    oracle, net = stage(NOISY)
    whole = list(rounds(dec_fedtrack(), oracle, net, Budget(rounds=6), losses([9.0, 8, 7, 6, 5, 4, 3])))
    oracle, net = stage(NOISY)
    *_, cut = rounds(dec_fedtrack(), oracle, net, Budget(rounds=2), losses([9.0, 8, 7]))
    rest = list(rounds(dec_fedtrack(), oracle, net, Budget(rounds=6), losses([6.0, 5, 4, 3]), start=cut))
    assert rest[0] is cut and [at[1:] for at in rest] == [at[1:] for at in whole[2:]]
    assert all(torch.equal(Z, other) for Z, other in zip(rest[-1].state, whole[-1].state, strict=True))
    spent = list(rounds(dec_fedtrack(), oracle, net, Budget(rounds=6), losses([]), start=rest[-1]))
    assert len(spent) == 1 and net.ledger.rounds == 6


class _Still:
    """A trainer that does nothing."""

    def init(self, oracle: Any, net: Any) -> None:
        return None

    def step(self, state: None, oracle: Any, net: Any) -> None:
        return None

    def settings(self) -> dict[str, float]:
        return {"eta_c": 0.1, "batch": 3}


VALUES = st.lists(st.floats(0, 1e4) | st.sampled_from([math.nan, math.inf]), min_size=1, max_size=8)


@pytest.mark.slow
@settings(deadline=None)
@given(values=VALUES, explosion=st.sampled_from([2.0, 50.0, math.inf]), first=st.booleans())
def test_the_first_value_that_is_too_large_or_none_ends_the_run(
    values: list[float], explosion: float, first: bool
) -> None:
    """By the rule itself: value < explosion * max(reference, 1) in every round but the start."""
    allowed = len(values)
    for t in range(1, len(values)):
        finite = [value for value in values[: t + 1] if math.isfinite(value)]
        reference = (finite[0] if first else min(finite)) if finite else values[t]
        if not values[t] < explosion * max(reference, 1.0):
            allowed = t
            break
    oracle, net = stage(NOISY)
    left, seen = iter(values), []
    watch = Watch(lambda state: next(left), "loss", explosion, "first" if first else "smallest")
    loop = rounds(_Still(), oracle, net, Budget(rounds=max(1, len(values) - 1)), watch)  # type: ignore[arg-type]
    try:
        for at in loop:
            seen.append(at)
            if len(seen) == len(values):
                break
    except Diverged as error:
        assert f"in round {allowed} (loss {values[allowed]:.3g}) with eta_c = 0.1; smaller step" in str(error)
    assert len(seen) == allowed
    assert net.ledger.rounds == (allowed if allowed < len(values) else len(values) - 1)


def test_divergence_names_the_round_and_the_step_sizes() -> None:
    oracle, net = stage(NOISY)
    with pytest.raises(Diverged, match=r"in round 2 \(loss 400\) with eta_c = 0.02, eta_d = 0.04.*; smaller step"):
        list(rounds(dec_fedtrack(), oracle, net, Budget(rounds=9), losses([8.0, 7.0, 400.0])))
    start = At(cast(Any, None), net.ledger.row(), math.nan, math.nan)
    with pytest.raises(Diverged, match=r"in round 3 \(loss nan\)"):
        list(rounds(_Still(), oracle, net, Budget(rounds=9), losses([math.nan]), start))  # type: ignore[arg-type]

"""Progress off a terminal: a line for every finished run and cell, with the time that is left."""

import re

import pytest

from robustbench_dec import bars
from tests.support import by_path
from tests.support.tiny import Made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in the place of the machine's: a list with one number, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    return now


def test_off_a_terminal_every_finished_run_has_a_line_with_the_time_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in bars.bar(range(3), desc="Table 2", unit="run"):
        clock[0] += 90
    assert capsys.readouterr().err.splitlines() == [
        "robustbench-dec: Table 2: 1 of 3 runs, 1:30 so far, about 3:00 left",
        "robustbench-dec: Table 2: 2 of 3 runs, 3:00 so far, about 1:30 left",
        "robustbench-dec: Table 2: 3 of 3 runs, 4:30 so far",
    ]


def test_what_was_there_before_does_not_count_for_the_time_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with bars.bar(total=12, initial=10, desc="tune", unit="run") as bar:
        clock[0] += 4000
        bar.update()
    assert "11 of 12 runs, 1:06:40 so far, about 1:06:40 left" in capsys.readouterr().err


def test_rounds_have_a_line_a_minute_with_what_was_measured(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with bars.bar(total=500, desc="mnist-k_gt-s0", unit="round") as bar:
        for number in range(130):
            clock[0] += 1
            bar.set_postfix(loss=f"{number}")
            bar.update()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "robustbench-dec: mnist-k_gt-s0: 60 of 500 rounds, 1:00 so far, about 7:20 left, loss 59"
    assert "120 of 500" in second


def test_work_that_is_done_in_no_time_and_hidden_work_are_silent(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(bars.bar("abc", desc="cached", unit="run")) == ["a", "b", "c"]
    for _ in bars.bar(range(3), desc="hidden", unit="run", show=False):
        clock[0] += 90
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_table_off_a_terminal_tells_of_its_cells_and_runs(
    made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bars, "PAUSES", dict.fromkeys(bars.PAUSES, 0.0))
    for cell in made.folders[1].glob("attacks/fgsm-*.json"):
        cell.unlink()
    by_path.make(made.specification, made.results, progress=True)
    said = capsys.readouterr().err
    assert re.search(rf"attacks on {made.folders[1].name}: 1 of 2 cells, 0:\d\d so far, about 0:\d\d left\n", said)
    assert re.search(r"Tiny: 2 of 2 runs, 0:\d\d so far\n", said)

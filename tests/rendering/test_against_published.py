"""A table made again beside the published one: bands, verdicts, and what chance gives."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from robustbench_dec.commands.app import app
from robustbench_dec.rendering.against_published import compared
from tests.support import by_path
from tests.support.tiny import Made

COLUMNS = ["dataset", "method", "attack", "eps", "mean", "std", "seeds"]


def table(mean: float, seeds: int, std: float = 0.01, columns: int = 1) -> pd.DataFrame:
    rows = [("mnist", "k_gt", "fgsm", round(0.05 * (k + 1), 9), mean, std, seeds) for k in range(columns)]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_the_band_is_that_of_another_seed_of_the_same_runs() -> None:
    half = stats.t.ppf(0.975, 5) * 0.01 * math.sqrt(1 / 6 + 1)
    for shift, word in ((0.9, "inside"), (-0.9, "inside"), (1.1, "outside"), (-1.1, "outside")):
        (line, summary) = compared(table(0.7, 6), table(0.7 + shift * half, 1)).lines
        assert line.endswith(word) and line.startswith("MNIST, K-GT, FGSM δ=0.05: ")
    assert "1 of 1 numbers are outside" in summary
    wide = stats.t.ppf(0.975, 5) * 0.01 * math.sqrt(1 / 6 + 1 / 6)
    assert compared(table(0.7, 6), table(0.7 + 0.9 * wide, 6)).outside == 0
    assert compared(table(0.7, 6), table(0.7 + 0.9 * half, 6)).outside == 1  # more seeds, a narrower band


@pytest.mark.slow
def test_a_band_covers_as_many_seeds_as_it_says() -> None:
    """Of 400 columns, each with six seeds of its own that were published and one that is new."""
    draws = np.random.default_rng(0).normal(0.7, 0.02, size=(400, 7))
    published = table(0.7, 6, columns=400).assign(mean=draws[:, :6].mean(1), std=draws[:, :6].std(1, ddof=1))
    found = compared(published, table(0.7, 1, columns=400).assign(mean=draws[:, 6]))
    assert found.judged == 400
    assert found.outside / 400 == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / 400))


def test_some_numbers_outside_are_chance_and_many_are_not() -> None:
    published = table(0.7, 6, columns=20)
    few, many = table(0.7, 1, columns=20), table(0.7, 1, columns=20)
    few.loc[:2, "mean"] = 0.5
    many.loc[:9, "mean"] = 0.5
    assert compared(published, few).as_published and compared(published, few).outside == 3
    assert not compared(published, many).as_published


def test_what_cannot_be_judged_is_said() -> None:
    lines = compared(table(0.7, 1, math.nan), table(0.7, 1, columns=2)).lines
    assert "one seed: no band" in lines[0] and "not in the published table" in lines[1]


def test_a_method_without_a_number_is_said_and_not_judged() -> None:
    lines = compared(table(0.7, 6, columns=2), table(math.nan, 0, columns=2)).lines
    assert lines[0] == "MNIST, K-GT: no number here, not judged" and lines[1].startswith("0 of 0 numbers")


BREAKS = """
title = "Breaks"
protocol = "rules.md"
seeds = [0]
n_examples = 30
curve_points = 1
network = { nodes = 3 }
[[blocks]]
title = "Digits"
rounds = 3
problem = { dataset = "digits", eps = 0.1 }
trainers.k_gt = { eta_c = 1e4, batch = 16 }
trainers.dec_fedtrack = { eta_c = 0.2, eta_d = 1.0, batch = 16 }
attacks = [{ name = "fgsm", eps = [0.1] }]
"""


@pytest.mark.slow
def test_a_first_run_that_diverges_ends_no_reproduction(tmp_path: Path) -> None:
    here = tmp_path / "own" / "breaks.toml"
    here.parent.mkdir()
    here.write_text(BREAKS)
    (here.parent / "rules.md").write_text("Whatever comes out is the result.")
    here.with_suffix(".md").write_text("As published\n")
    rows = [("digits", method, "fgsm", 0.1, 0.5, 0.5, 6) for method in ("k_gt", "dec_fedtrack")]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(here.with_suffix(".csv"), index=False)
    words = ["reproduce", str(here), "--results", str(tmp_path / "out"), "--jobs", "1"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "Digits, K-GT, seed 0: training diverged in round " in answer.output
    assert "Digits, K-GT: no number here, not judged" in answer.output.replace("8x8 digits", "Digits")
    here.write_text(BREAKS.replace("eta_c = 0.2", "eta_c = 1e4"))
    words = ["reproduce", str(here), "--results", str(tmp_path / "none"), "--jobs", "1"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0 and "No run finished, so there is nothing to compare" in answer.output
    assert CliRunner().invoke(app, [*words, "--strict"]).exit_code == 1


@pytest.mark.slow
def test_reproduce_prints_the_published_table_and_ends_with_a_verdict(made: Made, tmp_path: Path) -> None:
    text = made.file.read_text()
    here = tmp_path / "own" / "tiny.toml"
    here.parent.mkdir()
    here.write_text(text)
    runner = CliRunner()
    answer = runner.invoke(app, ["reproduce", str(here), "--results", str(tmp_path / "out")])
    assert answer.exit_code != 0 and "no published table" in str(answer.exception)
    by_path.report(made.specification, "tiny", made.results, here.parent)
    frame = pd.read_csv(here.with_suffix(".csv"))
    frame.assign(std=0.001, seeds=6).to_csv(here.with_suffix(".csv"), index=False)  # as if six seeds were published
    words = ["reproduce", str(here), "--results", str(tmp_path / "out"), "--jobs", "1"]
    answer = runner.invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(here.with_suffix(".md").read_text())
    assert "0 of 8 numbers are outside the band" in answer.output
    wrong = frame.assign(std=0.0001, seeds=6, mean=frame["mean"] - 0.1)
    wrong.to_csv(here.with_suffix(".csv"), index=False)
    strict = runner.invoke(app, [*words, "--strict"])
    assert strict.exit_code == 1 and "8 of 8 numbers are outside" in strict.output
    facts = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert (facts["verdict"]["judged"], facts["verdict"]["outside"], facts["verdict"]["as_published"]) == (8, 8, False)
    assert [row["mean"] for row in facts["table"]] == pytest.approx(list(frame["mean"]))

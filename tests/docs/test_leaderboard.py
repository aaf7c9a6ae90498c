"""What docs/leaderboard.md says of all methods is made of the runs, the trials and benchmarks/strong.csv."""

import importlib
import subprocess
from pathlib import Path
from statistics import median
from types import ModuleType

import pandas as pd
import pytest

from robustbench_dec.rendering.methods_table import CLEAN, NODE, WORST
from robustbench_dec.rendering.text import with_parts
from robustbench_dec.store.results import Results
from tests.support import ROOT, repository

PAGE = ROOT / "docs" / "leaderboard.md"
SEEDS = 3
WORDS, TRIALS = "bd338ec", "8640f8a"
"""The commits of the five sentences' words and of the chosen step sizes."""


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/methods_text.py."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("methods_text")


@pytest.mark.slow
def test_the_page_is_made_of_the_files(maker: ModuleType) -> None:
    text = PAGE.read_text()
    assert with_parts(text, maker.PARTS) == text, "python docs/methods_text.py writes it"
    assert all(f"<!-- {name} -->\n" in text for name in maker.PARTS)
    assert maker.sentences().count("\n") == 4


@pytest.mark.slow
def test_every_method_has_a_row_with_its_seeds_in_every_block(maker: ModuleType) -> None:
    frame = pd.read_csv(ROOT / "tables" / "methods.csv")
    trainers = {path.stem for path in (ROOT / "trainers").glob("[!_]*.py")}
    for block, rows in frame.groupby("block"):
        assert set(rows["method"]) == trainers and rows["title"].nunique() == len(trainers) + 1
        asked = SEEDS if str(block).startswith("MNIST") else 1
        assert (rows["seeds"] + rows["diverged"] == asked).all()
    assert frame["block"].nunique() == 6


def test_the_worst_case_is_below_every_attack_of_its_row() -> None:
    frame = pd.read_csv(ROOT / "tables" / "methods.csv")
    wide = frame.pivot(index=["block", "title"], columns="measure", values="mean").dropna()
    attacked = [name for name in wide.columns if name not in (CLEAN, NODE, WORST)]
    assert len(wide) > 0 and len(attacked) == 3
    assert (wide[attacked].ge(wide[WORST] - 1e-6, axis=0)).all(axis=None)


def test_strong_never_leaves_more_than_pgd_nor_less_than_the_worst_case() -> None:
    frame = pd.read_csv(ROOT / "benchmarks" / "strong.csv")
    assert (frame["images"] >= 1000).all()
    assert (frame["strong"] <= frame["pgd"] + 0.005).all()  # another batch size may flip an image
    assert (frame["worst_case"] <= frame[["fgsm", "pgd", "strong"]].min(axis=1)).all()


def test_ahead_needs_ranges_that_do_not_meet(maker: ModuleType) -> None:
    def row(*values: float) -> object:
        return maker.Row("k_gt", "K-GT", {CLEAN: dict(enumerate(values))})

    assert maker.told(row(0.8, 0.9), row(0.5, 0.7), CLEAN) == "ahead"
    assert maker.told(row(0.5, 0.7), row(0.8, 0.9), CLEAN) == "behind"
    assert maker.told(row(0.5, 0.8), row(0.8, 0.9), CLEAN) == "not told apart"
    assert maker.told(row(0.9), row(0.1), CLEAN) == "not told apart"


@pytest.mark.slow
def test_the_readmes_minutes_are_those_of_the_times_and_of_the_records(maker: ModuleType) -> None:
    times = pd.read_csv(ROOT / "benchmarks" / "reproduced_times.csv").set_index("command")
    spent = times.loc["make methods RESULTS=out"]
    assert (
        f"| [{spent['clock_seconds'] / 60:.0f}](docs/reproduction.md#made-anew) |" in (ROOT / "README.md").read_text()
    )
    assert spent["core_seconds"] == pytest.approx(maker.core_seconds(), abs=1)


@pytest.mark.slow
def test_what_confounds_the_second_sentence_is_in_the_runs(maker: ModuleType) -> None:
    methods = maker.blocks()[maker.IID].keys() - {"yardstick"}
    runs = [maker.RESULTS.run(item.run.id) for item in maker.work() if item.block.title == maker.IID]
    with_server = {run.record.method for run in runs if run.record.ledger.all_reduces > 1}
    groups = [methods & {*maker.UNCORRECTED}, methods - {*maker.UNCORRECTED}]
    assert groups[0] <= with_server and len(groups[1] & with_server) < len(groups[1]) / 2
    falls = [[maker.fall(method, WORST) for method in group] for group in groups]
    apart = abs(median(falls[0]) - median(falls[1]))
    assert all(max(each) - min(each) > apart for each in falls)
    said = " ".join(PAGE.read_text().split())
    assert "All methods without correction have one, most with correction have none" in said
    assert "either group's own spread is larger than the difference of the medians" in said
    y = [line.split("|")[2:4] for line in maker.trained_y().splitlines()[2:]]
    inside = [float(largest) < 60 for largest, _ in y]
    assert "y stays far inside its ball for most methods" in said and sum(inside) > len(inside) / 2


def test_rule_trials_and_words_are_older_than_every_run(maker: ModuleType, tracked: Path) -> None:
    results = Results(tracked / "results")
    made = {str(run.record.git_commit) for item in maker.work() if (run := results.run(item.run.id)).exists}
    assert made
    for before in (WORDS, TRIALS):
        for commit in made:
            try:
                repository.git("cat-file", "-e", f"{commit}^{{commit}}")
            except subprocess.CalledProcessError:
                pytest.skip("this copy is without the history")
            repository.git("merge-base", "--is-ancestor", before, commit)  # fails if it is not

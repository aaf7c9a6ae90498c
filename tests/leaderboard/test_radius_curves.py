"""Radius curves are the worst case at each radius, from stored cells alone; out to chance, and with their median."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.radius_curves import curve, curves
from robustbench_dec.leaderboard.worst_case import within, worst_case
from robustbench_dec.store.bits import pack
from robustbench_dec.store.results import Results
from tests.support.tiny import Made


def test_a_curve_is_the_worst_case_at_every_radius(finished: Made) -> None:
    for each in curves(Results(finished.results)):
        cells = [cell.record for cell in Results(finished.results).run(each.run.id).cells()]
        assert each.radii == (0.0, 0.05, 0.1, 0.2) and len(each.smallest) == 40
        expected = [worst_case(within(cells, "Linf", radius)).accuracy for radius in each.radii[1:]]
        assert each.accuracies == (cells[0].clean_acc, *expected)
        assert list(each.accuracies) == sorted(each.accuracies, reverse=True)
        assert each.chance == 0.1 and each.attacks == ("fgsm", "uap")


def test_the_median_is_the_radius_that_breaks_half_of_the_images(finished: Made) -> None:
    run = Results(finished.results).run(finished.folders[0].name)
    stored = next(cell.record for cell in run.cells())

    def cell(eps: float, right: list[bool], before: list[bool]) -> object:
        bits, clean = pack(torch.tensor(right)), pack(torch.tensor(before))
        return stored.model_copy(update={"eps": eps, "bits": bits, "clean_bits": clean, "n_examples": len(right)})

    clean = [False, True, True, True, True]
    first, second = [False, False, True, True, True], [False, True, False, True, True]  # the second missed image 1
    joined = curve(run.record, [cell(0.2, second, clean), cell(0.1, first, clean)])  # type: ignore[list-item]
    assert joined.smallest.tolist() == [0.0, 0.1, 0.2, float("inf"), float("inf")]
    assert joined.accuracies == (0.8, 0.6, 0.4) and joined.median == 0.2 and joined.chance_at is None
    less = curve(run.record, [cell(0.1, first, clean)])  # type: ignore[list-item]
    assert less.median is None  # three of five survive


@pytest.mark.slow
def test_the_command_reads_draws_and_changes_nothing(made: Made, tmp_path: Path) -> None:
    runner, run = CliRunner(), made.folders[0]
    runner.invoke(app, ["attack", str(run), "--attack", "fgsm", "--eps", "0.4,1", "--n-examples", "40"])
    runner.invoke(app, ["attack", str(run), "--attack", "pgd", "--eps", "1", "--n-examples", "40"])
    before = {path: path.read_bytes() for path in made.results.rglob("*") if path.is_file()}
    words = ["radius", "--results", str(made.results), "--out", str(tmp_path / "out" / "radius"), "--json"]
    answer = runner.invoke(app, words, catch_exceptions=False)
    said = {each["run_id"]: each for each in json.loads(answer.stdout)["curves"]}
    assert {path: path.read_bytes() for path in made.results.rglob("*") if path.is_file()} == before
    far, near = said[run.name], said[made.folders[1].name]
    assert far["chance_at"] in (0.4, 1.0) and 0 < far["median_radius"] <= 1  # PGD over the whole box leaves nothing
    assert near["curve"][-1]["eps"] == 0.2 and near["chance_at"] is None
    table = pd.read_csv(tmp_path / "out" / "radius.csv")
    mine = table[table["run_id"] == run.name]
    assert list(mine["accuracy"]) == [point["accuracy"] for point in far["curve"]]
    assert (mine["ci_low"] <= mine["accuracy"]).all() and (mine["accuracy"] <= mine["ci_high"]).all()
    assert (tmp_path / "out" / "radius.png").stat().st_size > 5000 and (tmp_path / "out" / "radius.pdf").is_file()
    plain = runner.invoke(app, words[:-1]).output
    assert "1 of 2 curves end above chance" in plain and f"{run.name}: median smallest radius" in plain


def test_networks_without_such_cells_are_refused_in_one_sentence(finished: Made) -> None:
    for pattern, norm, images in (("mnist-*", "Linf", 1), ("*", "L2", 1), ("*", "Linf", 41)):
        with pytest.raises(BadInput, match="has stored attacks in"):
            curves(Results(finished.results), pattern, norm, images)
    with pytest.raises(BadInput, match="no norm 'l2'; there are: Linf"):
        curves(Results(finished.results), norm="l2")

"""A table by training radius: the baseline first, then radius by radius, every number from the stored cells."""

import csv
from pathlib import Path

import pytest

from robustbench_dec.rendering import report
from robustbench_dec.running import suite
from robustbench_dec.specs import table
from robustbench_dec.store.results import Results
from tests.support.by_path import QUIET

TABLE = """
title = "By radius"
layout = "radius"
caption = "Three radii on digits."
seeds = [0, 1]
n_examples = 30
curve_points = 1
[network]
nodes = 3
[[blocks]]
title = "Digits"
rounds = 3
problem = { dataset = "digits", eps = 0.1 }
problems = { "dec_fedtrack 0.2" = { eps = 0.2 } }
trainers.k_gt = { eta_c = 0.2, batch = 16 }
trainers."dec_fedtrack 0.2" = { eta_c = 0.2, eta_d = 1.0, batch = 16 }
trainers."dec_fedtrack 0.1" = { eta_c = 0.2, eta_d = 1.0, batch = 16 }
[[blocks.attacks]]
name = "fgsm"
eps = [0.05, 0.1]
"""


@pytest.mark.slow
def test_rows_go_from_the_baseline_along_the_radii_and_come_from_the_cells(tmp_path: Path) -> None:
    path = tmp_path / "radius.toml"
    path.write_text(TABLE)
    asked, results = table.read(path), Results(tmp_path / "results")
    work = suite.listed(asked)
    suite.make(work, results, QUIET)
    report.report(asked, work, "radius", results, tmp_path)
    rows = list(csv.DictReader((tmp_path / "radius.csv").open()))
    assert list(dict.fromkeys(row["training_radius"] for row in rows)) == ["0.0", "0.1", "0.2"]
    for radius in ("0.0", "0.1", "0.2"):
        here = [
            results.run(item.run.id).cell(item.cells[1].key).record.robust_acc
            for item in work
            if ("dec" in item.run.trainer) == (radius != "0.0") and radius in ("0.0", str(item.run.problem["eps"]))
        ]
        (row,) = (row for row in rows if row["training_radius"] == radius and row["measure"] == "FGSM δ=0.1")
        assert len(here) == 2 == int(row["seeds"]) and float(row["mean"]) == pytest.approx(sum(here) / 2, abs=1e-6)
    lines = (tmp_path / "radius.md").read_text().splitlines()
    named = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and ":--" not in line]
    assert named == ["Trained", "K-GT", "Dec-FedTrack, ρ = 0.1", "Dec-FedTrack, ρ = 0.2"]  # noqa: RUF001
    assert (tmp_path / "radius-tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert r"\midrule" in (tmp_path / "radius.tex").read_text()
    with results.leaderboard.open() as board:
        assert len(list(csv.reader(board))) == 1 + 2 * len(work)  # a row for every cell

"""A table of methods: equal trials tuned on one split, one budget, rows by their worst case, and rows that diverged."""

import csv
from pathlib import Path

import pytest

from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import methods_table, report
from robustbench_dec.running import suite, tune
from robustbench_dec.specs import table
from robustbench_dec.store.results import Results
from tests.support import ROOT
from tests.support.by_path import QUIET

TABLE = """
title = "Methods"
layout = "methods"
caption = "Three entries on digits."
seeds = [0, 1]
n_examples = 30
curve_points = 2
curve_examples = 20

[network]
nodes = 3

[defaults]
sfo = 320
problem = { dataset = "digits", eps = 0.1 }
problems = { "k_gt adversarial" = { name = "adversarial", steps = 2, rel_alpha = 0.6 } }
[defaults.trainers.k_gt]
eta_c = 0.2
batch = 16
[defaults.trainers."k_gt adversarial"]
eta_c = 0.2
batch = 16
[defaults.trainers.local_sgda]
eta_x = 1e30
eta_y = 0.1
batch = 16
[[defaults.attacks]]
name = "fgsm"
eps = [0.05]
[[defaults.attacks]]
name = "pgd"
eps = [0.1]
steps = 5

[[blocks]]
title = "Digits, iid"
[[blocks]]
title = "Digits, by label"
seeds = [0]
problem.split = "label"

[tune]
seed = 9
sfo = 80
[tune.drawn]
block = "Digits, by label"
trials = 2
images = 20
box = { x = [0.1, 0.3], y = [0.1, 1.0] }
[[tune.attacks."Digits, by label"]]
name = "fgsm"
eps = [0.05]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "methods.toml"
    path.write_text(TABLE)
    return path


@pytest.mark.slow
def test_a_table_of_methods_is_made_and_says_who_diverged(file: Path, tmp_path: Path) -> None:
    spec, results = table.read(file), Results(tmp_path / "results")
    work = suite.listed(spec)
    assert len(work) == 3 * 2 + 3  # the second block has one seed
    suite.make(work, results, QUIET)
    assert all(item.done(results) == item.size for item in work)
    suite.make(work, results, QUIET)  # nothing is trained again, what diverged neither
    report.report(spec, work, "methods", results, tmp_path)
    blocks = methods_table.collect(work, results)
    for rows in blocks.values():
        assert rows[-1].title == "Local SGDA" and not rows[-1].measures and "diverged in round 1" in rows[-1].end
        worst = [row.mean(methods_table.WORST).mean for row in rows[:-1]]
        assert worst == sorted(worst, reverse=True)
        for row in rows[:-1]:
            assert 320 <= row.costs["calls"] < 320 + 5 * 16 * 3 + 1
            for seed, value in row.measures[methods_table.WORST].items():
                assert all(value <= row.measures[name][seed] for name in row.measures if "δ" in name)
    text = (tmp_path / "methods.md").read_text()
    assert "K-GT, adversarial training" in text and "Local SGDA, seed 0, 1: training diverged in round 1" in text
    lines = list(csv.DictReader((tmp_path / "methods.csv").open()))
    assert {line["diverged"] for line in lines if line["method"] == "local_sgda"} == {"2", "1"}
    for name in ("methods.tex", "methods-curves.png", "methods-curves.pdf", "methods-heat.png", "methods-heat.pdf"):
        assert (tmp_path / name).stat().st_size > 500


@pytest.mark.slow
def test_every_method_has_equal_trials_on_one_split_and_its_best_point_everywhere(file: Path, tmp_path: Path) -> None:
    spec = table.read(file)
    path = tune.tune(spec, "methods", Results(tmp_path / "tune"), tmp_path, QUIET)
    rows = list(csv.DictReader(path.open()))
    assert [row["method"] for row in rows] == ["k_gt"] * 2 + ["k_gt adversarial"] * 2 + ["local_sgda"] * 2
    assert {row["block"] for row in rows} == {"Digits, by label"}
    taken, _ = tune.taken(spec, path)
    for entry, x in (("k_gt", "eta_c"), ("k_gt adversarial", "eta_c"), ("local_sgda", "eta_x")):
        mine = [row for row in rows if row["method"] == entry]
        best = max(mine, key=tune.score)
        for block in taken.blocks:
            assert float(block.trainers[entry][x]) == float(best[x])
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(BadInput, match="1 of the 2 trials of local_sgda"):
        tune.taken(spec, path)


def test_points_are_the_same_for_all_and_inside_the_box(file: Path) -> None:
    spec = table.read(file)
    assert spec.tune is not None and spec.tune.drawn is not None
    plain, dual = (tune.points(spec.tune.drawn, name) for name in ("k_gt", "local_sgda"))
    assert [point["eta_c"] for point in plain] == [point["eta_x"] for point in dual]
    assert all(0.1 <= point["eta_x"] <= 0.3 and 0.1 <= point["eta_y"] <= 1.0 for point in dual)
    assert tune.score({"diverged": "True"}) < 0 < tune.score({"diverged": "False", "pgd@0.1": "0.1", "fgsm@1": ""})


def test_the_committed_rule_has_every_method_three_splits_and_its_cost() -> None:
    spec = table.read(ROOT / "tables" / "methods.toml")
    shelf = {path.stem for path in (ROOT / "trainers").glob("[!_]*.py")}
    for block in spec.blocks:
        assert {entry.partition(" ")[0] for entry in block.trainers} == shelf and len(block.trainers) == len(shelf) + 1
    splits = [(block.problem["dataset"], block.problem["split"]) for block in spec.blocks]
    ways = ("iid", "dirichlet(0.1)", "label")
    assert splits == [(name, split) for name in ("mnist", "fashion-mnist") for split in ways]
    assert spec.tune is not None and spec.tune.seed not in spec.seeds and len(spec.seeds) == 3
    assert len({block.sfo for block in spec.blocks}) == 1 and spec.tune.sfo == spec.blocks[0].sfo
    cost = list(csv.DictReader((ROOT / "benchmarks" / "methods_cost.csv").open()))[-1]
    runs, trials = sum(1 for _ in spec.runs()), spec.tune.drawn.trials * len(shelf | {""}) if spec.tune.drawn else 0
    assert cost["part"] == f"{runs} runs and {trials} trials, hours on 2 cores" and float(cost["seconds"]) <= 3
    text = (ROOT / "tables" / "methods.toml").read_text()
    assert f"{runs} runs and {trials} trials, {cost['seconds']} hours" in text


def test_how_a_run_diverged_is_among_the_files_that_publish_names(tmp_path: Path) -> None:
    run = Results(tmp_path).run("digits-k_gt-s0-0000000000")
    assert run.record_files == []
    run.write_divergence("training diverged in round 1")
    (only,) = run.record_files
    assert "round 1" in only.read_text()

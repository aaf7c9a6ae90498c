"""Figures 1 and 2: every method over the same budgets, from files that anyone can make again."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from robustbench_dec import data, files
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import figures, style
from robustbench_dec.running import suite, tune
from robustbench_dec.shelf import number
from robustbench_dec.specs import table as spec
from robustbench_dec.store.results import Results
from tests.support import ROOT, by_path

SIX = ["dec_fedtrack", "dream", "dm_hsgd", "gt_da", "gt_gda", "gt_srvr"]
FULL = spec.read(ROOT / "tables" / "figures.toml")


@pytest.fixture(scope="module")
def small() -> spec.Spec:
    quick = FULL.with_profile("quick")
    block = quick.blocks[0].model_copy(update={"sfo": 600, "exchanges": 20})
    return quick.model_copy(update={"blocks": [block], "seeds": [0, 1], "curve_points": 4})


@pytest.fixture(scope="module")
def made(small: spec.Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("figures")
    by_path.make(small, results)
    return results


def test_the_specification_is_the_papers_experiment() -> None:
    assert [block.title for block in FULL.blocks] == ["a9a", "w8a", "ijcnn1", "phishing"]
    assert len({(block.sfo, block.exchanges) for block in FULL.blocks}) == 1
    assert (FULL.network.graph, FULL.network.nodes, FULL.network.weights) == ("ring", 10, "lazy")
    for _, run in FULL.runs():
        problem, trainer = run.settings.problem, run.settings.trainer
        assert (problem["theta"], problem["nu"], problem["scaling"], problem["nodes"]) == (1e-5, 10, "C", 10)
        assert trainer.get("batch", 64) == 64
        assert trainer["name"] != "dec_fedtrack" or trainer["K"] == 1
    assert all(list(block.trainers) == SIX for block in FULL.blocks)


@pytest.mark.slow
def test_every_curve_reaches_the_end_of_both_axes(small: spec.Spec, made: Path, tmp_path: Path) -> None:
    written = files.write_all(figures.render(small, suite.listed(small), Results(made), tmp_path / "small"))
    assert {path.name for path in written} == {
        "small.csv", "small-1.png", "small-1.pdf", "small-2.png", "small-2.pdf",
    }  # fmt: skip
    assert all(path.stat().st_size > 1000 for path in written)
    frame = pd.read_csv(tmp_path / "small.csv")
    ends = frame.groupby(["method", "seed"])[["sfo", "exchanges"]].max()
    assert len(ends) == 12
    assert (ends["sfo"] >= 600).all() and (ends["exchanges"] >= 20).all()
    assert {"round", "exchanges", "sfo", "sfo_split_total", "phi", "grad_phi", "test_acc"} <= {*frame.columns}
    split = 10 * (frame["sfo_x"] + frame["sfo_y"])
    assert (frame["sfo_split_total"] == split).all()
    assert (frame.groupby(["method", "seed"])["phi"].last() < frame.groupby(["method", "seed"])["phi"].first()).all()


@pytest.mark.slow
def test_lines_are_means_over_seeds_within_the_budget(
    small: spec.Spec, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def keep(figure: Figure, kind: str) -> bytes:
        drawn.append(figure)
        return b""

    monkeypatch.setattr(style, "drawn", keep)
    figures.render(small, suite.listed(small), Results(made), tmp_path / "small")
    frame = figures.gather(suite.listed(small), Results(made))
    panel = drawn[0].axes[0]
    assert panel.get_title(loc="left") == "breast_cancer" and "SFO" in panel.get_xlabel()
    assert len(panel.lines) == len(panel.collections) == len(SIX)
    for method, line in zip(SIX, panel.lines, strict=True):
        costs, values = line.get_data()
        assert max(costs) == 600
        seeds = [curve for _, curve in frame[frame["method"] == method].groupby("seed")]
        middle = [np.interp(costs[100], curve["sfo"], curve["phi"]) for curve in seeds]
        assert np.isclose(values[100], np.mean(middle))
    assert "accuracy" in drawn[2].axes[0].get_ylabel()


def test_a_data_set_that_cannot_be_had_is_left_out_with_a_sentence(
    small: spec.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = small.blocks[0].model_copy(update={"title": "a9a", "problem": {"name": "robust_logistic", "dataset": "a9a"}})
    both = small.model_copy(update={"blocks": [lost, small.blocks[0]]})

    def fetch(name: str) -> list[Path]:
        if name == "a9a":
            raise BadInput("a9a cannot be fetched; put it into data/a9a")
        return []

    monkeypatch.setattr(data, "fetch", fetch)
    left, reasons = figures.available(both)
    assert [block.title for block in left.blocks] == ["breast_cancer"]
    assert reasons == ["a9a is left out: a9a cannot be fetched; put it into data/a9a"]
    with pytest.raises(BadInput, match="left out"):
        figures.available(small.model_copy(update={"blocks": [lost]}))


def test_figures_without_a_run_are_refused(small: spec.Spec, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="make the figures first"):
        figures.render(small, suite.listed(small), Results(tmp_path), tmp_path / "small")


def test_the_step_sizes_are_the_best_of_the_tuning() -> None:
    tuned = pd.read_csv(ROOT / "tables" / "figures-tune.csv")
    assert FULL.tune is not None
    for block in FULL.blocks:
        for method, settings in block.trainers.items():
            grid = FULL.tune.grids[block.title][method]
            rows = tuned[(tuned["dataset"] == block.title) & (tuned["method"] == method)]
            assert len(rows) == np.prod([len(values) for values in grid.values()])
            best = rows.loc[rows["phi"].idxmin()]
            for name in grid:
                assert np.isclose(number(settings[name]), number(best[name])), (block.title, method, name)


def test_tuning_judges_by_phi_and_marks_what_diverged(small: spec.Spec, tmp_path: Path) -> None:
    grids: dict[str, dict[str, dict[str, list[Any]]]] = {
        "breast_cancer": {"gt_gda": {"eta_x": [0.1, 1e6], "eta_y": ["1e-2/450"]}}
    }
    tuned = small.model_copy(update={"tune": spec.TuneSpec(rounds=3, grids=grids)})
    path = tune.tune(tuned, "small", Results(tmp_path), tmp_path, progress=False)
    rows = pd.read_csv(path)
    assert list(rows["eta_x"]) == [0.1, 1e6] and list(rows["diverged"]) == [False, True]
    assert rows["phi"].notna().tolist() == [True, False]
    assert files.read_json(next(tmp_path.glob("runs/*/run.json")))["final"]["phi"] == rows["phi"][0]


@pytest.mark.slow
def test_a_trainer_can_be_entered_twice_and_every_axis_can_be_drawn(small: spec.Spec, tmp_path: Path) -> None:
    block = small.blocks[0]
    cta = block.trainers["gt_gda"] | {"order": "cta"}
    trainers = {"gt_gda": block.trainers["gt_gda"], "gt_gda cta": cta, "dec_fedtrack": block.trainers["dec_fedtrack"]}
    block = block.model_copy(update={"trainers": trainers})
    axes = ["sfo", "exchanges", "bytes_per_edge", "round"]
    wanted = small.model_copy(update={"blocks": [block], "seeds": [0], "axes": axes})
    by_path.make(wanted, tmp_path / "results")
    results = Results(tmp_path / "results")
    frame = figures.gather(suite.listed(wanted), results)
    assert list(dict.fromkeys(frame["method"])) == ["gt_gda", "gt_gda cta", "dec_fedtrack"]
    last = frame.groupby("method").last()
    per_round = last["exchanges"] / last["round"]
    assert per_round.to_dict() == {"gt_gda": 2, "gt_gda cta": 1, "dec_fedtrack": 1}
    assert (
        frame.loc[(frame["method"] == "dec_fedtrack") & (frame["round"] == 0), "bytes_per_edge"].item() > 0
    )  # its mean
    written = files.write_all(figures.render(wanted, suite.listed(wanted), results, tmp_path / "four"))
    assert (tmp_path / "four-1.png") in written


def test_tuning_can_have_a_seed_that_is_not_reported() -> None:
    assert FULL.tune is not None
    apart = FULL.model_copy(update={"tune": FULL.tune.model_copy(update={"seed": 9})})
    assert {trial.run.seed for trial in tune._trials(apart)} == {9}
    assert {trial.run.seed for trial in tune._trials(FULL)} == {FULL.seeds[0]}


def test_the_text_about_the_grids_upper_end_is_read_from_its_file(tracked: Path) -> None:
    frame = pd.read_csv(tracked / "tables" / "figures-tune.csv")
    size = frame["eta_x"].fillna(frame["eta_c"]) if "eta_c" in frame else frame["eta_x"]
    best = frame.assign(size=size).loc[frame.groupby(["dataset", "method"])["phi"].idxmin()]
    largest = (best["size"] == size.max()).sum()
    said = " ".join((ROOT / "docs" / "reproduction.md").read_text().split())
    assert f"the largest eta_x that was tried is the best in {largest} of {len(best)} places" in said


def test_windows_are_means_over_the_last_tenth_and_ahead_means_disjoint_ranges() -> None:
    lines = []
    for method, heights in {"low": (1.0, 1.2), "middle": (1.1, 1.3), "high": (2.0, 2.1)}.items():
        for seed, height in enumerate(heights):
            for sfo in range(0, 101, 10):
                wobble = 0.1 if sfo == 90 else -0.1 if sfo == 100 else 5.0
                lines.append({"dataset": "a", "method": method, "seed": seed, "sfo": sfo, "phi": height + wobble})
    table = figures.windows(pd.DataFrame(lines), {"sfo": 100, "exchanges": None}).set_index("method")
    assert table.loc["low", "mean"] == pytest.approx(1.1) and table.loc["low", "max"] == pytest.approx(1.2)
    assert table["ahead_of"].to_dict() == {"low": "high", "middle": "high", "high": ""}


@pytest.mark.parametrize("name", ["figures-judged", "figures-split"])
def test_the_rule_gives_every_entry_the_same_trials_on_a_seed_that_is_not_reported(name: str) -> None:
    wanted = spec.read(ROOT / "tables" / f"{name}.toml")
    assert wanted.tune is not None and wanted.tune.seed not in wanted.seeds and len(wanted.seeds) >= 5
    assert wanted.axes == ["sfo", "exchanges", "bytes_per_edge", "round"]
    for block in wanted.blocks:
        grids = wanted.tune.grids[block.title]
        assert list(grids) == list(block.trainers)
        for entry, grid in grids.items():
            K = block.trainers[entry].get("K", 1)
            x, y = ([float(number(value)) * K for value in values] for values in grid.values())
            assert x == pytest.approx([16, 8, 4, 2, 1, 0.5, 0.25])
            assert y == pytest.approx([value * y[0] for value in (1, 1e-1, 1e-2, 1e-3, 1e-4)])
    if name == "figures-judged":
        assert [block.title for block in wanted.blocks] == ["a9a", "w8a", "ijcnn1", "phishing"]
        twice = {"dm_hsgd", "gt_da", "gt_gda", "gt_srvr"}
        assert {entry.partition(" ")[0] for entry in wanted.blocks[0].trainers if entry.endswith(" cta")} == twice
        assert "dgda_vr" in wanted.blocks[0].trainers
    else:
        assert {block.problem["split"] for block in wanted.blocks} == {"label", "dirichlet(0.1)"}
        steps = [s["K"] for entry, s in wanted.blocks[0].trainers.items() if entry.startswith("dec_fedtrack")]
        assert steps == [1, 5, 20]


def test_step_sizes_are_taken_from_the_grids_file_and_edges_are_told(tmp_path: Path) -> None:
    block = FULL.blocks[0].model_copy(update={"trainers": {"gt_gda": {}, "gt_gda cta": {"order": "cta"}}})
    grid: dict[str, list[Any]] = {"eta_x": [4, 2, 1], "eta_y": ["1/9", "1e-1/9", "1e-2/9"]}
    short = spec.TuneSpec(seed=9, sfo=10, grids={block.title: {"gt_gda": grid, "gt_gda cta": grid}})
    wanted = FULL.model_copy(update={"blocks": [block], "tune": short})
    rows = [trial.names | trial.point for trial in tune._trials(wanted)]
    assert len(rows) == 18 and {row["method"] for row in rows} == {"gt_gda", "gt_gda cta"}
    wish = {"gt_gda": (2, "1e-1/9"), "gt_gda cta": (4, "1e-1/9")}
    for row in rows:
        row |= {"diverged": False, "phi": 0.1 if (row["eta_x"], row["eta_y"]) == wish[row["method"]] else 0.5}
    rows[0] |= {"diverged": True, "phi": 0.0}
    pd.DataFrame(rows).to_csv(tmp_path / "tuned.csv", index=False)
    done, edges = tune.taken(wanted, tmp_path / "tuned.csv")
    assert done.blocks[0].trainers["gt_gda"] == {"eta_x": 2, "eta_y": "1e-1/9"}
    assert done.blocks[0].trainers["gt_gda cta"] == {"order": "cta", "eta_x": 4, "eta_y": "1e-1/9"}
    assert edges == ["a9a, gt_gda cta: the best eta_x, 4, is at the edge of the box"]
    with pytest.raises(BadInput, match=r"no step sizes in .*`robustbench-dec tune` tries the grids"):
        tune.taken(wanted, tmp_path / "nowhere.csv")

"""Figures 1 and 2: every method over the same budgets, from files that anyone can make again."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from robustbench_dec import data, files
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import figures, report, style
from robustbench_dec.running import steps, suite, tune
from robustbench_dec.specs import table as spec
from robustbench_dec.store.results import Results
from tests.support import ROOT, by_path
from tests.support.by_path import QUIET

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


@pytest.mark.slow
def test_the_specification_is_the_papers_experiment() -> None:
    assert [block.title for block in FULL.blocks] == ["a9a", "w8a", "ijcnn1", "phishing"]
    assert len({(block.sfo, block.exchanges) for block in FULL.blocks}) == 1
    assert (FULL.network.graph, FULL.network.nodes, FULL.network.weights) == ("ring", 10, "lazy")
    tuned, _ = steps.taken(FULL, ROOT / "tables" / "figures")
    for _, run in tuned.runs():
        problem, trainer = run.settings.problem, run.settings.trainer
        assert (problem["theta"], problem["nu"], problem["scaling"], problem["nodes"]) == (1e-5, 10, "C", 10)
        assert trainer.get("batch") in (64, None)  # None: full gradients
        assert trainer["name"] != "dec_fedtrack" or trainer["K"] == 1
    assert all({entry.partition(" ")[0] for entry in block.trainers} == {*SIX, "dgda_vr"} for block in FULL.blocks)


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
    assert panel.get_title(loc="left") == "breast_cancer" and panel.get_xlabel() == "Oracle calls per node"
    assert len(panel.lines) == len(panel.collections) == len(SIX)
    for method, line in zip(SIX, panel.lines, strict=True):
        costs, values = line.get_data()
        assert max(costs) == 600
        seeds = [curve for _, curve in frame[frame["method"] == method].groupby("seed")]
        ends = [curve.loc[curve["sfo"] <= 600, "phi"].iloc[-1] for curve in seeds]
        assert np.isclose(values[-1], np.mean(ends)) or max(curve["sfo"].max() for curve in seeds) > 600
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


def test_tuning_judges_by_phi_and_marks_what_diverged(small: spec.Spec, tmp_path: Path) -> None:
    grids: dict[str, dict[str, dict[str, list[Any]]]] = {
        "breast_cancer": {"gt_gda": {"eta_x": [0.1, 1e6], "eta_y": ["1e-2/450"]}}
    }
    tuned = small.model_copy(update={"tune": spec.TuneSpec(rounds=3, grids=grids)})
    path = tune.tune(tuned, "small", Results(tmp_path), tmp_path, QUIET)
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
    last["exchanges"] -= last["all_reduces"]  # an exact mean counts as an exchange
    per_round = last["exchanges"] / last["round"]
    assert per_round.to_dict() == {"gt_gda": 2, "gt_gda cta": 1, "dec_fedtrack": 1}
    assert (
        frame.loc[(frame["method"] == "dec_fedtrack") & (frame["round"] == 0), "bytes_per_edge"].item() > 0
    )  # its mean
    written = files.write_all(figures.render(wanted, suite.listed(wanted), results, tmp_path / "four"))
    assert (tmp_path / "four-1.png") in written


def rows(heights: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    """Curves that stand at their heights, but for a wobble in the last tenth."""
    lines = []
    for method, of_seeds in heights.items():
        for seed, height in enumerate(of_seeds):
            for sfo in range(0, 111, 10):
                phi = height + (0.6 if sfo == 90 else -0.1 if sfo == 100 else 5.0)
                lines.append({"dataset": "a", "method": method, "seed": seed, "horizon": "sfo", "sfo": sfo, "phi": phi})
    return pd.DataFrame(lines)


def test_windows_are_means_over_the_last_tenth_and_ahead_means_disjoint_ranges() -> None:
    """5 of 6 costs from 90 to 100 pay for the iterate at 90 alone, the last one for that at 100; none for 110."""
    frame = rows({"low": (1.0, 1.2), "middle": (1.1, 1.3), "high": (2.0, 2.1)})
    table = figures.windows(frame, {"a": {"sfo": 100}}).set_index("method")
    wobble = (5 * 0.6 - 0.1) / 6
    assert table.loc["low", "mean"] == pytest.approx(1.1 + wobble)
    assert table.loc["low", "max"] == pytest.approx(1.2 + wobble)
    assert table["ahead_of"].to_dict() == {"low": "high", "middle": "high", "high": ""}


def test_a_run_that_diverged_has_an_infinite_phi_and_is_counted() -> None:
    frame = rows({"low": (1.0, 1.2), "high": (2.0, 2.1)})
    lost = [("a", "sfo", "low"), ("a", "sfo", "gone"), ("a", "exchanges", "high"), ("b", "sfo", "high")]
    table = figures.windows(frame, {"a": {"sfo": 100}}, lost).set_index("method")
    assert table["seeds"].to_dict() == {"low": 3, "high": 2, "gone": 1}
    assert table.loc["low", "max"] == table.loc["low", "mean"] == table.loc["gone", "min"] == np.inf
    assert table["ahead_of"].to_dict() == {"low": "", "high": "gone", "gone": ""}


def test_an_iterate_that_is_not_paid_for_does_not_count() -> None:
    """Full gradients jump over the window: the iterate before it is judged; a run that has not come so far is not."""
    assert steps.judged([0, 70, 140], 100, [3.0, 2.0, 1.0].__getitem__) == 2.0
    assert steps.judged([0, 100], 100, [3.0, 2.0].__getitem__) == pytest.approx((5 * 3 + 2) / 6)
    assert steps.judged([0, 70], 100, [3.0, 2.0].__getitem__) == np.inf


def test_single_iterates_are_drawn_as_steps_and_sparse_points_as_lines() -> None:
    curve = pd.DataFrame({"round": [0, 1, 2, 12], "sfo": [0, 10, 20, 120], "shown": [4.0, 3.0, 2.0, 1.0]})
    drawn = figures.between(curve, "sfo", np.array([0, 5, 10, 19, 70, 120, 130]))
    assert drawn.tolist() == [4, 4, 3, 3, 1.5, 1, 1]


def test_the_box_grows_for_all_entries_until_the_best_points_lie_inside() -> None:
    block = FULL.blocks[0].model_copy(update={"trainers": {"gt_gda": {}, "dream": {}}})
    rule = spec.StepsSpec(seed=9, eta_x=[9, 3, 1], eta_y=[1, 0.1, 0.01], extensions=(2, 1))
    asked = []

    def trial(entry: str, point: steps.Point) -> steps.Found:
        asked.append((entry, point))
        x, y = np.log10(point)
        best = (np.log10(27), -1) if entry == "gt_gda" else (0.5, -9)  # one more value in x; never inside in y
        return steps.Found(point, {"sfo": abs(x - best[0]) + abs(y - best[1]), "exchanges": (x - 0.4) ** 2})

    found, values = steps._search(block, rule, trial, progress=False)  # type: ignore[arg-type]
    assert values == ([1, 3, 9, 27, 81], [0.001, 0.01, 0.1, 1])
    assert len(asked) == len({*asked}) == 2 * 5 * 4
    assert all(len(trials) == 20 for trials in found.values())
    best = {entry: dict(steps._best(trials, values)) for entry, trials in found.items()}
    assert best["gt_gda"]["sfo"].point == (27, 0.1) and best["dream"]["sfo"].point == (3, 0.001)
    assert best["dream"]["exchanges"].point[1] in (0.01, 0.1)  # all of eta_y are equal there: one inside is taken
    lines = pd.DataFrame(steps._lines(block, found, values, 100))
    assert (lines.groupby("method")["taken_sfo"].apply(lambda marks: [*filter(None, marks)])).to_dict() == {
        "gt_gda": ["inside"], "dream": ["edge"],
    }  # fmt: skip


def test_local_steps_share_a_rounds_step_size() -> None:
    settings = steps.settled({"K": 5, "batch": 64}, steps.trainer_class("dec_fedtrack K=5"), (3.0, 0.3), 1000)
    assert settings == {"K": 5, "batch": 64, "eta_c": 3 / 5, "eta_d": 0.3 / 5000}
    settings = steps.settled({"K": 5}, steps.trainer_class("local_sgda"), (3.0, 0.3), 1000)
    assert settings == {"K": 5, "eta_x": 3 / 5, "eta_y": 0.3 / 5000}
    assert steps.settled({"K": 2}, steps.trainer_class("dream"), (3.0, 0.3), 1000)["eta_x"] == 3  # K gossips


@pytest.mark.slow
def test_tuning_by_a_rule_writes_trials_and_sets_and_the_runs_are_those_of_each_horizon(tmp_path: Path) -> None:
    problem = {"name": "robust_logistic", "dataset": "breast_cancer"}
    trainers: dict[str, dict[str, Any]] = {"dec_fedtrack": {"K": 1, "batch": 16}, "gt_gda cta": {"order": "cta"}}
    block = spec.BlockSpec(title="cancer", problem=problem, sfo=300, exchanges=8, trainers=trainers)
    rule = spec.StepsSpec(seed=9, eta_x=[3, 1, 1e6], eta_y=[0.1, 0.01])
    wanted = FULL.model_copy(update={"blocks": [block], "steps": rule, "seeds": [0, 1], "curve_points": 5})
    with pytest.raises(BadInput, match=r"no step sizes in .*`robustbench-dec tune` tries the box"):
        steps.taken(wanted, tmp_path / "small")
    written = steps.tune(wanted, "small", tmp_path, progress=False)
    assert [path.name for path in written] == ["small-tune.csv", "small-sets.csv"]
    trials = pd.read_csv(written[0], keep_default_na=False)
    assert len(trials) == 2 * 6 and (trials["taken_sfo"] != "").sum() == 2
    known = pd.read_csv(written[1]).iloc[0]
    assert known["majority"] == pytest.approx(0.63, abs=0.03) and known["part"] == "test"
    tuned, edges = steps.taken(wanted, tmp_path / "small")
    assert [(block.sfo, block.exchanges) for block in tuned.blocks] == [(300, None), (None, 8)]
    assert len(edges) == 4  # two values of eta_y are both at an edge
    results = Results(tmp_path / "results")
    suite.make(suite.listed(tuned), results, QUIET)
    drawn = figures.render(tuned, suite.listed(tuned), results, tmp_path / "small")
    frame = figures.gather(suite.listed(tuned), results)
    assert (frame["phi"] > known["phi_best"]).all()
    assert set(frame["horizon"]) == {"sfo", "exchanges"}
    table = pd.read_csv(io.BytesIO(drawn[tmp_path / "small-windows.csv"]))
    assert len(table) == 4 and (table["seeds"] == 2).all()


# --- the committed figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["figures", "figures-split"])
def test_every_entry_has_the_same_trials_on_a_seed_that_is_not_reported(name: str, tracked: Path) -> None:
    wanted = spec.read(tracked / "tables" / f"{name}.toml")
    rule = wanted.steps
    assert rule is not None and rule.seed not in wanted.seeds and len(wanted.seeds) >= 5
    assert wanted.axes == ["sfo", "exchanges", "bytes_per_edge", "round"]
    trials = pd.read_csv(tracked / "tables" / f"{name}-tune.csv", keep_default_na=False)
    for block in wanted.blocks:
        here = trials[trials["block"] == block.title]
        boxes = {entry: {*zip(rows["eta_x"], rows["eta_y_N"], strict=True)} for entry, rows in here.groupby("method")}
        assert list(dict.fromkeys(here["method"])) == list(block.trainers)
        assert len({frozenset(box) for box in boxes.values()}) == 1
        assert {*itertools.product(rule.eta_x, rule.eta_y)} <= next(iter(boxes.values()))
        for entry, rows in here.groupby("method"):
            for horizon in ("sfo", "exchanges"):
                phi = pd.to_numeric(rows[f"phi_{horizon}"])
                best = rows[rows[f"taken_{horizon}"] != ""]
                assert len(best) == 1 and float(best[f"phi_{horizon}"].item()) == phi.min(), (entry, horizon)
                inside = all(rows[name].min() < best[name].item() < rows[name].max() for name in ("eta_x", "eta_y_N"))
                assert best[f"taken_{horizon}"].item() == ("inside" if inside else "edge")
    twice = {"dm_hsgd", "gt_da", "gt_gda", "gt_srvr"} if name == "figures" else {"gt_gda"}
    assert {entry.partition(" ")[0] for entry in wanted.blocks[0].trainers if entry.endswith(" cta")} == twice


@pytest.mark.parametrize("name", ["figures", "figures-split"])
def test_the_trials_file_is_what_the_command_writes_if_trials_give_these_values(name: str, tracked: Path) -> None:
    """The search is gone through again with the file's values in place of runs: no trial too few, none too many."""
    wanted = spec.read(tracked / "tables" / f"{name}.toml")
    trials = pd.read_csv(tracked / "tables" / f"{name}-tune.csv").fillna({"taken_sfo": "", "taken_exchanges": ""})
    lines = []
    for block in wanted.blocks:
        here = trials[trials["block"] == block.title].set_index(["method", "eta_x", "eta_y_N"]).fillna(np.inf)

        def trial(entry: str, point: steps.Point, here: pd.DataFrame = here) -> steps.Found:
            row = here.loc[(entry, *point)]
            return steps.Found(point, {axis: row[f"phi_{axis}"] for axis in steps.HORIZONS})

        assert wanted.steps is not None
        found, values = steps._search(block, wanted.steps, trial, progress=False)  # type: ignore[arg-type]
        lines += list(steps._lines(block, found, values, int(here["N"].iloc[0])))
    again = pd.DataFrame(lines)[trials.columns].astype(trials.dtypes)
    order = ["block", "method", "eta_x", "eta_y_N"]
    pd.testing.assert_frame_equal(
        again.sort_values(order, ignore_index=True), trials.sort_values(order, ignore_index=True)
    )


@pytest.mark.slow
def test_the_second_pages_points_are_those_of_its_committed_runs(
    tracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "drawn", lambda figure, kind: b"")  # other tests draw
    path = tracked / "tables" / "figures-split.toml"
    wanted, _ = steps.taken(spec.read(path), path.with_suffix(""))
    work, results = suite.listed(wanted), Results(tracked / "results")
    files.write_all(figures.render(wanted, work, results, tmp_path / path.stem))
    for name in (f"{path.stem}.csv", f"{path.stem}-windows.csv"):
        assert (tmp_path / name).read_bytes() == (tracked / "tables" / name).read_bytes()
    drawn = set(pd.read_csv(tmp_path / f"{path.stem}.csv")["run_id"])
    diverged = {item.run.id for item in work if results.run(item.run.id).divergence is not None}
    assert drawn | diverged == {item.run.id for item in work} and not drawn & diverged


def test_the_second_page_has_the_first_ones_rule_for_three_splits_and_three_numbers_of_local_steps() -> None:
    first, second = (spec.read(ROOT / "tables" / f"{name}.toml") for name in ("figures", "figures-split"))
    assert second.steps == first.steps and second.network == first.network and second.seeds == first.seeds
    assert [block.problem["split"] for block in second.blocks] == ["iid", "label", "dirichlet(0.1)"]
    for block in second.blocks:
        assert block.sfo == first.blocks[0].sfo and block.exchanges == 25
        counts = {entry: settings.get("K", 1) for entry, settings in block.trainers.items()}
        assert [*counts.values()] == [1, 5, 20, 5, 1] and [*counts][3:] == ["local_sgda K=5", "gt_gda cta"]


def test_a_layout_that_does_not_fit_the_problem_is_refused(small: spec.Spec) -> None:
    with pytest.raises(BadInput, match="block 'breast_cancer' has no images to attack; layout 'figures' would do"):
        report.check(small.model_copy(update={"layout": "attacks"}))

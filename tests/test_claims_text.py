"""What docs/reproduction.md says of Figures 1 and 2 and of Table 1 is read from their files."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from robustbench_dec import shelf, titles
from robustbench_dec.running import steps
from robustbench_dec.specs import claims as claim_specs
from robustbench_dec.specs import table as specs
from robustbench_dec.theory import claims_report
from robustbench_dec.trainer import Trainer
from tests.support import ROOT

TEXT = ROOT / "docs" / "reproduction.md"
HORIZONS = {"sfo": "calls", "exchanges": "exchanges"}


def said() -> str:
    return " ".join(TEXT.read_text().split())


def rows(*heads: str) -> list[list[str]]:
    """The rows of the text's tables whose first cell begins with one of these words."""
    lines = [line.strip(" |").split(" | ") for line in TEXT.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if line[0].startswith(heads)]


def name(entry: str) -> str:
    trainer, _, variant = entry.partition(" ")
    return f"{titles.method(trainer)} {variant}".rstrip()


def windows(stem: str, tables: Path = ROOT / "tables") -> pd.DataFrame:
    return pd.read_csv(tables / f"{stem}-windows.csv", keep_default_na=False)


def names_in(entries: str) -> list[str]:
    return [name(entry.replace("_cta", " cta").replace("_K=", " K=")) for entry in entries.split()]


def verdicts(stem: str, entry: str = "dec_fedtrack") -> list[list[str]]:
    """A line for each data set and horizon: Phi of one entry, whom it is ahead of, who is ahead of it, the lowest."""
    lines = []
    for (dataset, axis, horizon), block in windows(stem).groupby(["dataset", "axis", "horizon"], sort=False):
        here = block.set_index("method")
        mine, lowest = here.loc[entry], here["mean"].idxmin()
        ahead = [name(str(other)) for other in here.index if name(entry) in names_in(str(here.loc[other, "ahead_of"]))]
        lines.append(
            [
                f"{dataset}, {horizon:,} {HORIZONS[str(axis)]}",
                f"{mine['mean']:.4f} ({mine['min']:.4f} to {mine['max']:.4f})",
                ", ".join(names_in(mine["ahead_of"])) or "nobody",
                ", ".join(ahead) or "nobody",
                f"{name(str(lowest))}, {here['mean'].min():.4f}",
            ]
        )
    return lines


class Edge(NamedTuple):
    """A best point at the edge of its box, and how much the last tenfold decrease of eta_y lowered Phi there."""

    dataset: str
    axis: str
    entry: str
    only_small_y: bool
    gain: float


def best_points(stem: str) -> tuple[int, list[Edge]]:
    """How many best points there are, and those at an edge."""
    trials = pd.read_csv(ROOT / "tables" / f"{stem}-tune.csv").fillna({"taken_sfo": "", "taken_exchanges": ""})
    points, found = 0, []
    boxes = [(str(dataset), axis, box) for axis in HORIZONS for dataset, box in trials.groupby("block", sort=False)]
    for dataset, axis, box in boxes:
        best = box[box[f"taken_{axis}"] != ""]
        points += len(best)
        low, next_low = sorted(box["eta_y_N"].unique())[:2]
        for row in best.itertuples():
            inside_x = box["eta_x"].min() < row.eta_x < box["eta_x"].max()
            inside_y = low < row.eta_y_N < box["eta_y_N"].max()
            assert (inside_x and inside_y) == (getattr(row, f"taken_{axis}") == "inside")
            if inside_x and inside_y:
                continue
            above = box[(box["method"] == row.method) & (box["eta_x"] == row.eta_x) & (box["eta_y_N"] == next_low)]
            here = getattr(row, f"phi_{axis}")
            gain = (above[f"phi_{axis}"].item() - here) / here
            found.append(Edge(dataset, axis, str(row.method), bool(inside_x and row.eta_y_N == low), gain))
    return points, found


def test_the_text_states_the_rule_that_the_figures_were_made_under() -> None:
    first, second = (specs.read(ROOT / "tables" / f"{stem}.toml") for stem in ("figures", "figures-split"))
    for page in (first, second):
        assert page.axes == ["sfo", "exchanges", "bytes_per_edge", "round"]
        assert page.steps is not None and page.steps.seed not in page.seeds
    assert (first.network.graph, first.network.nodes) == ("ring", 10) and "on a ring of 10 nodes" in said()
    ends = {(block.sfo, block.exchanges) for block in first.blocks}
    assert ends == {(10_000, 100)} and "10,000 oracle calls per node and 100 exchanges" in said()
    ends = {(block.sfo, block.exchanges) for block in second.blocks}
    assert ends == {(10_000, 25)} and "The horizons are 10,000 calls and 25 exchanges" in said()
    entries = {len(block.trainers) for block in second.blocks}
    assert entries == {5} and "one data set, five entries, 25 exchanges instead of 100" in said()
    assert all(block.trainers["dec_fedtrack"]["K"] == 1 for block in first.blocks)
    family = {"dm_hsgd", "gt_da", "gt_gda", "gt_srvr"}
    alone = {"dec_fedtrack", "dream", "dgda_vr"}
    for block in first.blocks:
        assert {*block.trainers} == alone | family | {f"{entry} cta" for entry in family}
    assert (steps.POINTS, steps.WINDOW) == (6, 0.1) and "at six costs in the last tenth of a horizon" in said()
    for stem in ("figures", "figures-split"):
        assert (windows(stem)["seeds"] == len(first.seeds)).all()
    assert f"the mean over {len(first.seeds)} seeds" in said()


@pytest.mark.parametrize("stem", ["figures", "figures-split"])
def test_every_entry_of_a_data_set_had_the_same_trials(stem: str) -> None:
    trials = pd.read_csv(ROOT / "tables" / f"{stem}-tune.csv")
    for _, box in trials.groupby("block"):
        points = box.groupby("method").apply(lambda rows: frozenset(zip(rows["eta_x"], rows["eta_y_N"], strict=True)))
        assert points.nunique() == 1 and len(points.iloc[0]) >= 16


def test_the_text_says_how_many_exchanges_a_step_costs() -> None:
    points = pd.read_csv(ROOT / "tables" / "figures.csv").query("horizon == 'exchanges' and round > 0")
    moved = points.groupby("run_id")[["exchanges", "round"]].diff().assign(method=points["method"]).dropna()
    prices = (moved["exchanges"] / moved["round"]).groupby(moved["method"]).unique().map(list).to_dict()
    assert (prices.pop("dream"), prices.pop("dgda_vr"), prices.pop("dec_fedtrack")) == ([4], [1], [1])
    assert prices == {entry: [1] if entry.endswith(" cta") else [2] for entry in prices}
    sentence = '"cta" costs one exchange a step, otherwise it is two. DGDA-VR has one, DREAM 2K = 4.'
    assert sentence in said()


def test_the_texts_verdicts_are_those_of_the_windows() -> None:
    expected = verdicts("figures")
    heads = tuple(line[0] for line in expected)
    assert rows(*heads) == expected


def test_the_text_names_every_best_point_at_an_edge_and_why() -> None:
    points, found = best_points("figures")
    assert f"{len(found)} of {points} best points lie at an edge of the box" in said()
    assert all(edge.only_small_y for edge in found) and "all at the lower end of eta_y" in said()
    flat = [edge for edge in found if edge.gain < 1e-4]
    names = listed([f"{name(edge.entry)} on {edge.dataset}" for edge in flat])
    assert {edge.axis for edge in flat} == {"sfo"}
    assert f"{names} by calls, where the last tenfold decrease changed Phi by less than 0.01 %" in said()
    falling = [edge for edge in found if edge not in flat]
    steepest = f"{100 * min(edge.gain for edge in falling):.0f} to {100 * max(edge.gain for edge in falling):.0f} %"
    names = listed([f"{name(edge.entry)} ({HORIZONS[edge.axis]})" for edge in falling])
    assert {edge.dataset for edge in falling} == {"phishing"}
    assert f"{names} on phishing, where it still lowered Phi by {steepest}" in said()


def test_what_lies_beyond_those_edges_is_said_and_changes_no_verdict() -> None:
    """More trials for three rivals than for the others: whoever was ahead of them stays ahead."""
    beyond = pd.read_csv(ROOT / "benchmarks" / "figures_edges.csv")
    reported = beyond[beyond["seed"] != 9]
    sentences = []
    for (dataset, axis, entry), runs in reported.groupby(["dataset", "axis", "method"], sort=False):
        assert sorted(runs["seed"]) == [0, 1, 2, 3, 4]
        here = windows("figures").query("dataset == @dataset and axis == @axis").set_index("method")
        ours = here.loc["dec_fedtrack"]
        assert ours["max"] < runs["phi"].min(), (dataset, axis, entry)
        trials = beyond[(beyond["seed"] == 9) & (beyond["axis"] == axis) & (beyond["method"] == entry)]
        box = pd.read_csv(ROOT / "tables" / "figures-tune.csv").query("block == @dataset")["eta_y_N"]
        decades = [float(f"{box.min() / 10**k:.6g}") for k in (3, 2, 1)]
        assert sorted(trials["eta_y_N"].unique()) == decades and "[Three more decades]" in said()
        same_x = trials[trials["eta_x"] == runs["eta_x"].iloc[0]].sort_values("eta_y_N")["phi"].to_numpy()
        assert abs(same_x[1] / same_x[0] - 1) < 2e-3, (dataset, axis, entry)  # nothing changes any more
        span = f"{runs['phi'].min():.4f} to {runs['phi'].max():.4f}"
        sentences.append(f"{name(str(entry))} {span}")
    assert len(sentences) == len([edge for edge in best_points("figures")[1] if edge.gain >= 1e-3])
    assert f"({', '.join(sentences)})" in said()


def test_the_text_says_how_many_iterates_a_window_has() -> None:
    points = pd.read_csv(ROOT / "tables" / "figures.csv", keep_default_na=False)
    counts = set()
    for axis, horizon in (("sfo", 10_000), ("exchanges", 100)):
        for _, curve in points[points["horizon"] == axis].groupby(["dataset", "method", "seed"]):
            asked: dict[int, float] = defaultdict(float)
            steps.judged(curve[axis].tolist(), horizon, asked.__getitem__)
            counts.add(len(asked))
    measured = points.groupby("run_id").size()
    times = f"Phi is measured {measured.min()} to {measured.max()} times in a run"
    assert f"{times}, so that these are {min(counts)} to {max(counts)} iterates" in said()


def steps_paid(entry: str) -> tuple[int, int]:
    """The fewest and the most steps of one entry within the horizon of calls, over data sets and seeds."""
    points = pd.read_csv(ROOT / "tables" / "figures.csv", keep_default_na=False)
    here = points[(points["horizon"] == "sfo") & (points["method"] == entry) & (points["sfo"] <= 10_000)]
    most = here.groupby(["dataset", "seed"])["round"].max()
    return int(most.min()), int(most.max())


def test_the_text_says_how_many_steps_full_gradients_can_pay_for() -> None:
    for entry, words in {"gt_gda": "GT-GDA", "gt_da": "GT-DA"}.items():
        fewest, most = steps_paid(entry)
        span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        assert f"{words} {span}" in said(), entry


def test_the_text_says_what_the_larger_class_alone_would_give() -> None:
    sets = pd.read_csv(ROOT / "tables" / "figures-sets.csv").set_index("dataset")
    listed = ", ".join(f"{100 * sets.loc[name, 'majority']:.1f} on {name}" for name in sets.index)
    assert f"The larger class alone gives {listed}" in said()


def sets_where(stem: str, axis: str, who: str, whom: str | None) -> list[str]:
    """The data sets on which one entry is ahead of another, or, without a name, of all others."""
    found = []
    for dataset, block in windows(stem).query("axis == @axis").groupby("dataset", sort=False):
        behind = names_in(str(block.set_index("method").loc[who, "ahead_of"]))
        if (len(behind) == len(block) - 1) if whom is None else (name(whom) in behind):
            found.append(str(dataset))
    return found


def listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names or ["no set"])


def claims_of_figures() -> list[str]:
    calls = sets_where("figures", "sfo", "dec_fedtrack", None)
    paid = sets_where("figures", "exchanges", "gt_gda cta", "dec_fedtrack")
    first = sets_where("figures", "exchanges", "gt_gda cta", None)
    mine = sets_where("figures", "exchanges", "dec_fedtrack", None)
    return [
        f"Dec-FedTrack is ahead of all ten others on {listed(calls)}",
        f"GT-GDA cta is ahead of Dec-FedTrack on {listed(paid)}, and of all others on {listed(first)}",
        f"Dec-FedTrack is ahead of all others on {listed(mine)}",
    ]


def test_who_is_ahead_is_said_as_the_windows_have_it() -> None:
    here = windows("figures").query("dataset == 'ijcnn1' and axis == 'sfo'").set_index("method")
    assert here.loc["dream", "min"] < here.loc["dec_fedtrack", "max"]
    assert "On ijcnn1 its range meets DREAM's" in said()
    for sentence in claims_of_figures():
        assert sentence in said(), sentence


# --- the second page --------------------------------------------------------------------------------------------------


def test_the_second_pages_table_is_that_of_its_windows() -> None:
    expected = []
    for (dataset, axis, horizon), block in windows("figures-split").groupby(["dataset", "axis", "horizon"], sort=False):
        assert (block["seeds"] == 5).all()
        cells = [f"{row.mean:.4f} ({row.min:.4f} to {row.max:.4f})" for row in block.itertuples(index=False)]
        expected.append([f"{dataset}, {horizon} {HORIZONS[str(axis)]}".replace("10000", "10,000"), *cells])
    assert rows("phishing, at random", "phishing, by label", "phishing, Dirichlet(0.1)") == expected
    heads = [name(str(entry)) for entry in windows("figures-split")["method"].unique()]
    assert rows("data, horizon") == [["data, horizon", *heads]]


def test_rows_of_the_second_pages_control_repeat_the_first_pages() -> None:
    """The same trials, made anew by the command: what does not run away has the same seven digits."""
    first, second = (pd.read_csv(ROOT / "tables" / f"{stem}-tune.csv") for stem in ("figures", "figures-split"))
    keys = ["method", "eta_x", "eta_y_N"]
    both = first[first["block"] == "phishing"].merge(second[second["block"] == "phishing, at random"], on=keys)
    finite = both.dropna(subset=["phi_sfo_x", "phi_sfo_y"])
    same = finite["phi_sfo_x"] == finite["phi_sfo_y"]
    assert f"{same.sum()} of {len(finite)} trials by calls have the same seven digits" in said()
    near = finite[~same & ((finite["phi_sfo_x"] / finite["phi_sfo_y"] - 1).abs() < 2e-5)]
    wild = finite[~same].drop(near.index)
    assert (wild["eta_y_N"] == 3).all()
    assert f"{len(near)} differ by at most 2e-5, and {len(wild)}, with the largest eta_y, run away on both" in said()
    ours = both[both["method"] == "dec_fedtrack"].set_index(keys)
    assert ours["phi_sfo_x"].idxmin() == ours["phi_sfo_y"].idxmin()


def is_ahead(dataset: str, axis: str, who: str, whom: str) -> bool:
    here = windows("figures-split").query("dataset == @dataset and axis == @axis").set_index("method")
    return bool(here.loc[who, "max"] < here.loc[whom, "min"])


def test_what_is_said_of_local_steps_and_of_the_correction_is_in_the_windows() -> None:
    deals = ["phishing, at random", "phishing, by label", "phishing, Dirichlet(0.1)"]
    single, five, twenty, local = "dec_fedtrack", "dec_fedtrack K=5", "dec_fedtrack K=20", "local_sgda K=5"
    assert sets_where("figures-split", "exchanges", twenty, None) == deals
    assert all(is_ahead(deal, "exchanges", five, single) for deal in deals)
    assert "at 25 exchanges K = 20 is ahead of all others and K = 5 ahead of K = 1 in all three deals" in said()
    points = pd.read_csv(ROOT / "tables" / "figures-split.csv").query("horizon == 'exchanges' and exchanges <= 25")
    calls = points.groupby("method")["sfo"].max()
    assert f"{calls[twenty]:,} per node for K = 20 and {calls[five]:,} for K = 5 against {calls[single]:,}" in said()
    for axis in HORIZONS:
        assert [is_ahead(deal, axis, five, local) for deal in deals] == [False, True, True]
    behind = (
        "Dec-FedTrack is ahead of Local SGDA by label and by Dirichlet(0.1), at both horizons, and at random at neither"
    )
    assert behind in said()
    random, label, dirichlet = deals
    assert is_ahead(random, "sfo", single, five) and is_ahead(random, "sfo", single, twenty)
    assert is_ahead(label, "sfo", twenty, single) and is_ahead(label, "sfo", twenty, five)
    assert is_ahead(dirichlet, "sfo", single, five)
    meets = [(single, twenty), (twenty, single), (five, twenty), (twenty, five)]
    assert not any(is_ahead(dirichlet, "sfo", *pair) for pair in meets)
    by_deal = "at random K = 1 is ahead of K = 5 and K = 20; by label K = 20 is ahead of K = 1 and K = 5; "
    by_deal += "by Dirichlet(0.1) K = 1 is ahead of K = 5, and the range of K = 20 meets both"
    assert by_deal in said()
    by_calls = windows("figures-split").query("axis == 'sfo' and method == @single").set_index("dataset")
    assert by_calls.loc[random, "max"] < by_calls.loc[label, "min"]
    assert by_calls.loc[dirichlet, "min"] < by_calls.loc[random, "max"]
    assert by_calls.loc[random, "min"] < by_calls.loc[dirichlet, "max"]
    price = "Data by label instead of at random cost K = 1 something by calls (disjoint ranges), "
    assert f"{price}data by Dirichlet(0.1) nothing that these seeds show" in said()


def test_the_second_pages_edges_and_lost_runs_are_named() -> None:
    points, found = best_points("figures-split")
    assert f"{len(found)} of {points} best points lie at an edge of the box" in said()
    small = [f'{name(e.entry)} on "{e.dataset}" ({HORIZONS[e.axis]})' for e in found if e.only_small_y]
    assert f"{listed(small)} at the lower end of eta_y" in said()
    (large,) = (edge for edge in found if not edge.only_small_y)
    assert f'{name(large.entry)} on "{large.dataset}" ({HORIZONS[large.axis]}) at the largest eta_x' in said()
    lost = windows("figures-split").query("max == inf")
    assert [(row.dataset, row.axis, row.method) for row in lost.itertuples()] == [
        ("phishing, at random", "exchanges", "gt_gda cta")
    ]
    points_there = pd.read_csv(ROOT / "tables" / "figures-split.csv")
    points_there = points_there.query("dataset == 'phishing, at random' and horizon == 'exchanges'")
    seeds = points_there[points_there["method"] == "gt_gda cta"]["seed"].nunique()
    assert f"diverged on {5 - seeds} of 5 seeds" in said()


# --- Table 1 ----------------------------------------------------------------------------------------------------------


def sentences_of_table_1(tables: Path = ROOT / "tables") -> list[str]:
    """What the text says of Table 1, as its files have it."""
    specification = claim_specs.read(tables / "table1.toml")
    cells = pd.read_csv(tables / "table1.csv").fillna({"variant": ""})
    ours = next(method for method in specification.methods if method.name == "dec_fedtrack")
    fast = cells[(cells["method"] == "dec_fedtrack") & (cells["goal"] == specification.goals[0])]
    costs = fast.set_index(["variant", "heterogeneity"])["sfo_median"]
    calls = [f"{costs['K = 5, full', h] / costs['K = 1, full', h]:.1f}" for h in specification.heterogeneity]
    far = cells[(cells["method"] == "dec_fedtrack") & (cells["goal"] == specification.goals[1])]
    far = far.set_index(["variant", "heterogeneity"])
    alone, five = ([far.loc[(f"K = {K}, full", h)] for h in specification.heterogeneity] for K in (1, 5))
    assert all(cell["reached"] for cell in alone) and not any(cell["reached"] for cell in five)
    assert specification.goals == [1e-2, 1e-4] and len(specification.seeds) == 3
    rounds = fast.set_index(["variant", "heterogeneity"])["rounds_median"]
    different = max(specification.heterogeneity)
    assert rounds["K = 5, full", different] >= rounds["K = 1, full", different]
    return [
        "the norm of Phi's gradient is 1e-2 and 1e-4",
        "five seeds became three",
        "On very different nodes they save nothing",
        "On Table 1's very different nodes, with full gradients, local steps save nothing",
        f"with full gradients and until the norm is 1e-2, K = 5 instead of K = 1 divides its rounds by "
        f"{claims_report.seen_LU(specification, ours, cells).why}",
        f"for {calls[0]} and {calls[1]} times the calls",
        f"To 1e-4 K = 1 needs {alone[0]['rounds_median']:.0f} and {alone[1]['rounds_median']:.0f} rounds, "
        f"and K = 5 comes there with {five[0]['seeds_reached']:.0f} and {five[1]['seeds_reached']:.0f} "
        f"of {five[0]['seeds']:.0f} seeds",
        f"Heterogeneity robustness of Dec-FedTrack: {claims_report.seen_HR(specification, ours, cells).why}",
        *(sentence for _, sentence in claims_report.contradictions(specification, cells)),
    ]


def test_every_best_point_of_table_1_lies_inside_the_grid_or_at_the_stability_limit_and_the_text_says_so() -> None:
    grid = pd.read_csv(ROOT / "tables" / "table1-tune.csv").fillna({"variant": ""})
    taken = grid[grid["taken"] == "yes"]
    edge = [row for row in taken.itertuples() if at_edge(grid, row)]
    ratios = (grid["eta_x"] / grid["eta_y"]).round(6)
    for row in edge:  # at the smallest ratio: eta_x lies inside what was tried, and no larger eta_y is stable
        here = grid[(grid["method"] == row.method) & (grid["variant"] == row.variant)]
        here = here[here["heterogeneity"] == row.heterogeneity]
        assert round(row.eta_x / row.eta_y, 6) == ratios.min() and row.eta_y == grid["eta_y"].max() / 2
        assert (here[here["eta_y"] > row.eta_y]["ended"] == "unstable").all()
        smaller, larger = (here[here["eta_x"] == factor * row.eta_x] for factor in (0.5, 2))
        assert len(smaller) >= 9 and len(larger) >= 9 and here["eta_x"].min() < row.eta_x / 2
    places = {(row.method, row.variant) for row in edge}
    assert places == {("momentum_local_sgda", "K = 1")} and len(edge) == 2
    (steps_x,), (steps_y,) = ({getattr(row, name) for row in edge} for name in ("eta_x", "eta_y"))
    line = grid[(grid["method"] == "momentum_local_sgda") & (grid["variant"] == "K = 1") & (grid["eta_x"] == steps_x)]
    flat = line[line["eta_y"].between(0.4, steps_y)]["sfo"]
    for sentence in (
        f"{len(taken) - len(edge)} of {len(taken)} best points lie strictly inside the grid",
        f"MLSGDA with K = 1 and minibatches on both benches, lie at the ratio of 1/{1 / ratios.min():.0f}",
        f"their eta_y, {steps_y:g}, is the largest that is stable, and all points with {2 * steps_y:g} are refused",
        f"Their eta_x, {steps_x:g}, lies inside",
        f"from eta_y 0.4 to {steps_y:g} they need {flat.min():.0f} to {flat.max():.0f} calls",
    ):
        assert sentence in said(), sentence
    rule = claim_specs.read(ROOT / "tables" / "table1.toml").tune
    assert f"ratios from 1/{1 / min(rule.ratio):.0f} down to 1/{1 / ratios.min():.0f}, eta_y from" in said()
    low, high = grid["eta_y"].min(), grid["eta_y"].max()
    assert f"eta_y from {min(rule.eta_y):g} down to {low:g} and from {max(rule.eta_y):g} up to {high:g}" in said()


def at_edge(grid: pd.DataFrame, row: Any) -> bool:
    """Whether a taken point has no tried neighbour on one side; a method without y has one axis, its eta_x."""
    place = (grid["method"] == row.method) & (grid["variant"] == row.variant)
    here = grid[place & (grid["heterogeneity"] == row.heterogeneity)]
    if not shelf.find("trainer", row.method, Trainer).has_dual:  # type: ignore[type-abstract]
        return not here["eta_x"].min() < row.eta_x < here["eta_x"].max()
    ratios = (here["eta_x"] / here["eta_y"]).round(6)
    inside = here["eta_y"].min() < row.eta_y < here["eta_y"].max()
    return not (inside and ratios.min() < round(row.eta_x / row.eta_y, 6) < ratios.max())


def test_what_the_text_says_of_table_1_is_in_its_files() -> None:
    for sentence in sentences_of_table_1():
        assert sentence in said(), sentence


# --- made anew --------------------------------------------------------------------------------------------------------


def test_what_is_said_of_runs_made_anew_is_in_their_file() -> None:
    anew = pd.read_csv(ROOT / "benchmarks" / "reproduced.csv").set_index("what")
    assert (anew["same_costs"] == anew["runs"]).all()
    assert "All of them have the same costs at every goal or measured point" in said()
    assert (anew["committed"] == anew["anew"]).all() and (anew["same"] == anew["runs"]).all()
    assert f"all {anew['runs'].sum()} have the same bits, on the same kind of CPU" in said()
    assert anew["same_file"].all() and "Table 1 and both pages' windows come out as published" in said()
    published = {"table1": len(list((ROOT / "results" / "table1").glob("*.json")))}
    for stem, title in {"figures": "{}", "figures-split": "phishing, second page"}.items():
        points = pd.read_csv(ROOT / "tables" / f"{stem}.csv", usecols=["dataset", "run_id"])
        for dataset, runs in points.groupby(points["dataset"].map(title.format), sort=False)["run_id"]:
            published[str(dataset)] = runs.nunique()
    assert anew["runs"].to_dict() == published
    lost = windows("figures-split")["seeds"].sum() - published["phishing, second page"]
    assert lost == 2 and "Two more runs of the second page diverge, each time" in said()


@pytest.mark.parametrize("target", ["figures", "table1"])
def test_the_minutes_of_the_readme_are_those_of_the_times(target: str) -> None:
    seconds = pd.read_csv(ROOT / "benchmarks" / "reproduced_times.csv").set_index("command")["core_seconds"]
    command = f"make {target} RESULTS=out"
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| `{command}` |"))
    assert f"| [{seconds[command] / 60:.0f} of one core](docs/reproduction.md#made-anew) |" in line

"""What docs/reproduction.md says of Figures 1 and 2 and of Table 1 is read from their files."""

from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import shelf, titles
from robustbench_dec.specs import claims as claim_specs
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


def edges(stem: str) -> tuple[int, int, int]:
    """How many best points there are, how many at an edge of the box, and how many only at eta_y's lower end."""
    trials = pd.read_csv(ROOT / "tables" / f"{stem}-tune.csv", keep_default_na=False)
    points = at_edge = small_y = 0
    for _, box in trials.groupby("block"):
        for horizon in HORIZONS:
            best = box[box[f"taken_{horizon}"] != ""]
            outer = best[best[f"taken_{horizon}"] == "edge"]
            inside_x = outer["eta_x"].between(box["eta_x"].min(), box["eta_x"].max(), inclusive="neither")
            points, at_edge = points + len(best), at_edge + len(outer)
            small_y += int((inside_x & (outer["eta_y_N"] == box["eta_y_N"].min())).sum())
    return points, at_edge, small_y


def test_the_texts_verdicts_are_those_of_the_windows() -> None:
    expected = verdicts("figures")
    heads = tuple(line[0] for line in expected)
    assert rows(*heads) == expected


def test_the_text_says_how_many_best_points_lie_at_an_edge() -> None:
    points, at_edge, small_y = edges("figures")
    assert f"{at_edge} of {points} best points lie at an edge of the box" in said()
    assert f"{small_y} of these {at_edge} only at the lower end of eta_y" in said()


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


# --- Table 1 ----------------------------------------------------------------------------------------------------------


def sentences_of_table_1(tables: Path = ROOT / "tables") -> list[str]:
    """What the text says of Table 1, as its files have it."""
    specification = claim_specs.read(tables / "table1.toml")
    cells = pd.read_csv(tables / "table1.csv").fillna({"variant": ""})
    ours = next(method for method in specification.methods if method.name == "dec_fedtrack")
    fast = cells[(cells["method"] == "dec_fedtrack") & (cells["goal"] == specification.goals[0])]
    costs = fast.set_index(["variant", "heterogeneity"])["sfo_median"]
    calls = [f"{costs['K = 5, full', h] / costs['K = 1, full', h]:.1f}" for h in specification.heterogeneity]
    grid = pd.read_csv(tables / "table1-tune.csv").fillna({"variant": ""})
    taken = grid[grid["taken"] == "yes"]
    edge = sum(at_edge(grid, row) for row in taken.itertuples())
    return [
        f"with full gradients, K = 5 instead of K = 1 divides its rounds by "
        f"{claims_report.seen_LU(specification, ours, cells).why}",
        f"for {calls[0]} and {calls[1]} times the calls",
        f"Heterogeneity robustness of Dec-FedTrack: {claims_report.seen_HR(specification, ours, cells).why}",
        *(sentence for _, sentence in claims_report.contradictions(specification, cells)),
        f"The best points of {edge} of {len(taken)} places lie at an edge",
    ]


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

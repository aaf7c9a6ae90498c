"""Curves: what robustness costs."""

from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from robustbench_dec import data, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import style
from robustbench_dec.rendering.style import DASHES, Colour, Dash

AXES = {
    "sfo": "SFO calls per node (grad$_x$, grad$_y$ paired)",
    "round": "Communication rounds",
    "megabytes": "Megabytes sent, all nodes together",
}


def curves(runs: pd.DataFrame, stem: Path) -> dict[Path, bytes]:
    """Accuracy, clean and under attack, against oracle calls, rounds and megabytes: <stem>-curves.png and .pdf.

    `runs` is the curve.csv of all runs, one below the other, with the columns dataset, method, seed, nodes and
    directed_edges added. A row of panels is a data set, a colour a method, a line style an attack; a line is the mean
    over seeds, a band goes from the smallest to the largest value.
    """
    if runs.empty:
        raise BadInput("curves need at least one run with a curve.csv, but none came; train first")
    runs = runs.reset_index(drop=True)  # row numbers repeat where curves were put one below the other
    runs = runs.assign(megabytes=runs["bytes_per_edge"] * runs["directed_edges"] / 1e6)
    datasets = titles.in_order(runs["dataset"], data.titles())
    methods = titles.in_order(runs["method"], titles.methods())
    colours = dict(zip(methods, sns.color_palette("colorblind", len(methods)), strict=True))
    seeds = runs["seed"].nunique()
    with style.sheet():
        figure = Figure(figsize=(9.2, 0.5 + 2.35 * len(datasets)), layout="constrained")
        grid = figure.subplots(len(datasets), len(AXES), sharey="row", squeeze=False)
        for panels, dataset in zip(grid, datasets, strict=True):
            here = runs[runs["dataset"] == dataset].dropna(axis="columns", how="all")
            attacks = [name for name in here.columns if "@" in name]
            if len(attacks) >= len(DASHES):
                raise BadInput(
                    f"a curve shows at most {len(DASHES) - 1} attacks, but {dataset} has {len(attacks)}; drop some"
                )
            styles = dict(zip(["clean_acc", *attacks], DASHES, strict=False))
            for axis, panel in zip(AXES, panels, strict=True):
                _panel(panel, here, axis, styles, colours)
            panels[0].set_ylim(_floor(here, list(styles)), None)
            panels[0].set_title(titles.dataset(dataset), loc="left", fontweight="bold")
            panels[0].set_ylabel("Accuracy (%)")
            present = [method for method in methods if method in set(here["method"])]
            _legend(panels[-1], {titles.method(method): colours[method] for method in present}, styles)
        for panel, label in zip(grid[-1], AXES.values(), strict=True):
            panel.set_xlabel(label)
        band = f"Lines: mean over up to {seeds} seeds. Bands: minimum to maximum." if seeds > 1 else "One seed."
        figure.supxlabel(band, fontsize=7, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}-curves.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _floor(runs: pd.DataFrame, measures: list[str]) -> float | None:
    """Just below the worst trained model: an untrained one says nothing, and would press all lines together."""
    trained = 100 * runs.loc[runs["round"] > 0, measures].min().min()
    return float(5 * (trained // 5)) if trained == trained else None


def _panel(panel: Axes, runs: pd.DataFrame, axis: str, styles: dict[str, Dash], colours: dict[str, Colour]) -> None:
    for measure, dashes in styles.items():
        sns.lineplot(
            data=runs.assign(percent=100 * runs[measure]),
            x=axis,
            y="percent",
            hue="method",
            palette=colours,
            linestyle=dashes or "-",
            errorbar=("pi", 100),
            err_kws={"alpha": 0.18, "linewidth": 0},
            legend=False,
            ax=panel,
        )
    panel.set(xlabel="", ylabel="")
    panel.margins(x=0.01)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _legend(panel: Axes, colours: dict[str, Colour], styles: dict[str, Dash]) -> None:
    handles = [Line2D([], [], color=colour, linewidth=2.2, label=name) for name, colour in colours.items()]
    for measure, dashes in styles.items():
        attack, at, eps = measure.partition("@")
        label = f"{titles.attack(attack)}, δ = {eps}" if at else "Clean"
        handles.append(Line2D([], [], color="0.25", linestyle=dashes or "-", label=label))
    panel.legend(handles=handles, loc="center left", bbox_to_anchor=(1.03, 0.5), frameon=False, handlelength=2.6)

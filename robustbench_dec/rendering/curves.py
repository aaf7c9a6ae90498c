"""Curves: what robustness costs."""

from pathlib import Path

import numpy as np
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
    "sfo": "SFO calls per node\n(grad$_x$ and grad$_y$ of a sample: one call)",
    "round": "Communication rounds",
    "megabytes": "Megabytes sent, all nodes together",
}


FALL = 1.0
"""Points below its own best at which a curve is said to fall."""


def curves(runs: pd.DataFrame, stem: Path, measured: str = "") -> dict[Path, bytes]:
    """Accuracy, clean and under attack, against what training cost: <stem>-curves.png and .pdf.

    `runs` is the curve.csv of all runs, one below the other, with the columns dataset, method, seed, nodes and
    directed_edges added; `measured` says on which images and with which attacks. A row of panels is a data set, a
    colour a method, a line style an attack; a line is the mean over seeds, a band goes from the smallest to the largest
    value. Untrained networks are not drawn. Rounds have panels of their own unless every round costs the same calls.
    """
    runs = runs[runs["round"] > 0] if len(runs) else runs  # an untrained network would press all lines together
    if runs.empty:
        raise BadInput("curves need at least one run with a curve.csv, but none came; train first")
    runs = runs.reset_index(drop=True)  # row numbers repeat where curves were put one below the other
    runs = runs.assign(megabytes=runs["bytes_per_edge"] * runs["directed_edges"] / 1e6)
    datasets = titles.in_order(runs["dataset"], data.titles())
    methods = titles.in_order(runs["method"], titles.methods())
    colours = style.colours(methods)
    seeds = runs.groupby(["dataset", "method"])["seed"].nunique()
    axes = _axes(runs)
    with style.sheet():
        figure = Figure(figsize=(2.6 + 2.9 * len(axes), 0.7 + 2.5 * len(datasets)), layout="constrained")
        grid = figure.subplots(len(datasets), len(axes), sharey="row", squeeze=False)
        for panels, dataset in zip(grid, datasets, strict=True):
            here = runs[runs["dataset"] == dataset].dropna(axis="columns", how="all")
            attacks = [name for name in here.columns if "@" in name]
            if len(attacks) >= len(DASHES):
                raise BadInput(
                    f"a curve shows at most {len(DASHES) - 1} attacks, but {dataset} has {len(attacks)}; drop some"
                )
            styles = dict(zip(["clean_acc", *attacks], DASHES, strict=False))
            for (axis, label), panel in zip(axes.items(), panels, strict=True):
                _panel(panel, here, axis, styles, colours)
                panel.set_xlabel(label)
            panels[0].set_title(titles.dataset(dataset), loc="left", fontweight="bold")
            panels[0].set_ylabel("Test accuracy (%)")
            present = [method for method in methods if method in set(here["method"])]
            _legend(panels[-1], {titles.method(method): colours[method] for method in present}, styles)
            falls = [line for name in attacks if (line := falling(here, name))]
            if falls:
                words = "\n".join(["Falls as training goes on:", *falls])
                panels[-1].text(1.05, 0, words, transform=panels[-1].transAxes, fontsize=6.5, color="0.35", va="bottom")
        many = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
        band = f"Lines: mean over {many} seeds. Bands: minimum to maximum." if seeds.max() > 1 else "One seed."
        note = "\n".join(line for line in (measured, f"Accuracy of the mean network. {band}") if line)
        figure.supxlabel(note, fontsize=7, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}-curves.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def falling(runs: pd.DataFrame, measure: str) -> str:
    """Where an accuracy ends below its own best, mean over seeds: "PGD δ = 0.1: K-GT 69 to 58, ..."; or ""."""
    words = []
    for method in titles.in_order(runs["method"], titles.methods()):
        means = 100 * runs[runs["method"] == method].groupby("round")[measure].mean()
        if len(means) and means.max() - means.iloc[-1] > FALL:
            words.append(f"{titles.method(method)} {means.max():.0f} to {means.iloc[-1]:.0f}")
    return f"{_attack(measure)}: {', '.join(words)}" if words else ""


def _axes(runs: pd.DataFrame) -> dict[str, str]:
    """The axes with their labels, without rounds where they are calls in another unit."""
    if runs["round"].nunique() < 2:
        return dict(AXES)
    calls, first = np.polyfit(runs["round"], runs["sfo"], 1)  # the first batch of all may be extra
    if (runs["sfo"] - calls * runs["round"] - first).abs().max() > 0.01 * runs["sfo"].max():
        return dict(AXES)
    axes = {name: label for name, label in AXES.items() if name != "round"}
    return axes | {"sfo": f"SFO calls per node, {calls:,.0f} a round\n(grad$_x$ and grad$_y$ of a sample: one call)"}


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
        label = _attack(measure) if "@" in measure else "Clean"
        handles.append(Line2D([], [], color="0.25", linestyle=dashes or "-", label=label))
    panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.03, 1.0), frameon=False, handlelength=2.6)


def _attack(measure: str) -> str:
    attack, _, eps = measure.partition("@")
    return f"{titles.attack(attack)} δ = {eps}"

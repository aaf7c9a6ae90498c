"""Plots: what robustness costs, and what perturbations look like.

Figures are made without pyplot's global state and saved without dates, so the same results give the same bytes.
"""

import io
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter
from torch import Tensor

from robustbench_dec import data, titles
from robustbench_dec.errors import BadInput

AXES = {
    "sfo": "SFO calls per node (grad$_x$, grad$_y$ paired)",
    "round": "Communication rounds",
    "megabytes": "Megabytes sent, all nodes together",
}
DIVERGING = "coolwarm"
DASHES: tuple["Dash", ...] = (
    None,
    (0, (5, 1.6)),
    (0, (1.2, 1.4)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (8, 2, 1.2, 2, 1.2, 2)),
)
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.edgecolor": "0.3",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # real letters, which publishers ask for
    "savefig.dpi": 200,
}
UNDATED = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}

Picture = tuple[str, Tensor, float]  # title, perturbation (C, H, W), radius
Dash = tuple[float, tuple[float, ...]] | None
Colour = tuple[float, float, float]


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
    with style.context(STYLE, after_reset=True):
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
        return {stem.with_name(f"{stem.name}-curves.{kind}"): drawn(figure, kind) for kind in ("png", "pdf")}


def perturbations(trained: Sequence[Picture], uaps: Sequence[Picture], stem: Path) -> dict[Path, bytes]:
    """Pictures of perturbations: <stem>-perturbations.png.

    The trained y come first, then a row for each stretch of equal titles in `uaps` ("mnist, k_gt"), with its radii from
    small to large. One channel is shown from -delta (blue) to delta (red), three as the colour (y / delta + 1) / 2.
    """
    stretches = itertools.groupby(uaps, key=lambda picture: picture[0])
    groups = [(f"UAP, {title}", sorted(group, key=lambda picture: picture[2])) for title, group in stretches]
    width = max([3, *(len(group) for _, group in groups)])
    rows = [("Trained y", list(trained[start : start + width])) for start in range(0, len(trained), width)]
    if not rows + groups:
        raise BadInput("a picture of perturbations needs at least one of them, but none came; train or attack first")
    with style.context(STYLE | {"axes.grid": False}, after_reset=True):
        figure = Figure(figsize=(1.3 + 1.2 * width, 0.6 + 1.5 * (len(rows) + len(groups))), layout="constrained")
        grid = figure.subplots(len(rows) + len(groups), width, squeeze=False)
        for panel in grid.flat:
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
        for panels, (label, pictures) in zip(grid, rows + groups, strict=True):
            panels[0].set_ylabel(_lines(label), rotation=0, ha="right", va="center", fontweight="bold")
            for panel, (title, perturbation, eps) in zip(panels, pictures, strict=False):
                panel.set_title(
                    f"δ = {eps:g}" if label.endswith(title) else f"{_lines(title)}\nδ = {eps:g}", fontsize=8
                )
                _picture(panel, perturbation, eps)
        bar = figure.colorbar(
            ScalarMappable(Normalize(-1, 1), DIVERGING),
            ax=grid,
            location="bottom",
            shrink=0.5,
            aspect=40,
            ticks=[-1, 0, 1],
        )
        bar.ax.set_xticklabels(["−δ", "0", "δ"])  # noqa: RUF001
        bar.outline.set_visible(False)
        bar.set_label("Scale of one channel. Three channels: each from none (−δ) to full (δ), grey is 0.", fontsize=7)  # noqa: RUF001
        return {stem.with_name(f"{stem.name}-perturbations.png"): drawn(figure, "png")}


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


def _picture(panel: Axes, perturbation: Tensor, eps: float) -> None:
    share = np.clip(perturbation.detach().cpu().numpy() / (eps or 1.0), -1, 1)  # (C, H, W), in units of the radius
    if len(share) == 1:
        panel.imshow(share[0], cmap=DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
    elif len(share) == 3:
        panel.imshow((share.transpose(1, 2, 0) + 1) / 2, interpolation="nearest")
    else:
        raise BadInput(
            f"a perturbation to look at has 1 or 3 channels, but one has shape {tuple(share.shape)}; leave it out"
        )


def drawn(figure: Figure, kind: str) -> bytes:
    """The figure as a file of this kind, without a date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=UNDATED[kind])
    return buffer.getvalue()


def _lines(title: str) -> str:
    """The parts of a title one below the other, data sets and methods by their printed names."""
    return "\n".join(titles.method(titles.dataset(part)) for part in title.split(", "))

"""Figures: an objective that is known exactly, and accuracy, against oracle calls and communication, method by method.

From the curves of a specification's runs: <stem>.csv, one tidy row per measured point, and Figure 1 (Phi of the mean
x-bar) and Figure 2 (accuracy) as PNG and PDF, a column of panels per data set.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from robustbench_dec import data, files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import style
from robustbench_dec.running.suite import Work
from robustbench_dec.specs import table as spec
from robustbench_dec.store.results import Results

AXES = {
    "sfo": "SFO calls per node (paired)",
    "exchanges": "Exchanges with neighbours",
    "bytes_per_edge": "Bytes per directed edge",
    "round": "Rounds",
}
WINDOW, POINTS = 0.1, 21
"""The part of a horizon over which Phi is averaged, and at how many costs."""

GRID = 200
"""Points at which the curves of seeds, whose costs differ a little, are compared."""


def available(specification: spec.Spec) -> tuple[spec.Spec, list[str]]:
    """The specification without the blocks whose data cannot be had, and a sentence for each of those."""
    blocks, reasons = [], []
    for block in specification.blocks:
        try:
            if "dataset" in block.problem:
                data.fetch(str(block.problem["dataset"]))
            blocks.append(block)
        except BadInput as error:
            reasons.append(f"{block.title} is left out: {error}")
    if not blocks:
        raise BadInput(" ".join(reasons))
    return specification.model_copy(update={"blocks": blocks}), reasons


def render(specification: spec.Spec, work: Sequence[Work], results: Results, stem: Path) -> dict[Path, bytes]:
    """What goes into the CSV and both figures, from the finished runs on disk."""
    frame = gather(work, results)
    contents = files.beside(stem, {".csv": frame.to_csv(index=False, lineterminator="\n", float_format="%.7g")})
    ends = {block.title: {"sfo": block.sfo, "exchanges": block.exchanges} for block in specification.blocks}
    if "phi" not in frame:
        raise BadInput("figures show Phi, which networks do not know; a specification of robust_logistic would do")
    if specification.tune is not None and specification.tune.seed is not None:  # tuned for a horizon that is claimed
        table = windows(frame, {"sfo": specification.tune.sfo, "exchanges": specification.tune.exchanges})
        text = table.to_csv(index=False, lineterminator="\n", float_format="%.5g")
        contents |= files.beside(stem.with_name(f"{stem.name}-windows"), {".csv": text})
    first, second = (stem.with_name(f"{stem.name}-{number}") for number in (1, 2))
    axes = specification.axes
    contents |= draw(frame.assign(shown=frame["phi"]), ends, first, dict.fromkeys(ends, "Φ(x̄)"), axes)
    accuracy = {title: "Test accuracy (%)" for title in ends}
    shown = frame["test_acc"] if "test_acc" in frame else pd.Series(np.nan, frame.index)
    if "train_acc" in frame:
        untested = [title for title in ends if shown[frame["dataset"] == title].isna().all()]
        accuracy |= dict.fromkeys(untested, "Training accuracy (%)")  # there is no test part
        shown = shown.where(~frame["dataset"].isin(untested), frame["train_acc"])
    if shown.notna().any():
        contents |= draw(frame.assign(shown=100 * shown), ends, second, accuracy, axes)
    return contents


def gather(work: Sequence[Work], results: Results) -> pd.DataFrame:
    """The curves of all finished runs: costs in both conventions of each kind, Phi, ||grad Phi||, accuracies.

    `sfo` are paired calls per node, `sfo_split_total` x- and y-gradients counted apart and summed over the nodes;
    `round` are steps of the trainer, `exchanges` synchronous swaps with the neighbours.
    """
    parts = []
    for item in work:
        asked, run = item.run, results.run(item.run.id)
        if not run.exists:
            continue
        curve = run.curve()
        split = asked.network.nodes * (curve["sfo_x"] + curve["sfo_y"])
        curve.insert(2, "sfo_split_total", split)
        if "server_bytes" in curve:  # a server is a neighbour too: half of it goes there, half comes back
            curve["bytes_per_edge"] += curve["server_bytes"] / 2
        names = {"dataset": item.block.title, "method": _entry(item), "seed": asked.seed, "run_id": asked.id}
        parts.append(pd.DataFrame(names, index=curve.index).join(curve))
    if not parts:
        raise BadInput(f"no finished run of these figures is in {results.root}; make the figures first")
    return pd.concat(parts, ignore_index=True)


def windows(frame: pd.DataFrame, horizons: Mapping[str, int | None]) -> pd.DataFrame:
    """Phi at each horizon: its mean over the last tenth, by seed; the seeds' mean, smallest and largest; who is behind.

    `ahead_of` names the methods whose smallest seed is above this one's largest: only there may a text say "ahead".
    """
    lines = []
    for axis, horizon in horizons.items():
        if horizon is None:
            continue
        costs = np.linspace((1 - WINDOW) * horizon, horizon, POINTS)
        for dataset, block in frame.groupby("dataset", sort=False):
            found = {}
            for method, curves in block.groupby("method", sort=False):
                of_seeds = [np.interp(costs, c[axis], c["phi"]).mean() for _, c in curves.groupby("seed")]
                found[str(method)] = of_seeds
            for method, values in found.items():
                behind = [other for other, theirs in found.items() if min(theirs) > max(values)]
                where = {"dataset": dataset, "axis": axis, "horizon": horizon, "method": method, "seeds": len(values)}
                spread = {"mean": np.mean(values), "min": min(values), "max": max(values)}
                lines.append({**where, **spread, "ahead_of": " ".join(other.replace(" ", "_") for other in behind)})
    return pd.DataFrame(lines)


def _entry(item: Work) -> str:
    """Under which name the run's block has its trainer: gt_gda, or, where it comes more than once, gt_gda cta."""
    return next(
        (
            entry
            for entry, settings in item.block.trainers.items()
            if entry.partition(" ")[0] == item.run.trainer and settings == item.run.trainer_settings
        ),
        item.run.trainer,
    )


def _title(entry: str) -> str:
    trainer, _, variant = entry.partition(" ")
    return f"{titles.method(trainer)} {variant}".rstrip()


def draw(
    frame: pd.DataFrame,
    ends: Mapping[str, Mapping[str, int | None]],
    stem: Path,
    labels: Mapping[str, str],
    axes: Sequence[str] = ("sfo", "exchanges"),
) -> dict[Path, bytes]:
    """`shown` against each cost, a column of panels per data set; a line is the mean over seeds, a band their range."""
    datasets = [title for title in ends if title in set(frame["dataset"])]
    methods = list(dict.fromkeys(frame["method"]))
    colours = dict(zip(methods, sns.color_palette("colorblind", len(methods)), strict=True))
    dashes = dict(zip(methods, [None, *style.DASHES[1:], (0, (3, 1, 1, 1, 1, 1))] * len(methods), strict=False))
    with style.sheet():
        figure = Figure(figsize=(0.4 + 2.3 * max(2, len(datasets)), 0.7 + 2.1 * len(axes)), layout="constrained")
        grid = figure.subplots(len(axes), len(datasets), squeeze=False)
        for column, title in enumerate(datasets):
            here = frame[frame["dataset"] == title]
            for row, axis in enumerate(axes):
                panel = grid[row][column]
                # Where no budget ends an axis, the first method's end does: beyond, there is nothing to compare.
                end = ends[title].get(axis) or here.groupby("method")[axis].max().min()
                for method in methods:
                    curves = [curve for _, curve in here[here["method"] == method].groupby("seed")]
                    if curves:
                        _line(panel, curves, axis, end, colours[method], dashes[method])
                panel.set_xlabel(AXES[axis])
                panel.set_ylabel(labels[title])
                start = here.loc[here["round"] == 0, "shown"].max()
                if labels[title].startswith("Φ") and panel.get_ylim()[1] > 1.3 * start:
                    panel.set_ylim(top=1.3 * start)  # a first step that is far too long would press all lines together
                panel.margins(x=0.01)
                panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            grid[0][column].set_title(title, loc="left", fontweight="bold")
        handles = [
            Line2D([], [], color=colours[m], linestyle=dashes[m] or "-", linewidth=1.8, label=_title(m))
            for m in methods
        ]
        columns = len(methods) if len(datasets) > 3 else 3
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, handlelength=2.6)
        seeds = frame["seed"].nunique()
        band = f"Lines: mean over {seeds} seeds. Bands: minimum to maximum." if seeds > 1 else "One seed."
        figure.supxlabel(band, fontsize=7, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _line(
    panel: Axes,
    curves: Sequence[pd.DataFrame],
    axis: str,
    end: float,
    colour: style.Colour,
    dashes: style.Dash,
) -> None:
    costs = np.linspace(max(curve[axis].min() for curve in curves), end, GRID)
    values = np.stack([np.interp(costs, curve[axis], curve["shown"]) for curve in curves])  # (seeds, GRID)
    panel.plot(costs, values.mean(0), color=colour, linestyle=dashes or "-")
    panel.fill_between(costs, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)

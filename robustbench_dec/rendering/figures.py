"""Figures: an objective that is known exactly, and accuracy, against oracle calls and communication, method by method.

From the curves of a specification's runs: <stem>.csv, one tidy row per measured point, <stem>-windows.csv, who is ahead
at each horizon, and Figure 1 (Phi of the mean x-bar) and Figure 2 (accuracy) as PNG and PDF, a column of panels per
data set. Where step sizes were tuned by a rule (running/steps.py), every horizon has runs of its own: a panel shows the
runs that were tuned for its axis, and Phi minus its best known value on a log scale.
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from robustbench_dec import data, files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import style
from robustbench_dec.running.steps import HORIZONS, judged
from robustbench_dec.running.suite import Work
from robustbench_dec.specs import table as spec
from robustbench_dec.specs.table import BlockSpec
from robustbench_dec.store.results import Results

AXES = {
    "sfo": "Oracle calls per node",
    "exchanges": "Exchanges with neighbours",
    "bytes_per_edge": "Bytes per directed edge",
    "round": "Rounds",
}
GRID = 300
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
    """What goes into the CSVs and both figures, from the finished runs on disk."""
    frame = gather(work, results)
    if "phi" not in frame:
        raise BadInput("figures show Phi, which networks do not know; a specification of robust_logistic would do")
    lost = [
        (item.block.title, horizon_of(item.block), _entry(item))
        for item in work
        if results.run(item.run.id).divergence is not None
    ]
    contents = files.beside(stem, {".csv": frame.to_csv(index=False, lineterminator="\n", float_format="%.7g")})
    ends: dict[str, dict[str, int]] = {}
    for block in specification.blocks:
        named = {name: getattr(block, name) for name in HORIZONS}
        ends.setdefault(block.title, {}).update({name: end for name, end in named.items() if end is not None})
    sets = {} if specification.steps is None else specification.steps.known
    if specification.steps is not None:
        text = windows(frame, ends, lost).to_csv(index=False, lineterminator="\n", float_format="%.5g")
        contents |= files.beside(stem.with_name(f"{stem.name}-windows"), {".csv": text})
    first, second = (stem.with_name(f"{stem.name}-{number}") for number in (1, 2))
    axes = specification.axes
    contents |= draw(frame, [_objective(title, frame, ends[title], sets) for title in ends], first, axes, len(lost))
    panels = [_accuracy(title, frame, ends[title], sets) for title in ends]
    if any(panel.values.notna().any() for panel in panels):
        contents |= draw(frame, panels, second, axes, len(lost))
    return contents


class Panels(NamedTuple):
    """A column of panels: what a data set's panels show, and where its axes end."""

    title: str
    values: "pd.Series[float]"
    label: str
    ends: Mapping[str, int]
    log: bool = False
    line: tuple[float, str] | None = None  # a height to compare with, and its name


def _objective(
    title: str, frame: pd.DataFrame, ends: Mapping[str, int], sets: Mapping[str, Mapping[str, Any]]
) -> Panels:
    phi = frame.loc[frame["dataset"] == title, "phi"]
    if title not in sets:
        return Panels(title, phi, "Φ(x̄)", ends)
    return Panels(title, phi - sets[title]["phi_best"], "Φ(x̄) - best known Φ", ends, log=True)


def _accuracy(
    title: str, frame: pd.DataFrame, ends: Mapping[str, int], sets: Mapping[str, Mapping[str, Any]]
) -> Panels:
    here = frame[frame["dataset"] == title]
    shown, label = here.get("test_acc", pd.Series(np.nan, here.index)), "Test accuracy (%)"
    if shown.isna().all() and "train_acc" in here:  # there is no test part
        shown, label = here["train_acc"], "Training accuracy (%)"
    line = (100 * float(sets[title]["majority"]), "the larger class") if title in sets else None
    return Panels(title, 100 * shown, label, ends, line=line)


def gather(work: Sequence[Work], results: Results) -> pd.DataFrame:
    """The curves of all finished runs: costs in both conventions of each kind, Phi, ||grad Phi||, accuracies.

    `sfo` are paired calls per node, `sfo_split_total` x- and y-gradients counted apart and summed over the nodes;
    `round` are steps of the trainer, `exchanges` synchronous swaps with the neighbours, and exact means.
    """
    parts = []
    for item in work:
        asked, run = item.run, results.run(item.run.id)
        if not run.exists:
            continue
        curve = run.curve()
        split = asked.network.nodes * (curve["sfo_x"] + curve["sfo_y"])
        curve.insert(2, "sfo_split_total", split)
        curve["exchanges"] += curve["all_reduces"]  # an exact mean is worth one, as for a run's budget
        if "server_bytes" in curve:  # a server is a neighbour too: half of it goes there, half comes back
            curve["bytes_per_edge"] += curve["server_bytes"] / 2
        names = {"dataset": item.block.title, "method": _entry(item), "seed": asked.seed, "run_id": asked.id}
        names["horizon"] = horizon_of(item.block)
        parts.append(pd.DataFrame(names, index=curve.index).join(curve))
    if not parts:
        raise BadInput(f"no finished run of these figures is in {results.root}; make the figures first")
    return pd.concat(parts, ignore_index=True)


def windows(
    frame: pd.DataFrame, ends: Mapping[str, Mapping[str, int]], lost: Sequence[tuple[str, str, str]] = ()
) -> pd.DataFrame:
    """Phi at each horizon: its mean over the last tenth, by seed; the seeds' mean, smallest and largest; who is behind.

    A run that diverged (`lost`: its data set, horizon and method) has an infinite Phi, as in the trials. `ahead_of`
    names the methods whose smallest seed is above this one's largest: only there may a text say "ahead".
    """
    lines = []
    for dataset, horizons in ends.items():
        for axis, horizon in horizons.items():
            block = frame[(frame["dataset"] == dataset) & (frame["horizon"] == axis)]
            found: dict[str, list[float]] = {}
            for method, curves in block.groupby("method", sort=False):
                seeds = [curve for _, curve in curves.groupby("seed")]
                found[str(method)] = [judged(c[axis].tolist(), horizon, c["phi"].tolist().__getitem__) for c in seeds]
            for title, horizon_lost, method_lost in lost:
                if (title, horizon_lost) == (dataset, axis):
                    found.setdefault(method_lost, []).append(np.inf)
            for method, values in found.items():
                behind = [other for other, theirs in found.items() if min(theirs) > max(values)]
                where = {"dataset": dataset, "axis": axis, "horizon": horizon, "method": method, "seeds": len(values)}
                spread = {"mean": np.mean(values), "min": min(values), "max": max(values)}
                lines.append({**where, **spread, "ahead_of": " ".join(other.replace(" ", "_") for other in behind)})
    return pd.DataFrame(lines)


def horizon_of(block: BlockSpec) -> str:
    """The only cost that ends the block's runs; nothing where several do."""
    named = [name for name in HORIZONS if getattr(block, name) is not None]
    return named[0] if len(named) == 1 else ""


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
    columns: Sequence[Panels],
    stem: Path,
    axes: Sequence[str] = ("sfo", "exchanges"),
    lost: int = 0,
) -> dict[Path, bytes]:
    """Values against each cost, a column of panels per data set; a line is the mean over seeds, a band their range."""
    columns = [column for column in columns if len(column.values)]
    entries = list(dict.fromkeys(frame["method"]))
    looks = _looks(entries)
    with style.sheet():
        figure = Figure(figsize=(0.4 + 2.3 * max(2, len(columns)), 0.9 + 2.0 * len(axes)), layout="constrained")
        grid = figure.subplots(len(axes), len(columns), squeeze=False)
        for place, column in enumerate(columns):
            size = "medium" if len(column.title) > 20 else None  # beside the panel's letter
            grid[0][place].set_title(column.title, loc="left", fontweight="bold", fontsize=size)
            for row, axis in enumerate(axes):
                panel = grid[row][place]
                here = frame[frame["dataset"] == column.title].assign(shown=column.values)
                here = here[here["horizon"].isin(["", axis if axis in HORIZONS else "exchanges"])]
                # Where no budget ends an axis, the first method's end does: beyond, there is nothing to compare.
                end = column.ends.get(axis) or here.groupby("method")[axis].max().min()
                for entry in entries:
                    curves = [curve for _, curve in here[here["method"] == entry].groupby("seed")]
                    if curves:
                        _line(panel, curves, axis, end, *looks[entry])
                _dress(panel, column, axis, here.loc[here["round"] == 0, "shown"].max())
                letter = f"({chr(ord('a') + row * len(columns) + place)})"
                panel.set_title(letter, loc="right", fontsize=7)
        handles = [
            Line2D([], [], color=looks[m][0], linestyle=looks[m][1] or "-", linewidth=1.8, label=_title(m))
            for m in entries
        ]
        handles += [
            Line2D([], [], color="0.4", linestyle=":", linewidth=1, label=name)
            for name in dict.fromkeys(column.line[1] for column in columns if column.line)
        ]
        across = min(len(handles), 6 if len(columns) > 3 else 3)
        figure.legend(handles=handles, loc="outside upper left", ncols=across, frameon=False, handlelength=2.2)
        words = textwrap.fill(_words(frame, columns, lost), 46 * max(2, len(columns)))
        figure.supxlabel(words, fontsize=7, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _looks(entries: Sequence[str]) -> dict[str, tuple[style.Colour, style.Dash]]:
    """A colour for each method, and dashes for its variants: atc and cta, or 1, 5 and 20 local steps."""
    methods = [entry.partition(" ")[0] for entry in entries]
    colours = style.colours(dict.fromkeys(methods))
    places = [methods[:k].count(method) for k, method in enumerate(methods)]
    short: tuple[style.Dash, ...] = (None, (0, (2.5, 1.2)), (0, (1, 1)))
    return {
        entry: (colours[method], short[place % len(short)])
        for entry, method, place in zip(entries, methods, places, strict=True)
    }


def _dress(panel: Axes, column: Panels, axis: str, start: float) -> None:
    """Labels, scale and the height to compare with."""
    panel.set_xlabel(AXES[axis])
    panel.set_ylabel(column.label)
    if column.log:
        panel.set_yscale("log")
        panel.set_ylim(top=min(panel.get_ylim()[1], 3 * start))  # a first step that is far too long
    elif column.label.startswith("Φ") and panel.get_ylim()[1] > 1.3 * start:
        panel.set_ylim(top=1.3 * start)
    if column.line is not None:
        height, top = column.line[0], panel.dataLim.y1
        panel.axhline(height, color="0.4", linestyle=":", linewidth=1)
        room = max(top - height, 0.1)
        bottom = max(panel.get_ylim()[0], height - room / 2)  # early falls would hide the rest
        panel.set_ylim(bottom, height + 1.08 * room)
    panel.margins(x=0.01)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _words(frame: pd.DataFrame, columns: Sequence[Panels], lost: int) -> str:
    """What a reader has to know to read the lines."""
    seeds = frame["seed"].nunique()
    words = [f"Lines: mean over {seeds} seeds. Bands: minimum to maximum." if seeds > 1 else "One seed."]
    if lost:
        words.append(f"Not drawn: {lost} of {lost + frame['run_id'].nunique()} runs, which diverged.")
    words.append("Steps: single iterates; straight lines join measured points that lie several rounds apart.")
    if any(column.log for column in columns):
        words.append("Panels are cut at three times the start.")
    if any(column.line for column in columns):
        words.append("Panels are cut a little below the larger class.")
    if (frame["horizon"] != "").any():
        words.append("x̄: the nodes' mean. First row: steps tuned for its end. Other rows: for the end of the second.")
    if frame["method"].str.endswith(" cta").any():
        words.append("cta: combine, then adapt, one exchange a step; GT-GDA, GT-DA, GT-SRVR, DM-HSGD otherwise two.")
    return " ".join(words)


def _line(
    panel: Axes,
    curves: Sequence[pd.DataFrame],
    axis: str,
    end: float,
    colour: style.Colour,
    dashes: style.Dash,
) -> None:
    costs = np.linspace(max(curve[axis].min() for curve in curves), end, GRID)
    values = np.stack([between(curve, axis, costs) for curve in curves])  # (seeds, GRID)
    panel.plot(costs, values.mean(0), color=colour, linestyle=dashes or "-")
    panel.fill_between(costs, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)


def between(curve: pd.DataFrame, axis: str, costs: np.ndarray) -> np.ndarray:
    """A curve at any costs: the last iterate paid for, or a straight line where iterates between were not measured."""
    measured, values = curve[axis].to_numpy(), curve["shown"].to_numpy()
    places = np.searchsorted(measured, costs * (1 + 1e-12), side="right") - 1
    dense = np.append(np.diff(curve["round"].to_numpy()) > 1, False)[places]
    return np.where(dense, np.interp(costs, measured, values), values[places])

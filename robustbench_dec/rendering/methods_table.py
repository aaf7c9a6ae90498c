"""Methods: every method on every way to deal the data, under one budget of oracle calls per node.

A block is a data set with a split; its rows are methods, by their worst case. Worst case: per image, over all attacks
of the row (see leaderboard/worst_case.py). A row is the mean over seeds with the sample standard deviation; a run that
diverged has no numbers, and its row says in which round it did.

    <stem>.csv, .md, .tex                 the numbers
    <stem>-curves.png, .pdf               accuracy against calls and bytes, method by method
    <stem>-heat.png, .pdf                 methods x splits, clean and worst case
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustbench_dec import files, titles
from robustbench_dec.leaderboard import audit
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.leaderboard.worst_case import worst_case
from robustbench_dec.rendering import style
from robustbench_dec.rendering.blocks import column_title
from robustbench_dec.rendering.text import (
    LATEX_NEEDS,
    MARK,
    escape_latex,
    escape_markdown,
    grid,
    latex_notes,
    latex_row,
    latex_table,
)
from robustbench_dec.running.suite import Work
from robustbench_dec.specs.table import Spec
from robustbench_dec.store.results import Results, Run

WORST, CLEAN, NODE = "worst case", "clean", "worst node"
COSTS = {"calls": "calls", "rounds": "rounds", "exchanges": "exchanges", "megabytes": "MB"}
LEARNT = 1.25
"""Times chance: a network with a lower clean accuracy has learnt nothing."""
FLAGGED = (
    f"{MARK} flagged by the audit for at least one seed; see docs/flags.md and reliability_flags in the leaderboard."
)
AXES = {"sfo": "oracle calls per node", "megabytes": "megabytes sent by all nodes"}


@dataclass
class Row:
    """A method on a block: its measures by seed, what it cost, and how its other runs ended."""

    method: str
    title: str
    measures: dict[str, dict[int, float]] = field(default_factory=dict)
    paid: dict[int, dict[str, float]] = field(default_factory=dict)
    flagged: set[str] = field(default_factory=set)
    classes: int = 0
    diverged: dict[int, str] = field(default_factory=dict)
    curves: list[pd.DataFrame] = field(default_factory=list)

    def mean(self, measure: str) -> Mean:
        return Mean.of(self.measures.get(measure, {}).values())

    @property
    def costs(self) -> dict[str, float]:
        """What a run cost, in the mean over seeds; empty where none finished."""
        return {name: fmean(each[name] for each in self.paid.values()) for name in COSTS} if self.paid else {}

    @property
    def at_chance(self) -> list[int]:
        """The seeds whose network has learnt nothing: clean accuracy of less than a quarter above chance."""
        return sorted(seed for seed, clean in self.measures.get(CLEAN, {}).items() if clean * self.classes < LEARNT)

    @property
    def order(self) -> tuple[bool, float, str]:
        """By the worst case, the highest first; what has no number last."""
        worst = self.mean(WORST)
        return not worst.seeds, -worst.mean if worst.seeds else 0.0, self.title

    @property
    def end(self) -> str:
        """What is said of the runs that diverged."""
        if not self.diverged:
            return ""
        seeds = ", ".join(str(seed) for seed in sorted(self.diverged))
        return f"{self.title}, seed {seeds}: {self.diverged[min(self.diverged)].partition(';')[0]}"


Blocks = dict[str, list[Row]]


def render(specification: Spec, work: Sequence[Work], results: Results, stem: Path) -> dict[Path, bytes]:
    """What goes into the files of a table of methods."""
    blocks = collect(work, results)
    columns = [
        WORST,
        CLEAN,
        NODE,
        *dict.fromkeys(name for rows in blocks.values() for row in rows for name in row.measures),
    ]
    columns = list(dict.fromkeys(columns))
    notes = _notes(specification, blocks)
    contents = {
        ".csv": _csv(blocks, columns),
        ".md": _markdown(specification, blocks, columns, notes),
        ".tex": _latex(specification, blocks, columns, notes, stem.name),
    }
    return files.beside(stem, contents) | _curves(blocks, stem) | _heat(blocks, stem)


def method_title(item: Work) -> str:
    """The method's name; the yardstick is trained on another problem."""
    other = ", adversarial training" if item.run.problem_name == "adversarial" else ""
    return f"{titles.method(item.run.method)}{other}"


def collect(work: Sequence[Work], results: Results) -> Blocks:
    """Block by block its rows, sorted; runs that are not made yet are left out."""
    found: dict[str, dict[str, Row]] = {}
    for item in work:
        run, title = results.run(item.run.id), method_title(item)
        if not run.exists and run.divergence is None:
            continue
        row = found.setdefault(item.block.title, {}).setdefault(title, Row(item.run.method, title))
        if run.exists:
            measure(row, item, run)
        else:
            row.diverged[item.run.seed] = str(run.divergence)
    return {block: sorted(rows.values(), key=lambda row: row.order) for block, rows in found.items()}


def divergences(work: Sequence[Work], results: Results, title: Callable[[Work], str] | None = None) -> list[str]:
    """A sentence for each run of a table that diverged and so has no numbers; a row is called by its method."""
    found = []
    for item in work:
        if (why := results.run(item.run.id).divergence) is not None:
            row = title(item) if title else titles.method(item.run.method)
            found.append(f"{item.block.title}, {row}, seed {item.run.seed}: {why.partition(';')[0]}.")
    return found


def measure(row: Row, item: Work, run: Run) -> None:
    """Add a finished run of a row: its accuracies, its costs, its curve."""
    record, seed = run.record, item.run.seed
    assert record.classifier is not None  # the layout is checked before
    measured = {CLEAN: record.classifier.clean.mean_model, NODE: record.classifier.clean.node_min}
    cells = [cell for request in item.cells if (cell := run.cell(request.key).known()) is not None]
    measured |= {column_title(cell.attack, cell.eps): cell.robust_acc for cell in cells}
    for cell, flags in zip(cells, audit.flags([audit.of_cell(record, cell) for cell in cells]), strict=True):
        row.flagged |= {column_title(cell.attack, cell.eps)} if flags else set()
    row.classes = len(record.classifier.classes)
    if len(cells) == len(item.cells) and cells:
        measured[WORST] = worst_case(cells).accuracy
    for name, value in measured.items():
        row.measures.setdefault(name, {})[seed] = value
    ledger = record.ledger
    row.paid[seed] = {
        "calls": ledger.sfo,
        "rounds": ledger.rounds,
        "exchanges": ledger.exchanges + ledger.all_reduces,
        "megabytes": ledger.bytes_payload / 1e6,
    }
    curve = run.curve()
    server = curve["server_bytes"] * ledger.nodes if "server_bytes" in curve else 0
    curve["megabytes"] = (curve["bytes_per_edge"] * ledger.directed_edges + server) / 1e6
    row.curves.append(curve[curve["round"] > 0])


def _notes(specification: Spec, blocks: Blocks) -> list[str]:
    seeds, images = len(specification.seeds), specification.n_examples
    fewer = [block.title for block in specification.blocks if block.seeds is not None and block.title in blocks]
    but = f" ({', '.join(fewer)}: fewer, no deviation where it is one)" if fewer else ""
    notes = [
        f"Test accuracy in percent, mean ± standard deviation over {seeds} seeds{but}; sorted by the worst case: per "
        "image, the worst of the row's attacks. δ is the radius of an attack.",
        f"Attacked: {f'the first {images:,}' if images else 'all'} test images; clean and worst node: all of them.",
        "Calls are oracle calls per node; exchanges count a server's mean as one; MB are sent by all nodes together.",
    ]
    if any(row.flagged for rows in blocks.values() for row in rows):
        notes.append(FLAGGED)
    notes += [f"At chance, with no more to say, {words}." for words in at_chance(blocks)]
    return [*notes, *(f"{block}: {row.end}." for block, rows in blocks.items() for row in rows if row.diverged)]


def at_chance(blocks: Blocks) -> list[str]:
    """The rows of each block with networks that have learnt nothing, and how many of a row's seeds these are."""
    found = {
        block: [f"{row.title} ({len(row.at_chance)} of {len(row.measures[CLEAN])})" for row in rows if row.at_chance]
        for block, rows in blocks.items()
    }
    return [f"{block}: {', '.join(names)}" for block, names in found.items() if names]


def _texts(row: Row, columns: Sequence[str]) -> list[str]:
    if not any(row.measures.values()):
        return ["diverged", *["--"] * (len(columns) - 1 + len(COSTS))]
    return [*accuracies(row, columns), *(f"{row.costs[name]:,.0f}" for name in COSTS)]


def accuracies(row: Row, columns: Sequence[str]) -> list[str]:
    """A row's measures in percent, mean and standard deviation over seeds."""
    texts = []
    for name in columns:
        mean = row.mean(name)
        spread = f" ± {100 * mean.std:.1f}" if mean.seeds > 1 else ""
        mark = MARK if name in row.flagged else ""
        texts.append(f"{100 * round(mean.mean, 6):.1f}{spread}{mark}" if mean.seeds else "--")  # as in the CSV
    return texts


def _csv(blocks: Blocks, columns: Sequence[str]) -> str:
    rows = []
    for block, methods in blocks.items():
        for row in methods:
            costs = [row.costs.get(name) for name in COSTS]
            for name in columns:
                mean = row.mean(name)
                value = (round(mean.mean, 6), round(mean.std, 6)) if mean.seeds else (None, None)
                rows.append((block, row.title, row.method, name, *value, mean.seeds, len(row.diverged), *costs))
    head = ["block", "title", "method", "measure", "mean", "std", "seeds", "diverged", *COSTS]
    return str(pd.DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n"))


def _markdown(specification: Spec, blocks: Blocks, columns: Sequence[str], notes: Sequence[str]) -> str:
    parts = [escape_markdown(specification.caption)]
    head = ["Method", *(escape_markdown(name) for name in columns), *COSTS.values()]
    for block, rows in blocks.items():
        body = [[escape_markdown(row.title), *_texts(row, columns)] for row in rows]
        parts += [f"### {escape_markdown(block)}", grid(head, body)]
    return "\n\n".join([*parts, *(escape_markdown(note) for note in notes)]) + "\n"


def _latex(spec: Spec, blocks: Blocks, columns: Sequence[str], notes: Sequence[str], label: str) -> str:
    lines = [latex_row(["Data", "Method", *(escape_latex(name) for name in columns), *COSTS.values()])]
    for block, rows in blocks.items():
        lines.append(r"\midrule")
        for place, row in enumerate(rows):
            first = block if place == 0 else ""
            lines.append(
                latex_row([first, escape_latex(row.title), *(escape_latex(text) for text in _texts(row, columns))])
            )
    width = len(columns) + len(COSTS)
    table = latex_table(f"ll*{{{width}}}{{r}}", lines, escape_latex(spec.caption), label, [latex_notes(notes)])
    return "\n".join([*LATEX_NEEDS, *table]) + "\n"


def _curves(blocks: Blocks, stem: Path) -> dict[Path, bytes]:
    """One row per block; each measure of the curves against calls and against bytes."""
    rows = [row for methods in blocks.values() for row in methods if row.curves]
    if not rows:
        return {}
    measures = ["clean_acc", *(name for name in rows[0].curves[0].columns if "@" in name)]
    colours = style.colours(dict.fromkeys(row.method for row in rows))
    with style.sheet():
        columns = [(measure, axis) for measure in measures for axis in AXES]
        figure = Figure(figsize=(3.0 * len(columns), 0.9 + 2.3 * len(blocks)), layout="constrained")
        panels = figure.subplots(len(blocks), len(columns), squeeze=False)
        for line, (block, methods) in zip(panels, blocks.items(), strict=True):
            for panel, (measure, axis) in zip(line, columns, strict=True):
                name = CLEAN if measure == "clean_acc" else _at(measure)
                panel.set(title=f"{block}, {name}", xlabel=AXES[axis], ylabel="accuracy (%)", ylim=(0, 100))
                for row in (each for each in methods if each.curves):
                    _line(panel, row, axis, measure, colours[row.method])
        known: dict[str, Artist] = {}
        for panel in panels.flat:
            handles, labels = panel.get_legend_handles_labels()
            known |= dict(zip(labels, handles, strict=True))
        figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=5)
        return {stem.with_name(f"{stem.name}-curves.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _at(measure: str) -> str:
    """The title of a curve's column such as pgd@0.1."""
    attack, _, eps = measure.partition("@")
    return column_title(attack, float(eps))


def _line(panel: Axes, row: Row, axis: str, measure: str, colour: style.Colour) -> None:
    """The mean over seeds, at the points that all of them have."""
    there = [curve for curve in row.curves if measure in curve]
    if not there:
        return
    length = min(len(curve) for curve in there)
    x = np.mean([curve[axis].to_numpy()[:length] for curve in there], axis=0)
    y = 100 * np.mean([curve[measure].to_numpy()[:length] for curve in there], axis=0)
    dash = "--" if row.title != titles.method(row.method) else "-"
    panel.plot(x, y, dash, color=colour, label=row.title)
    if axis == "megabytes":
        panel.set_xscale("log")


def _heat(blocks: Blocks, stem: Path) -> dict[Path, bytes]:
    """Methods x splits, clean and worst case; a cross where every run diverged."""
    names = list(dict.fromkeys(row.title for rows in blocks.values() for row in rows))
    by_name = {block: {row.title: row for row in rows} for block, rows in blocks.items()}

    def value(name: str, block: str, measure: str) -> float:
        row = by_name[block].get(name)
        mean = Mean.of([]) if row is None else row.mean(measure)
        return 100 * mean.mean if mean.seeds else np.nan

    def average(name: str) -> float:
        found = [v for block in blocks if not np.isnan(v := value(name, block, WORST))]
        return sum(found) / len(found) if found else -1.0

    names.sort(key=lambda name: (-average(name), name))
    with style.sheet(grid=False):
        figure = Figure(figsize=(2.4 + 2 * (0.6 + 0.8 * len(blocks)), 1.2 + 0.28 * len(names)), layout="constrained")
        for panel, measure in zip(figure.subplots(1, 2, squeeze=False)[0], (CLEAN, WORST), strict=True):
            values = np.array([[value(name, block, measure) for block in blocks] for name in names])
            panel.imshow(values, cmap="viridis", vmin=0, vmax=100, aspect="auto")
            for i, j in np.ndindex(values.shape):
                number = values[i, j]
                text = "×" if np.isnan(number) else f"{number:.0f}"  # noqa: RUF001
                panel.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if number <= 60 else "k")
            panel.set_title(f"{measure} (%)")
            panel.set_xticks(range(len(blocks)), list(blocks), rotation=30, ha="right")
            panel.set_yticks(range(len(names)), names if measure == CLEAN else [""] * len(names))
            panel.tick_params(length=0)
            panel.spines[:].set_visible(False)
        return {stem.with_name(f"{stem.name}-heat.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

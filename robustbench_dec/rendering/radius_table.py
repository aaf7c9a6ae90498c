"""What the training radius buys, `layout = "radius"`: one row per radius of y in training, from none (the baseline) up.

Columns are those of a table of attacks, and the worst case of all of them, image by image. An entry is the mean over
seeds with the sample standard deviation; the CSV holds fractions. The picture sets robust against clean accuracy, one
line per kind of attack, from the baseline along the radii.

    <stem>.csv, .md, .tex                 the numbers
    <stem>-tradeoff.png, .pdf             the picture
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustbench_dec import files, titles
from robustbench_dec.rendering import style
from robustbench_dec.rendering.blocks import column_title
from robustbench_dec.rendering.methods_table import CLEAN, FLAGGED, NODE, WORST, Row, accuracies, divergences, measure
from robustbench_dec.rendering.text import (
    LATEX_NEEDS,
    escape_latex,
    escape_markdown,
    grid,
    latex_notes,
    latex_row,
    latex_table,
)
from robustbench_dec.running.suite import Work
from robustbench_dec.specs.table import BlockSpec, Spec
from robustbench_dec.store.results import Results

NAME_OFFSET, FAR = 12.0, 0.15
"""Points from a mean to its radius' name; shares of a panel beyond which no other mean is near."""

Rows = dict[float, Row]
"""By training radius; 0 is a method without y."""


def render(specification: Spec, work: Sequence[Work], results: Results, stem: Path) -> dict[Path, bytes]:
    """What goes into the files of a table by training radius."""
    blocks = {block.title: collect(block, work, results) for block in specification.blocks}
    flagged = [FLAGGED] if any(row.flagged for rows in blocks.values() for row in rows.values()) else []
    notes = [*_notes(specification), *flagged, *divergences(work, results, row_title)]
    contents = {
        ".csv": _csv(specification, blocks),
        ".md": _markdown(specification, blocks, notes),
        ".tex": _latex(specification, blocks, notes, stem.name),
    }
    return files.beside(stem, contents) | _tradeoff(specification, blocks, stem)


def training_radius(item: Work) -> float:
    """Of y; 0 where the method has none."""
    return float(item.run.problem["eps"]) if item.run.build_trainer().has_dual else 0.0


def row_title(item: Work) -> str:
    """The method, and the radius of y in training."""
    radius = training_radius(item)
    return titles.method(item.run.method) + (f", ρ = {radius:g}" if radius else "")  # noqa: RUF001


def collect(block: BlockSpec, work: Sequence[Work], results: Results) -> Rows:
    """The rows of a block, from the smallest radius; runs that are not made yet are left out."""
    rows: Rows = {}
    for item in work:
        run = results.run(item.run.id)
        if item.block is block and run.exists:
            measure(rows.setdefault(training_radius(item), Row(item.run.method, row_title(item))), item, run)
    return dict(sorted(rows.items()))


def seeds_of(row: Row) -> str:
    """The seeds that a row rests on: rows of different ones are not comparable as they stand."""
    return ", ".join(str(seed) for seed in sorted(row.measures[CLEAN]))


def middle_columns(block: BlockSpec) -> list[str]:
    """Every attack at its middle radius."""
    return [column_title(attack.label, sorted(attack.eps)[len(attack.eps) // 2]) for attack in block.attacks]


def _columns(block: BlockSpec) -> list[str]:
    return [CLEAN, *(column_title(attack.label, eps) for attack in block.attacks for eps in attack.eps), WORST]


def _notes(specification: Spec) -> list[str]:
    images = specification.n_examples
    seeds = len(specification.seeds)
    spread = f"mean ± standard deviation over up to {seeds} seeds" if seeds > 1 else "one seed"
    return [
        f"Test accuracy in percent, {spread}, on {f'the first {images:,}' if images else 'all'} test images. ρ: radius "  # noqa: RUF001
        "of y in training; δ: radius of the attack. Worst case: per image, the worst of the row's attacks.",
        "Seeds: those that finished; rows of different ones are not comparable as they stand.",
    ]


def _csv(specification: Spec, blocks: dict[str, Rows]) -> str:
    lines = []
    for block in specification.blocks:
        for radius, row in blocks[block.title].items():
            for name in (*_columns(block), NODE):
                mean = row.mean(name)
                value = (round(mean.mean, 6), round(mean.std, 6)) if mean.seeds else (None, None)
                lines.append((block.title, row.method, radius, name, *value, mean.seeds))
    head = ["block", "method", "training_radius", "measure", "mean", "std", "seeds"]
    return str(pd.DataFrame(lines, columns=head).to_csv(index=False, lineterminator="\n"))


def _markdown(specification: Spec, blocks: dict[str, Rows], notes: Sequence[str]) -> str:
    parts = [escape_markdown(specification.caption)]
    for block in specification.blocks:
        columns = _columns(block)
        body = [
            [escape_markdown(row.title), *accuracies(row, columns), seeds_of(row)]
            for row in blocks[block.title].values()
        ]
        head = ["Trained", *(escape_markdown(name) for name in columns), "Seeds"]
        parts += [f"### {escape_markdown(block.title)}", grid(head, body)]
    return "\n\n".join([*parts, *(escape_markdown(note) for note in notes)]) + "\n"


def _latex(specification: Spec, blocks: dict[str, Rows], notes: Sequence[str], label: str) -> str:
    lines: list[str] = []
    for block in specification.blocks:
        columns = _columns(block)
        lines += [r"\midrule"] * bool(lines)
        lines += [latex_row([escape_latex(block.title), *map(escape_latex, columns), "Seeds"]), r"\midrule"]
        for row in blocks[block.title].values():
            lines.append(latex_row(map(escape_latex, [row.title, *accuracies(row, columns), seeds_of(row)])))
    width = 1 + max(len(_columns(block)) for block in specification.blocks)
    caption = escape_latex(specification.caption)
    return (
        "\n".join([*LATEX_NEEDS, *latex_table(f"l*{{{width}}}{{r}}", lines, caption, label, [latex_notes(notes)])])
        + "\n"
    )


def _tradeoff(specification: Spec, blocks: dict[str, Rows], stem: Path) -> dict[Path, bytes]:
    """A panel for each data set: the middle radius of each attack against clean accuracy, means and single seeds."""
    with style.sheet():
        figure = Figure(figsize=(0.6 + 3.6 * len(blocks), 3.7), layout="constrained")
        for panel, block in zip(figure.subplots(1, len(blocks), squeeze=False)[0], specification.blocks, strict=True):
            _panel(panel, block, blocks[block.title])
        note = (
            "Large: means over the seeds that finished; small: single seeds. Numbers: radius of y in training. "
            "Square: the baseline without y."
        )
        figure.supxlabel(note, fontsize=6.5, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}-tradeoff.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _panel(panel: Axes, block: BlockSpec, rows: Rows) -> None:
    columns = middle_columns(block)
    for name, colour in zip(columns, sns.color_palette("colorblind"), strict=False):
        there = [row for row in rows.values() if row.mean(name).seeds]
        x, y = ([100 * row.mean(measure).mean for row in there] for measure in (CLEAN, name))
        panel.plot(x, y, color=colour, linewidth=1, label=name)
        for radius, row in rows.items():
            mark = "o" if radius else "s"
            seeds = [seed for seed in row.measures.get(name, {}) if seed in row.measures[CLEAN]]
            points = [[100 * row.measures[measure][seed] for seed in seeds] for measure in (CLEAN, name)]
            panel.plot(*points, mark, color=colour, markersize=2.5, alpha=0.45, linewidth=0)
            panel.plot(100 * row.mean(CLEAN).mean, 100 * row.mean(name).mean, mark, color=colour, markersize=5)
    panel.margins(x=0.08, y=0.1)
    _name_radii(panel, rows, columns)
    panel.set(title=block.title, xlabel="clean accuracy (%)", ylabel="accuracy under attack (%)")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=len(columns), frameon=False, fontsize=7.5)


def _name_radii(panel: Axes, rows: Rows, columns: Sequence[str]) -> None:
    """One name for the points of a radius, at the highest, on the side that is away from the nearest other one."""
    names, points = [], []
    for radius, row in rows.items():
        heights = [row.mean(name).mean for name in columns if row.mean(name).seeds]
        if heights:
            names.append(f"{radius:g}" if radius else titles.method(row.method))
            points.append((100 * row.mean(CLEAN).mean, 100 * max(heights)))
    spans = np.array([panel.get_xlim()[1] - panel.get_xlim()[0], panel.get_ylim()[1] - panel.get_ylim()[0]])
    places = np.array(points).reshape(-1, 2) / spans
    for name, point, place in zip(names, points, places, strict=True):
        others = [place - other for other in places if (other != place).any()]
        away = min(others, key=lambda gap: float(np.hypot(*gap)), default=np.array([0.0, 1.0]))
        if np.hypot(*away) > FAR:
            away = np.array([0.0, 1.0])
        offset = NAME_OFFSET * away / np.hypot(*away)
        panel.annotate(
            name, point, tuple(offset), textcoords="offset points", fontsize=7, color="0.2", ha="center", va="center"
        )

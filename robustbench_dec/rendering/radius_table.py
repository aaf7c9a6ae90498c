"""What the training radius buys, `layout = "radius"`: one row per radius of y in training, from none (the baseline) up.

Columns are those of a table of attacks, and the worst case of all of them, image by image. An entry is the mean over
seeds with the sample standard deviation; the CSV holds fractions. The picture sets robust against clean accuracy, one
line per kind of attack, from the baseline along the radii.

    <stem>.csv, .md, .tex                 the numbers
    <stem>-tradeoff.png, .pdf             the picture
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from robustbench_dec import files, titles
from robustbench_dec.rendering import style
from robustbench_dec.rendering.blocks import column_title
from robustbench_dec.rendering.methods_table import CLEAN, NODE, WORST, Row, accuracies, divergences, measure
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

Rows = dict[float, Row]
"""By training radius; 0 is a method without y."""


def render(specification: Spec, work: Sequence[Work], results: Results, stem: Path) -> dict[Path, bytes]:
    """What goes into the files of a table by training radius."""
    blocks = {block.title: collect(block, work, results) for block in specification.blocks}
    notes = [*_notes(specification), *divergences(work, results, row_title)]
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


def _columns(block: BlockSpec) -> list[str]:
    return [CLEAN, *(column_title(attack.label, eps) for attack in block.attacks for eps in attack.eps), WORST]


def _notes(specification: Spec) -> list[str]:
    images = specification.n_examples
    seeds = len(specification.seeds)
    spread = f"mean ± standard deviation over up to {seeds} seeds" if seeds > 1 else "one seed"
    return [
        f"Test accuracy in percent, {spread}, on {f'the first {images:,}' if images else 'all'} test images. ρ: radius "  # noqa: RUF001
        "of y in training; δ: radius of the attack. Worst case: per image, the worst of the row's attacks.",
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
            [escape_markdown(row.title), *accuracies(row, columns), str(row.mean(CLEAN).seeds)]
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
            seeds = str(row.mean(CLEAN).seeds)
            lines.append(latex_row(map(escape_latex, [row.title, *accuracies(row, columns), seeds])))
    width = 1 + max(len(_columns(block)) for block in specification.blocks)
    caption = escape_latex(specification.caption)
    return (
        "\n".join([*LATEX_NEEDS, *latex_table(f"l*{{{width}}}{{r}}", lines, caption, label, [latex_notes(notes)])])
        + "\n"
    )


def _tradeoff(specification: Spec, blocks: dict[str, Rows], stem: Path) -> dict[Path, bytes]:
    """A panel for each data set: the middle radius of each attack against clean accuracy, mean over seeds."""
    with style.sheet():
        figure = Figure(figsize=(0.6 + 3.6 * len(blocks), 3.4), layout="constrained")
        for panel, block in zip(figure.subplots(1, len(blocks), squeeze=False)[0], specification.blocks, strict=True):
            rows = blocks[block.title]
            for attack, colour in zip(block.attacks, sns.color_palette("colorblind"), strict=False):
                middle = column_title(attack.label, sorted(attack.eps)[len(attack.eps) // 2])
                there = {radius: row for radius, row in rows.items() if row.mean(middle).seeds}
                x = [100 * row.mean(CLEAN).mean for row in there.values()]
                y = [100 * row.mean(middle).mean for row in there.values()]
                panel.plot(x, y, color=colour, marker="o", markersize=3.5, linewidth=1, label=middle)
                for radius, clean, robust in zip(there, x, y, strict=True):
                    name = f"{radius:g}" if radius else titles.method(there[radius].method)
                    panel.annotate(name, (clean, robust), (3, 3), textcoords="offset points", fontsize=6, color="0.3")
                if 0.0 in there:
                    panel.plot(x[0], y[0], marker="s", markersize=6, color=colour)
            panel.set(title=block.title, xlabel="clean accuracy (%)", ylabel="accuracy under attack (%)")
            panel.legend(loc="best")
        note = "Numbers beside the points: radius of y in training. Square: the baseline without y. Means over seeds."
        figure.supxlabel(note, fontsize=6.5, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}-tradeoff.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

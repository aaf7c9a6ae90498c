"""Table: leaderboard rows rendered like Table 2 of the Dec-FedTrack paper, one block per data set with its own radii.

A column is an attack and its radius, a row is a method, an entry is the mean over seeds with the sample standard
deviation (ddof = 1). CSV holds fractions; Markdown and LaTeX show percent.
"""

import itertools
from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.rendering import against_paper, verdicts
from robustbench_dec.rendering.blocks import (
    Block,
    Key,
    Seeds,
    audit_markdown,
    collect,
    column_title,
    findings_of,
    percent_text,
    rows_of,
)
from robustbench_dec.rendering.text import (
    LATEX,
    LATEX_NEEDS,
    MARK,
    escape_latex,
    escape_markdown,
    grid,
    latex_notes,
    latex_row,
    latex_table,
)


def render(
    frame: pd.DataFrame,
    blocks: Sequence[Block],
    stem: Path,
    caption: str,
    paper: against_paper.Paper | None,
    margins: verdicts.Columns | None = None,
    diverged: Sequence[str] = (),
) -> dict[Path, bytes]:
    """What goes into <stem>.csv, .md, .tex and, where the paper's numbers are given, <stem>-vs-paper.md (under a
    protocol .csv too).

    `frame` holds this table's leaderboard rows, one per data set, method, attack, eps and seed. `paper` maps data set
    -> method -> column -> percent, a column being "clean" or like "fgsm@0.05". Titles and caption are plain text.
    A table under a protocol has `margins`: a number is bold only where its lead is more than chance. `diverged` has a
    sentence for each run without numbers.
    """
    cells = collect(frame, blocks)
    entries = {key: Mean.of(cells[key].values()) for key in cells}
    marked = _marked(frame, blocks, entries)
    notes = _notes(frame, blocks, cells, BEST_MEAN if margins is None else MORE_THAN_CHANCE)
    notes += diverged
    bold = _best(blocks, entries, margins)
    if marked:
        notes.append(f"{MARK} flagged by the audit; see docs/flags.md and reliability_flags in the leaderboard.")
    contents = {
        ".csv": _csv(entries),
        ".md": _markdown(blocks, entries, caption, notes, marked, bold),
        ".tex": _latex(blocks, entries, caption, stem.name, notes, marked, bold),
    }
    if paper is not None:
        percent = against_paper.percent_of(paper)
        contents["-vs-paper.md"] = against_paper.markdown(blocks, cells, percent, caption, margins)
        if margins is not None:
            contents["-vs-paper.csv"] = against_paper.csv(blocks, cells, percent, margins)
    return files.beside(stem, contents)


def _marked(frame: pd.DataFrame, blocks: Sequence[Block], entries: Mapping[Key, Mean]) -> frozenset[Key]:
    """The entries whose mean is flagged, or the cell of one of whose seeds."""
    percent = {key: 100 * entry.mean for key, entry in entries.items() if entry.seeds}
    marked = {key for key, _ in findings_of(blocks, percent)}
    if "reliability_flags" in frame:
        flagged = frame[frame["reliability_flags"] != ""]
        marked |= {(row.dataset, row.method, row.attack, round(row.eps, 9)) for row in flagged.itertuples()}
    return frozenset(marked & entries.keys())


def _csv(entries: Mapping[Key, Mean]) -> str:
    # Six decimals are finer than one image in 100,000 and hide how a sum was rounded.
    rows = [(*key, round(entry.mean, 6), round(entry.std, 6), entry.seeds) for key, entry in entries.items()]
    names = ["dataset", "method", "attack", "eps", "mean", "std", "seeds"]
    return str(pd.DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n"))


BEST_MEAN = "the best mean of each column is bold"
MORE_THAN_CHANCE = "a number is bold where the 95 % interval of its lead, over seeds and images, excludes 0"


def _best(blocks: Sequence[Block], entries: Mapping[Key, Mean], margins: verdicts.Columns | None) -> frozenset[Key]:
    """The entries that are bold."""
    best = set()
    for block, method in rows_of(blocks):
        for column in block.all_columns:
            key = block.key(method, column)
            if margins is not None:
                leads = verdicts.ahead(block, margins, method, column)
            else:
                means = [entries[block.key(rival, column)].mean for rival in block.methods]
                rivals = [mean for mean in means if not isnan(mean)]
                # Best means better than someone; equal means share the honour.
                leads = len(rivals) > 1 and entries[key].seeds > 0 and entries[key].mean >= max(rivals) - 1e-12
            if leads:
                best.add(key)
    return frozenset(best)


def _notes(frame: pd.DataFrame, blocks: Sequence[Block], cells: Mapping[Key, Seeds], bold: str) -> list[str]:
    seeds = len({seed for values in cells.values() for seed in values})
    missing = sum(not values for values in cells.values())
    partial = sum(0 < len(values) < seeds for values in cells.values())
    most = f"up to {seeds}" if partial else str(seeds)
    what = f"mean ± standard deviation over {most} seeds" if seeds > 1 else "one seed"
    notes = [f"Test accuracy in percent, {what}; {bold}. δ is the radius of the attack."]
    used = frame[frame["dataset"].isin([block.dataset for block in blocks])]
    sizes = used.groupby("dataset")["n_examples"].max()
    images = [f"{b.title} {sizes[b.dataset]:,}" for b in blocks if b.dataset in sizes]
    if images:
        notes.append(f"Test images: {', '.join(images)}.")
    if missing:
        notes.append(f"{missing} of {len(cells)} entries are missing and shown as --.")
    if partial:
        notes.append(f"{partial} of {len(cells)} entries rest on fewer than {seeds} seeds.")
    return notes


def _markdown(
    blocks: Sequence[Block],
    entries: Mapping[Key, Mean],
    caption: str,
    notes: Sequence[str],
    marked: frozenset[Key],
    best: frozenset[Key],
) -> str:
    parts = [escape_markdown(caption)]
    for block in blocks:
        head = ["Method", *(escape_markdown(column_title(*column)) for column in block.all_columns)]
        body = [
            [
                escape_markdown(titles.method(method)),
                *_row(block, entries, method, marked, best, ("**{}**", " ± {}", MARK)),
            ]
            for method in block.methods
        ]
        parts += [f"### {escape_markdown(block.title)}", grid(head, body)]
    parts += [escape_markdown(note) for note in notes]
    percent = {key: 100 * entry.mean for key, entry in entries.items() if entry.seeds}
    return "\n\n".join([*parts, audit_markdown("Audit", blocks, percent)]) + "\n"


def _latex(
    blocks: Sequence[Block],
    entries: Mapping[Key, Mean],
    caption: str,
    label: str,
    notes: Sequence[str],
    marked: frozenset[Key],
    best: frozenset[Key],
) -> str:
    width = max(len(block.columns) for block in blocks)
    lines: list[str] = []
    heading: list[tuple[str, int]] = []
    for block in blocks:
        groups = [(attack, len(list(group))) for attack, group in itertools.groupby(block.columns, key=lambda c: c[0])]
        padding = [""] * (width - len(block.columns))
        if block is not blocks[0]:
            lines.append(r"\midrule")
        if groups != heading:  # said again only where a block has other attacks than the one above it
            spans = [
                rf"\multicolumn{{{size}}}{{c}}{{{escape_latex(titles.attack(attack))}}}" for attack, size in groups
            ]
            lines.append(latex_row(["Data set", "Method", "Clean", *spans, *padding]))
            ends = list(itertools.accumulate((size for _, size in groups), initial=3))
            lines.append(" ".join(rf"\cmidrule(lr){{{a + 1}-{b}}}" for a, b in itertools.pairwise(ends)))
            heading = groups
        lines.append(latex_row(["", "", "", *(rf"$\delta={eps:g}$" for _, eps in block.columns), *padding]))
        lines.append(r"\midrule")
        for method in block.methods:
            title = escape_latex(block.title) if method == block.methods[0] else ""
            styles = (r"\textbf{{{}}}", r" {{\scriptsize$\pm$\,{}}}", LATEX[MARK])
            values = _row(block, entries, method, marked, best, styles)
            lines.append(latex_row([title, escape_latex(titles.method(method)), *values, *padding]))
    table = latex_table(rf"ll*{{{1 + width}}}{{c}}", lines, escape_latex(caption), label, [latex_notes(notes)])
    return "\n".join([*LATEX_NEEDS, *table]) + "\n"


def _row(
    block: Block,
    entries: Mapping[Key, Mean],
    method: str,
    marked: frozenset[Key],
    best: frozenset[Key],
    styles: tuple[str, str, str],
) -> list[str]:
    bold, spread, mark = styles
    texts = []
    for column in block.all_columns:
        entry = entries[block.key(method, column)]
        text = percent_text(Mean(100 * entry.mean, nan, entry.seeds), block.decimals)
        text = bold.format(text) if block.key(method, column) in best else text
        deviation = spread.format(f"{100 * entry.std:.{block.decimals}f}") if entry.seeds > 1 else ""
        texts.append(text + deviation + (mark if block.key(method, column) in marked else ""))
    return texts

"""Table: leaderboard rows rendered like Table 2 of the Dec-FedTrack paper, one block per data set with its own radii.

A column is an attack and its radius, a row is a method, an entry is the mean over seeds with the sample standard
deviation (ddof = 1). CSV holds fractions; Markdown and LaTeX show percent.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit as audits

CLEAN = (titles.CLEAN, 0.0)
MARK = "†"  # an entry that the audit flags
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MARK: r"$^\dagger$",
    "δ": r"$\delta$",
    "≤": r"$\le$",
    "∞": r"$\infty$",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
}

LATEX_NEEDS = (
    "% Needs booktabs; where graphicx is loaded too, the table is scaled to the width of the text.",
    r"\providecommand{\resizebox}[3]{{\scriptsize\setlength{\tabcolsep}{2pt}#3}}",
)
Key = tuple[str, str, str, float]  # data set, method, attack, eps
Seeds = dict[int, float]  # seed -> accuracy, a fraction


@dataclass(frozen=True)
class Block:
    """One data set's part of the table; its first column, clean accuracy, goes without saying."""

    title: str
    dataset: str
    methods: tuple[str, ...]  # rows from top to bottom, by file name; the last one is compared with the first
    columns: tuple[tuple[str, float], ...]  # (attack, eps) from left to right
    decimals: int = 1
    classes: int | None = None
    universal: frozenset[str] = frozenset()  # those of its attacks that use one perturbation for all images

    @property
    def all_columns(self) -> tuple[tuple[str, float], ...]:
        """Clean accuracy, then the attacked columns; radii are rounded so that 3 * 0.1 is 0.3."""
        return (CLEAN, *((attack, round(eps, 9)) for attack, eps in self.columns))

    def key(self, method: str, column: tuple[str, float]) -> Key:
        return (self.dataset, method, *column)


class Entry(NamedTuple):
    """Mean and standard deviation of some seeds, in the unit of what it was made from."""

    mean: float = nan  # where no seed has been measured
    std: float = nan  # below two seeds
    seeds: int = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> "Entry":
        array = np.array(list(values))
        if not array.size:
            return cls()
        return cls(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else nan, array.size)


def render(
    frame: pd.DataFrame, blocks: Sequence[Block], stem: Path, caption: str, paper: Mapping[str, Any] | None
) -> dict[Path, bytes]:
    """What goes into <stem>.csv, .md, .tex and, where the paper's numbers are given, <stem>-vs-paper.md.

    `frame` holds this table's leaderboard rows, one per data set, method, attack, eps and seed. `paper` maps data set
    -> method -> column -> percent, a column being "clean" or like "fgsm@0.05". Titles and caption are plain text.
    """
    cells = _collect(frame, blocks)
    entries = {key: Entry.of(cells[key].values()) for key in cells}
    marked = _marked(frame, blocks, entries)
    notes = _notes(frame, blocks, cells)
    if marked:
        notes.append(f"{MARK} flagged by the audit; see docs/flags.md and reliability_flags in the leaderboard.")
    contents = {
        ".csv": _csv(entries),
        ".md": _markdown(blocks, entries, caption, notes, marked),
        ".tex": _latex(blocks, entries, caption, stem.name, notes, marked),
    }
    if paper is not None:
        contents["-vs-paper.md"] = _against_paper(blocks, cells, paper_percent(paper), caption)
    return files.beside(stem, contents)


def audit(blocks: Sequence[Block], percent: Mapping[Key, float]) -> list[str]:
    """One sentence for each entry that a sound attack does not give (see audit.py); missing entries are not judged."""
    return [sentence for _, sentence in _findings(blocks, percent)]


def _findings(blocks: Sequence[Block], percent: Mapping[Key, float]) -> list[tuple[Key, str]]:
    findings = []
    for block, method in _rows(blocks):
        clean = percent.get(block.key(method, CLEAN), nan)
        points = {
            audits.Point(
                model=method,
                attack=attack,
                eps=eps,
                accuracy=percent[key] / 100,
                clean=None if isnan(clean) else clean / 100,
                universal=attack in block.universal,
                classes=block.classes,
            ): key
            for attack, eps in block.all_columns[1:]
            if (key := block.key(method, (attack, eps))) in percent
        }
        for finding in audits.findings(list(points)):
            point, other = finding.point, finding.other
            column = _column(point.attack, point.eps)
            where = f"{block.title}, {titles.method(method)}, {column}: {100 * point.accuracy:.2f}"
            than = _column(*CLEAN) if other is None else _column(other.attack, other.eps)
            limit = 100 * (finding.limit or 0)
            below = finding.flag == "below_chance"
            what = f"below {limit:.2f}, one class for all images" if below else f"above {limit:.2f} at {than}"
            findings.append((points[point], f"{where} is {what}"))
    return findings


def _marked(frame: pd.DataFrame, blocks: Sequence[Block], entries: Mapping[Key, Entry]) -> frozenset[Key]:
    """The entries whose mean is flagged, or the cell of one of whose seeds."""
    percent = {key: 100 * entry.mean for key, entry in entries.items() if entry.seeds}
    marked = {key for key, _ in _findings(blocks, percent)}
    if "reliability_flags" in frame:
        flagged = frame[frame["reliability_flags"] != ""]
        marked |= {(row.dataset, row.method, row.attack, round(row.eps, 9)) for row in flagged.itertuples()}
    return frozenset(marked & entries.keys())


def _collect(frame: pd.DataFrame, blocks: Sequence[Block]) -> dict[Key, Seeds]:
    """Accuracy by seed for every entry of the table, in its order; {} where nothing has been measured."""
    cells: dict[Key, Seeds] = {b.key(method, column): {} for b, method in _rows(blocks) for column in b.all_columns}
    sizes: dict[str, set[int]] = defaultdict(set)
    for row in frame.itertuples():
        key = (row.dataset, row.method, row.attack, round(row.eps, 9))
        if key not in cells:
            continue
        cell, clean = (
            f"{row.attack} at eps {row.eps:g} on {row.dataset}, {row.method}, seed {row.seed}",
            key[:2] + CLEAN,
        )
        if row.seed in cells[key]:
            raise BadInput(f"the table needs one cell for {cell}, but there are several; pass the rows of one setting")
        cells[key][row.seed] = row.robust_acc
        # Cells of one model repeat its clean accuracy, up to a near-tie that batching decides.
        if abs(cells[clean].setdefault(row.seed, row.clean_acc) - row.clean_acc) > 1e-3:
            raise BadInput(
                f"clean_acc of {cell} differs from that of its neighbours; pass the rows of one run per seed"
            )
        sizes[row.dataset].add(row.n_examples)
    for dataset, counts in sizes.items():
        if len(counts) > 1:
            raise BadInput(
                f"cells on {dataset} should use the same test images, but use {sorted(counts)} of them; pass one size"
            )
    return cells


def _csv(entries: Mapping[Key, Entry]) -> str:
    # Six decimals are finer than one image in 100,000 and hide how a sum was rounded.
    rows = [(*key, round(entry.mean, 6), round(entry.std, 6), entry.seeds) for key, entry in entries.items()]
    names = ["dataset", "method", "attack", "eps", "mean", "std", "seeds"]
    return str(pd.DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n"))


def _notes(frame: pd.DataFrame, blocks: Sequence[Block], cells: Mapping[Key, Seeds]) -> list[str]:
    seeds = len({seed for values in cells.values() for seed in values})
    missing = sum(not values for values in cells.values())
    partial = sum(0 < len(values) < seeds for values in cells.values())
    what = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    notes = [f"Test accuracy in percent, {what}; the best mean of each column is bold. δ is the radius of the attack."]
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
    entries: Mapping[Key, Entry],
    caption: str,
    notes: Sequence[str],
    marked: frozenset[Key],
) -> str:
    parts = [escape_markdown(caption)]
    for block in blocks:
        head = ["Method", *(escape_markdown(_column(*column)) for column in block.all_columns)]
        body = [
            [escape_markdown(titles.method(method)), *_row(block, entries, method, marked, ("**{}**", " ± {}", MARK))]
            for method in block.methods
        ]
        parts += [f"### {escape_markdown(block.title)}", grid(head, body)]
    parts += [escape_markdown(note) for note in notes]
    percent = {key: 100 * entry.mean for key, entry in entries.items() if entry.seeds}
    return "\n\n".join([*parts, _audit_markdown("Audit", blocks, audit(blocks, percent))]) + "\n"


def _latex(
    blocks: Sequence[Block],
    entries: Mapping[Key, Entry],
    caption: str,
    label: str,
    notes: Sequence[str],
    marked: frozenset[Key],
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
            values = _row(block, entries, method, marked, styles)
            lines.append(latex_row([title, escape_latex(titles.method(method)), *values, *padding]))
    table = latex_table(rf"ll*{{{1 + width}}}{{c}}", lines, escape_latex(caption), label, [latex_notes(notes)])
    return "\n".join([*LATEX_NEEDS, *table]) + "\n"


def _against_paper(
    blocks: Sequence[Block], cells: Mapping[Key, Seeds], paper: Mapping[Key, float], caption: str
) -> str:
    ours = {key: Entry.of(100 * accuracy for accuracy in seeds.values()) for key, seeds in cells.items()}
    parts = ["# Ours against the paper", escape_markdown(caption), "Percent; differences and margins in points."]
    verdicts: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)  # (last, first) -> (here, there)
    for block in blocks:
        parts += [f"## {escape_markdown(block.title)}", _differences(block, ours, paper)]
        if len(block.methods) > 1:
            margins = _margins(block, cells, paper)
            parts.append(_margin_grid(block, margins))
            attacked = [(_verdict(here.mean), _verdict(there)) for c, (here, there) in margins.items() if c != CLEAN]
            verdicts[block.methods[-1], block.methods[0]] += attacked
    parts += ["Margins are paired by seed: mean ± standard deviation of the difference.", "## Summary"]
    for (last, first), pairs in verdicts.items():
        counts = [Counter(pair[place] for pair in pairs) for place in (0, 1)]  # here, there
        here, there = (f"{count['yes']} of {count['yes'] + count['no']}" for count in counts)
        winner, loser = escape_markdown(titles.method(last)), escape_markdown(titles.method(first))
        parts.append(f"{winner} wins {here} attacked columns here, {there} in the paper (against {loser}).")
    percent = {key: entry.mean for key, entry in ours.items() if entry.seeds}
    parts.append(_audit_markdown("Audit of ours", blocks, audit(blocks, percent)))
    parts.append(_audit_markdown("Audit of the paper's numbers", blocks, audit(blocks, paper)))
    return "\n\n".join(parts) + "\n"


def _differences(block: Block, ours: Mapping[Key, Entry], paper: Mapping[Key, float]) -> str:
    """Paper, ours and ours - paper, for every column and method."""
    names = [escape_markdown(titles.method(method)) for method in block.methods]
    body = []
    for column in block.all_columns:
        row = [escape_markdown(_column(*column))]
        for key in (block.key(method, column) for method in block.methods):
            there = paper.get(key, nan)
            # The paper's numbers keep the digits they were printed with.
            row += ["--" if isnan(there) else f"{there:g}", _percent(ours[key], 2), _signed(ours[key].mean - there)]
        body.append(row)
    return grid(["Column", *(f"{name}, {what}" for name in names for what in ("paper", "ours", "difference"))], body)


def _margins(
    block: Block, cells: Mapping[Key, Seeds], paper: Mapping[Key, float]
) -> dict[tuple[str, float], tuple[Entry, float]]:
    """By how many points the last method is above the first one: here (seed by seed) and in the paper."""
    margins = {}
    for column in block.all_columns:
        last, first = block.key(block.methods[-1], column), block.key(block.methods[0], column)
        # Paired, because a seed fixes split, batches and starting point for both.
        both = sorted(cells[last].keys() & cells[first].keys())
        here = Entry.of(100 * (cells[last][seed] - cells[first][seed]) for seed in both)
        margins[column] = (here, paper.get(last, nan) - paper.get(first, nan))
    return margins


def _margin_grid(block: Block, margins: Mapping[tuple[str, float], tuple[Entry, float]]) -> str:
    body = []
    for column, (here, there) in margins.items():
        verdicts = (_verdict(there), _verdict(here.mean))
        same = "--" if "--" in verdicts else "yes" if verdicts[0] == verdicts[1] else "**no**"
        body.append([escape_markdown(_column(*column)), _signed(there), _percent(here, 2, "+"), *verdicts, same])
    last, first = (escape_markdown(titles.method(block.methods[place])) for place in (-1, 0))
    return grid(["Column", "Margin, paper", "Margin, ours", f"{last} beats {first}, paper", "ours", "Same"], body)


def paper_percent(paper: Mapping[str, Any]) -> dict[Key, float]:
    """The paper's numbers by data set, method, attack and eps."""
    percent: dict[Key, float] = {}
    for dataset, methods in paper.items():
        for method, numbers in methods.items():
            for column, value in numbers.items():
                match = re.fullmatch(r"(?P<attack>[^@]+)@(?P<eps>[0-9.eE+-]+)", column)
                if column != "clean" and match is None:
                    raise BadInput(f"a column of the paper should be 'clean' or like 'fgsm@0.05', not '{column}'")
                attack, eps = (match["attack"], round(float(match["eps"]), 9)) if match else CLEAN
                percent[dataset, method, attack, eps] = float(value)
    return percent


def _rows(blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    return [(block, method) for block in blocks for method in block.methods]


def _row(
    block: Block, entries: Mapping[Key, Entry], method: str, marked: frozenset[Key], styles: tuple[str, str, str]
) -> list[str]:
    bold, spread, mark = styles
    texts = []
    for column in block.all_columns:
        means = [entries[block.key(rival, column)].mean for rival in block.methods]
        rivals = [mean for mean in means if not isnan(mean)]
        entry = entries[block.key(method, column)]
        # Best means better than someone; equal means share the honour.
        best = len(rivals) > 1 and entry.seeds > 0 and entry.mean >= max(rivals) - 1e-12
        text = _percent(Entry(100 * entry.mean, nan, entry.seeds), block.decimals)
        text = bold.format(text) if best else text
        deviation = spread.format(f"{100 * entry.std:.{block.decimals}f}") if entry.seeds > 1 else ""
        texts.append(text + deviation + (mark if block.key(method, column) in marked else ""))
    return texts


def _percent(entry: Entry, decimals: int, sign: str = "") -> str:
    if not entry.seeds:
        return "--"
    deviation = "" if isnan(entry.std) else f" ± {entry.std:.{decimals}f}"
    return f"{entry.mean:{sign}.{decimals}f}{deviation}"


def _verdict(margin: float) -> str:
    return "--" if isnan(margin) else "yes" if margin > 0 else "no"


def _signed(points: float) -> str:
    return "--" if isnan(points) else f"{points:+.2f}"


def _audit_markdown(title: str, blocks: Sequence[Block], findings: Sequence[str]) -> str:
    columns = dict.fromkeys(name for block in blocks for name, _ in block.columns if name not in block.universal)
    points = [audits.Point("", name, 0.0, 0.0) for name in columns]
    iterated, one_step = (
        " and ".join(titles.attack(point.attack) for point in points if getattr(point, kind))
        for kind in ("iterated", "one_step")
    )
    steps = f"; {iterated} leaves at most {audits.TOLERANCE:g} points more than {one_step}"
    rule = f"{title} (accuracy does not rise with δ{steps if iterated and one_step else ''})"
    if not findings:
        return f"{rule}: nothing found."
    return f"{rule}: {len(findings)} found.\n\n" + "\n".join(f"- {escape_markdown(finding)}" for finding in findings)


def _column(attack: str, eps: float) -> str:
    return titles.attack(attack) if (attack, eps) == CLEAN else f"{titles.attack(attack)} δ={eps:g}"


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table: names to the left, numbers to the right."""
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def latex_table(
    columns: str, rows: Sequence[str], caption: str, label: str | None = None, foot: Sequence[str] = ()
) -> list[str]:
    """The lines of a table over both columns of a page, all in LaTeX already; rows come with their inner rules."""
    return [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        *([rf"\label{{tab:{label}}}"] if label else []),
        r"\par\smallskip",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}%",
        "}",
        r"\par\smallskip",
        *foot,
        r"\end{table*}",
    ]


def latex_notes(notes: Iterable[str]) -> str:
    return rf"{{\footnotesize {escape_latex(' '.join(notes))}}}"


def latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)

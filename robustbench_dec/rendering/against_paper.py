"""Ours against the paper: differences column by column, and whether the last method beats the first here and there."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import get_args

import pandas as pd

from robustbench_dec import titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.rendering import verdicts
from robustbench_dec.rendering.blocks import CLEAN, Block, Key, Seeds, audit_markdown, column_title, percent_text
from robustbench_dec.rendering.text import escape_markdown, grid

TESTED = (
    "All columns of a data set are tested together: exact sign flips over the seeds, step-down max-T (Westfall and "
    "Young), two-sided. Intervals are by a paired bootstrap over seeds and images. Reproduced: the paper's sign, p "
    "below .05, an interval without 0; not reproduced: the other sign, likewise; undecided: all else."
)

Paper = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Percent by data set, method and column, a column being "clean" or like "fgsm@0.05"."""


def markdown(
    blocks: Sequence[Block],
    cells: Mapping[Key, Seeds],
    paper: Mapping[Key, float],
    caption: str,
    judged: verdicts.Columns | None = None,
) -> str:
    """All of it; `judged` has the margins of a table under a protocol, with their intervals and corrected p-values."""
    ours = {key: Mean.of(100 * accuracy for accuracy in seeds.values()) for key, seeds in cells.items()}
    parts = ["# Ours against the paper", escape_markdown(caption), "Percent; differences and margins in points."]
    verdicts: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)  # (last, first) -> (here, there)
    for block in blocks:
        parts += [f"## {escape_markdown(block.title)}", _differences(block, ours, paper)]
        if len(block.methods) > 1:
            margins = _margins(block, cells, paper)
            parts.append(_margin_grid(block, margins) if judged is None else _judged_grid(block, margins, judged))
            attacked = [(_verdict(here.mean), _verdict(there)) for c, (here, there) in margins.items() if c != CLEAN]
            verdicts[block.methods[-1], block.methods[0]] += attacked
    parts += ["Margins are paired by seed: mean ± standard deviation of the difference.", "## Summary"]
    if judged is not None:
        parts += [TESTED, _counted(blocks, cells, paper, judged)]
    for (last, first), pairs in verdicts.items():
        counts = [Counter(pair[place] for pair in pairs) for place in (0, 1)]  # here, there
        here, there = (f"{count['yes']} of {count['yes'] + count['no']}" for count in counts)
        winner, loser = escape_markdown(titles.method(last)), escape_markdown(titles.method(first))
        parts.append(f"{winner} wins {here} attacked columns here, {there} in the paper (against {loser}).")
    percent = {key: entry.mean for key, entry in ours.items() if entry.seeds}
    parts.append(audit_markdown("Audit of ours", blocks, percent))
    parts.append(audit_markdown("Audit of the paper's numbers", blocks, paper))
    return "\n\n".join(parts) + "\n"


def _differences(block: Block, ours: Mapping[Key, Mean], paper: Mapping[Key, float]) -> str:
    """Paper, ours and ours - paper, for every column and method."""
    names = [escape_markdown(titles.method(method)) for method in block.methods]
    body = []
    for column in block.all_columns:
        row = [escape_markdown(column_title(*column))]
        for key in (block.key(method, column) for method in block.methods):
            there = paper.get(key, nan)
            # The paper's numbers keep the digits they were printed with.
            row += ["--" if isnan(there) else f"{there:g}", percent_text(ours[key], 2), _signed(ours[key].mean - there)]
        body.append(row)
    return grid(["Column", *(f"{name}, {what}" for name in names for what in ("paper", "ours", "difference"))], body)


def _margins(
    block: Block, cells: Mapping[Key, Seeds], paper: Mapping[Key, float]
) -> dict[tuple[str, float], tuple[Mean, float]]:
    """By how many points the last method is above the first one: here (seed by seed) and in the paper."""
    margins = {}
    for column in block.all_columns:
        last, first = block.key(block.methods[-1], column), block.key(block.methods[0], column)
        # Paired, because a seed fixes split, batches and starting point for both.
        both = sorted(cells[last].keys() & cells[first].keys())
        here = Mean.of(100 * (cells[last][seed] - cells[first][seed]) for seed in both)
        margins[column] = (here, paper.get(last, nan) - paper.get(first, nan))
    return margins


def _margin_grid(block: Block, margins: Mapping[tuple[str, float], tuple[Mean, float]]) -> str:
    body = []
    for column, (here, there) in margins.items():
        verdicts = (_verdict(there), _verdict(here.mean))
        same = "--" if "--" in verdicts else "yes" if verdicts[0] == verdicts[1] else "**no**"
        body.append(
            [escape_markdown(column_title(*column)), _signed(there), percent_text(here, 2, "+"), *verdicts, same]
        )
    last, first = (escape_markdown(titles.method(block.methods[place])) for place in (-1, 0))
    return grid(["Column", "Margin, paper", "Margin, ours", f"{last} beats {first}, paper", "ours", "Same"], body)


def _judged_grid(
    block: Block, margins: Mapping[tuple[str, float], tuple[Mean, float]], judged: verdicts.Columns
) -> str:
    body = []
    for column, (here, there) in margins.items():
        margin = judged.get((block.dataset, *column))
        row = [escape_markdown(column_title(*column)), _signed(there), percent_text(here, 2, "+")]
        if margin is None:
            row += ["--", "--"]
        else:
            row += [f"{100 * margin.low:+.2f} to {100 * margin.high:+.2f}", f"{margin.p:.3f}"]
        body.append([*row, verdicts.verdict(margin, there)])
    return grid(["Column", "Margin, paper", "Margin, ours", "95 % interval", "corrected p", "Verdict"], body)


def _counted(
    blocks: Sequence[Block], cells: Mapping[Key, Seeds], paper: Mapping[Key, float], judged: verdicts.Columns
) -> str:
    """How many attacked columns are reproduced, not reproduced, undecided."""
    found = Counter[str]()
    for block in blocks:
        for column, (_, there) in _margins(block, cells, paper).items():
            if column != CLEAN and not isnan(there):
                found[verdicts.verdict(judged.get((block.dataset, *column)), there)] += 1
    kinds = get_args(verdicts.Verdict)
    return f"Of {found.total()} attacked columns: " + ", ".join(f"{found[kind]} {kind}" for kind in kinds) + "."


def csv(
    blocks: Sequence[Block], cells: Mapping[Key, Seeds], paper: Mapping[Key, float], judged: verdicts.Columns
) -> str:
    """The margins of a table under a protocol, a row for each column that the paper has too; points, as in Markdown."""
    rows = []
    for block in blocks:
        for column, (here, there) in _margins(block, cells, paper).items():
            margin = judged.get((block.dataset, *column))
            tested = (nan, nan, nan) if margin is None else (100 * margin.low, 100 * margin.high, margin.p)
            if not isnan(there):
                numbers = (there, here.mean, here.std, *tested)
                verdict = verdicts.verdict(margin, there)
                rows.append((block.dataset, *column, *(round(each, 6) for each in numbers), here.seeds, verdict))
    names = ["dataset", "attack", "eps", "paper", "margin", "std", "low", "high", "p", "seeds", "verdict"]
    return str(pd.DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n"))


def percent_of(paper: Paper) -> dict[Key, float]:
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


def _verdict(margin: float) -> str:
    return "--" if isnan(margin) else "yes" if margin > 0 else "no"


def _signed(points: float) -> str:
    return "--" if isnan(points) else f"{points:+.2f}"

"""Blocks: the part of a table that one data set has, the accuracies in it, and what the audit finds in them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import pandas as pd

from robustbench_dec import titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit as audits
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.rendering.text import escape_markdown

CLEAN = (titles.CLEAN, 0.0)
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


def collect(frame: pd.DataFrame, blocks: Sequence[Block]) -> dict[Key, Seeds]:
    """Accuracy by seed for every entry of the table, in its order; {} where nothing has been measured."""
    cells: dict[Key, Seeds] = {b.key(method, column): {} for b, method in rows_of(blocks) for column in b.all_columns}
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


def audit(blocks: Sequence[Block], percent: Mapping[Key, float]) -> list[str]:
    """One sentence for each entry that a sound attack does not give (see audit.py); missing entries are not judged."""
    return [sentence for _, sentence in findings_of(blocks, percent)]


def findings_of(blocks: Sequence[Block], percent: Mapping[Key, float]) -> list[tuple[Key, str]]:
    findings = []
    for block, method in rows_of(blocks):
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
            column = column_title(point.attack, point.eps)
            where = f"{block.title}, {titles.method(method)}, {column}: {100 * point.accuracy:.2f}"
            than = column_title(*CLEAN) if other is None else column_title(other.attack, other.eps)
            limit = 100 * (finding.limit or 0)
            below = finding.flag == "below_chance"
            what = f"below {limit:.2f}, one class for all images" if below else f"above {limit:.2f} at {than}"
            findings.append((points[point], f"{where} is {what}"))
    return findings


def audit_markdown(title: str, blocks: Sequence[Block], percent: Mapping[Key, float]) -> str:
    """What the audit looks for, and what it finds."""
    columns = dict.fromkeys(name for block in blocks for name, _ in block.columns if name not in block.universal)
    points = [audits.Point("", name, 0.0, 0.0) for name in columns]
    iterated = " and ".join(titles.attack(point.attack) for point in points if point.iterated)
    one_step = " and ".join(titles.attack(point.attack) for point in points if point.one_step)
    steps = f"; {iterated} leaves at most {audits.TOLERANCE:g} points more than {one_step}"
    rule = f"{title} (accuracy does not rise with δ{steps if iterated and one_step else ''})"
    findings = audit(blocks, percent)
    if not findings:
        return f"{rule}: nothing found."
    return f"{rule}: {len(findings)} found.\n\n" + "\n".join(f"- {escape_markdown(finding)}" for finding in findings)


def rows_of(blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    return [(block, method) for block in blocks for method in block.methods]


def column_title(attack: str, eps: float) -> str:
    return titles.attack(attack) if (attack, eps) == CLEAN else f"{titles.attack(attack)} δ={eps:g}"


def percent_text(entry: Mean, decimals: int, sign: str = "") -> str:
    if not entry.seeds:
        return "--"
    deviation = "" if isnan(entry.std) else f" ± {entry.std:.{decimals}f}"
    return f"{entry.mean:{sign}.{decimals}f}{deviation}"

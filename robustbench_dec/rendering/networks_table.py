"""A table with one row per network, `layout = "networks"`: what graph and faults do to accuracy and to consensus.

A row is a block's network: graph, nodes, spectral rate p of W before any fault, faults. Each method has the columns

    clean      accuracy of x-bar on all test images, in percent
    nodes      accuracy of the worst and of the best node, likewise
    attacks    accuracy of x-bar under each attack and radius
    spread     consensus distance mean_i ||x_i - x-bar|| / ||x-bar|| in percent

An entry is the mean over seeds, with the sample standard deviation where there are several; the CSV holds fractions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.networks import topology
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
from robustbench_dec.specs.table import NetworkSpec, Spec
from robustbench_dec.store.records import ClassifierRecord, RunRecord
from robustbench_dec.store.results import Results

RUN = ("clean", "node_min", "node_max", "consensus")
"""Measures that a run has without being attacked; the others are like "fgsm@0.1"."""


@dataclass(frozen=True)
class Row:
    """One network and what was measured on it, by method and measure."""

    network: NetworkSpec
    entries: Mapping[tuple[str, str], Mean]
    flagged: frozenset[tuple[str, str]]

    @property
    def spectral_rate(self) -> float:
        return topology.spectral_rate(self.network.build())

    @property
    def names(self) -> list[str]:
        """The cells that name the row."""
        return [self.network.graph, str(self.network.nodes), f"{self.spectral_rate:.3f}", faults(self.network)]


def render(
    specification: Spec, work: Sequence[Work], cells: pd.DataFrame, results: Results, stem: Path
) -> dict[Path, bytes]:
    """What goes into <stem>.csv, .md and .tex; `cells` are this table's rows of the leaderboard."""
    homes = [results.run(item.run.id) for item in work]
    runs = {home.id: home.record for home in homes if home.exists}
    attacks = list(
        dict.fromkeys(_measure(a.label, eps) for b in specification.blocks for a in b.attacks for eps in a.eps)
    )
    rows = _rows(specification, work, runs, cells, attacks)
    methods = list(dict.fromkeys(name for block in specification.blocks for name in block.trainers))
    notes = _notes(specification, runs, cells, rows)
    contents = {
        ".csv": _csv(rows),
        ".md": _markdown(specification, rows, methods, attacks, notes),
        ".tex": _latex(specification, rows, methods, attacks, notes, stem.name),
    }
    return files.beside(stem, contents)


def faults(network: NetworkSpec) -> str:
    """A network's faults in words."""
    words = [f"{100 * network.loss:g} % of links lost"] * bool(network.loss)
    words += [f"{100 * network.stragglers:g} % of nodes late"] * bool(network.stragglers)
    words += ["new places every round"] * network.varying
    return ", ".join(words) or "none"


def _rows(
    specification: Spec,
    work: Sequence[Work],
    runs: Mapping[str, RunRecord],
    cells: pd.DataFrame,
    attacks: Sequence[str],
) -> list[Row]:
    measured = {run_id: _of_run(run) for run_id, run in runs.items()}
    flagged = set()
    for cell in cells.itertuples():
        measure = _measure(cell.attack, cell.eps)
        if measure in measured[cell.run_id]:
            raise BadInput(
                f"the table needs one cell for {measure} of {cell.run_id}, but there are several; ask for one"
            )
        measured[cell.run_id][measure] = cell.robust_acc
        if cell.reliability_flags:
            flagged.add((cell.run_id, measure))
    rows = []
    for block in specification.blocks:
        here = [item.run for item in work if item.block == block]
        ids = {name: [run.id for run in here if run.trainer == name] for name in block.trainers}
        entries, marked = {}, set()
        for name, run_ids in ids.items():
            for measure in (*RUN, *attacks):
                values = [measured[run_id][measure] for run_id in run_ids if measure in measured.get(run_id, {})]
                entries[name, measure] = Mean.of(values)
                if any((run_id, measure) in flagged for run_id in run_ids):
                    marked.add((name, measure))
        rows.append(Row(specification.network_of(block), entries, frozenset(marked)))
    return rows


def _classifier(run: RunRecord) -> ClassifierRecord:
    if run.classifier is None:
        raise BadInput(f"layout 'networks' shows accuracies, but {run.id} trains no classifier; universal would do")
    return run.classifier


def _of_run(run: RunRecord) -> dict[str, float]:
    clean, consensus = _classifier(run).clean, _classifier(run).consensus
    measured = {"clean": clean.mean_model, "node_min": clean.node_min, "node_max": clean.node_max}
    return measured if consensus is None else measured | {"consensus": consensus}


def _measure(attack: str, eps: float) -> str:
    return f"{attack}@{round(eps, 9):g}"


def _csv(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        network = row.network.model_dump(include={"graph", "nodes", "weights", "loss", "stragglers", "varying"})
        for (method, measure), entry in row.entries.items():
            numbers = {"mean": round(entry.mean, 6), "std": round(entry.std, 6), "seeds": entry.seeds}
            measured = {"method": method, "measure": measure, **numbers}
            lines.append(network | {"spectral_rate": round(row.spectral_rate, 6)} | measured)
    return str(pd.DataFrame(lines).to_csv(index=False, lineterminator="\n"))


def _notes(specification: Spec, runs: Mapping[str, RunRecord], cells: pd.DataFrame, rows: Sequence[Row]) -> list[str]:
    seeds = len(specification.seeds)
    what = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    images = max((_classifier(run).clean.n_examples for run in runs.values()), default=0)
    attacked = cells["n_examples"].max() if len(cells) else 0
    notes = [
        f"Test accuracy in percent, {what}; clean accuracy (x-bar's, and the worst and best node's) on {images:,} test "
        f"images, attacks on x-bar on {attacked:,}. δ is the radius of the attack.",
        "p is the spectral rate of W before any fault; spread is the nodes' mean distance from x-bar over its norm, in "
        "percent.",
    ]
    entries = [entry for row in rows for entry in row.entries.values()]
    missing = sum(not entry.seeds for entry in entries)
    if missing:
        notes.append(f"{missing} of {len(entries)} entries are missing and shown as --.")
    if any(row.flagged for row in rows):
        notes.append(f"{MARK} flagged by the audit; see docs/flags.md and reliability_flags in the leaderboard.")
    return notes


def _head(attacks: Sequence[str]) -> list[str]:
    names = [measure.rpartition("@") for measure in attacks]
    return ["clean", "nodes", *(f"{titles.attack(name)} δ={eps}" for name, _, eps in names), "spread"]


def _values(row: Row, method: str, attacks: Sequence[str], mark: str) -> list[str]:
    """A method's entries in a row, in the order of `_head`."""

    def text(measure: str) -> str:
        entry = row.entries.get((method, measure), Mean())
        if not entry.seeds:
            return "--"
        deviation = f" ± {100 * entry.std:.1f}" if entry.seeds > 1 else ""
        return f"{100 * entry.mean:.1f}{deviation}{mark * ((method, measure) in row.flagged)}"

    nodes = f"{text('node_min')} to {text('node_max')}"
    return [text("clean"), nodes, *(text(measure) for measure in attacks), text("consensus")]


def _markdown(
    specification: Spec, rows: Sequence[Row], methods: Sequence[str], attacks: Sequence[str], notes: Sequence[str]
) -> str:
    head = ["Graph", "n", "p", "Faults"]
    for method in methods:
        first, *others = _head(attacks)
        head += [f"{titles.method(method)}: {first}", *others]
    body = [row.names + [text for name in methods for text in _values(row, name, attacks, MARK)] for row in rows]
    escaped = [[escape_markdown(text) for text in line] for line in (head, *body)]
    parts = [escape_markdown(specification.caption), grid(escaped[0], escaped[1:]), *map(escape_markdown, notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _latex(
    specification: Spec,
    rows: Sequence[Row],
    methods: Sequence[str],
    attacks: Sequence[str],
    notes: Sequence[str],
    label: str,
) -> str:
    head = _head(attacks)
    width = len(head)
    spans = [rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(titles.method(method))}}}" for method in methods]
    rules = " ".join(rf"\cmidrule(lr){{{5 + k * width}-{4 + (k + 1) * width}}}" for k in range(len(methods)))
    lines = [
        latex_row(["", "", "", "", *spans]),
        rules,
        latex_row(["Graph", "$n$", "$p$", "Faults", *[escape_latex(name) for name in head] * len(methods)]),
        r"\midrule",
    ]
    for row in rows:
        values = [text for name in methods for text in _values(row, name, attacks, MARK)]
        lines.append(latex_row(escape_latex(text) for text in row.names + values))
    columns = rf"lrrl*{{{width * len(methods)}}}{{c}}"
    table = latex_table(columns, lines, escape_latex(specification.caption), label, [latex_notes(notes)])
    return "\n".join([*LATEX_NEEDS, *table]) + "\n"

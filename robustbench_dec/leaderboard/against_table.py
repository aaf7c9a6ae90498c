"""A new attack beside the means of a table: over the seeds of each of its networks, as far as these are here.

Two columns: every attack on the same first images of the networks that are here, and the table's own numbers, which
rest on all its seeds and all its images. Both are mean and sample standard deviation over seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from robustbench_dec import data, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.compare import Row
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.store import zoo
from robustbench_dec.store.records import TableRecord
from robustbench_dec.store.results import Results, Run

Key = tuple[str, str]
"""Data set and the table's name for a network."""


@dataclass(frozen=True)
class Table:
    """The networks that a table asked for, and those of them that are here to be attacked."""

    stem: str
    record: TableRecord
    runs: tuple[Run, ...]
    entries: tuple[zoo.Entry, ...]

    def key(self, run_id: str) -> Key:
        (run,) = (run for run in self.runs if run.id == run_id)
        return run.record.dataset, self.record.networks[run_id]

    def seeds(self, key: Key, run_ids: Iterable[str]) -> list[int]:
        """Those of the runs of one network."""
        return sorted(run.record.seed for run in self.runs if run.id in {*run_ids} and self.key(run.id) == key)


def find(stem: str, results: Results) -> Table:
    """A table by its stem; refused if it is not known, or if none of its networks is here."""
    known = results.tables()
    if stem not in known:
        raise BadInput(f"no table '{stem}' in {results.root}; there are: {', '.join(known) or 'none'}")
    runs = tuple(run for run_id in known[stem].networks if (run := results.find(run_id)) is not None)
    entries = tuple(entry for run in runs if (entry := zoo.found_of_run(run)) is not None)
    if not entries:
        raise BadInput(f"no network of {stem} is here; `robustbench-dec train tables/{stem}.toml` trains them")
    return Table(stem, known[stem], runs, entries)


def missing(table: Table) -> str:
    """What is not here, in one sentence; nothing if all is."""
    here = {entry.record.id for entry in table.entries}
    absent = [run_id for run_id in table.record.networks if run_id not in here]
    if not absent:
        return ""
    keys = dict.fromkeys(table.key(run_id) for run_id in absent if any(run.id == run_id for run in table.runs))
    lists = [
        f"{name} on {titles.dataset(dataset)} (seeds {_list(table, (dataset, name), absent)})" for dataset, name in keys
    ]
    return (
        f"{len(here)} of the {len(table.record.networks)} networks of {table.stem} are here; not: {', '.join(lists)}; "
        f"`robustbench-dec train tables/{table.stem}.toml` trains them"
    )


def text(rows: Sequence[Row], table: Table) -> str:
    """The means, network by network."""
    of = {entry.name: entry for entry in table.entries}
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(table.key(of[row.model].record.id), []).append(row)
    known = data.titles()
    ordered = sorted(
        groups, key=lambda key: (titles.in_order((each[0] for each in groups), known).index(key[0]), key[1])
    )
    images = max(len(row.mine.right) for row in rows)
    lines = [f"{table.record.title}, means over seeds ± standard deviation; here: the first {images:,} test images"]
    for key in ordered:
        lines += _network(key, groups[key], of, table)
    return "\n".join(lines)


def _network(key: Key, rows: Sequence[Row], of: Mapping[str, zoo.Entry], table: Table) -> list[str]:
    here = table.seeds(key, (of[row.model].record.id for row in rows))
    all_of_it = table.seeds(key, table.record.networks)
    stored = _stored(key, table)
    names = [rows[0].mine.attack, *dict.fromkeys(rival.attack for row in rows for rival in row.rivals)]
    width = max(len(name) for name in names)
    seeds = f"seeds {', '.join(map(str, here))}"
    head = f"  {rows[0].norm:<7}{'attack':<{width}}  {seeds:<18}  in the table, seeds {', '.join(map(str, all_of_it))}"
    lines = ["", f"{titles.dataset(key[0])}, {key[1]}", head]
    for eps in dict.fromkeys(row.eps for row in rows):
        at = [row for row in rows if row.eps == eps]
        for place, name in enumerate(names):
            measured = [
                each for row in at for each in ((row.mine,) if place == 0 else row.rivals) if each.attack == name
            ]
            if measured:
                known = _percent(stored.get((name, round(eps, 9)), ())) if place else ""
                first = f"{eps:<7g}" if place == 0 else " " * 7
                shown = _percent([each.accuracy for each in measured])
                lines.append(f"  {first}{name:<{width}}  {shown:<18}  {known}".rstrip())
    return lines


def _stored(key: Key, table: Table) -> dict[tuple[str, float], list[float]]:
    """The table's own accuracies: attack and radius -> one per seed."""
    found: dict[tuple[str, float], list[float]] = {}
    for run in table.runs:
        if table.key(run.id) == key:
            for stem in table.record.cells.get(run.id, ()):
                if (cell := run.find(stem)) is not None:
                    found.setdefault((cell.record.attack, round(cell.record.eps, 9)), []).append(cell.record.robust_acc)
    return found


def _percent(accuracies: Sequence[float]) -> str:
    if not accuracies:
        return ""
    mean = Mean.of(accuracies)
    return f"{100 * mean.mean:.1f}" + (f" ± {100 * mean.std:.1f}" if mean.seeds > 1 else "")


def _list(table: Table, key: Key, run_ids: Iterable[str]) -> str:
    return ", ".join(map(str, table.seeds(key, run_ids)))

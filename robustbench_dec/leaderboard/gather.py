"""Leaderboard: every attack cell of every run as one tidy row of a CSV.

Accuracies are fractions; percent is for rendering. A value that a cell has not (the step size of an attack without
steps, the local steps of a trainer without them, bytes on the wire of a simulated network) is empty, never zero. So is
one that is no number: an attack of a user may have alpha = "auto", which stays in `attack_params_json`.
`worst_case` is the accuracy on a cell's own images under the worst of all cells of its network, in its norm, at its
radius or below (see worst_case.py).
`submitted` is "user" for an attack that somebody brought to `compare` and for every cell that somebody published,
"reference" for a known attack that was run beside it, and empty for the cells of tables.

Where the folder has a list of what is published (see publishing.py), only that is on its leaderboard.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from robustbench_dec import files
from robustbench_dec.leaderboard import audit
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.leaderboard.worst_case import beside
from robustbench_dec.store.records import CellRecord, RunRecord, TableRecord
from robustbench_dec.store.results import Cell, Results

# Column -> pandas type. Capital Int64/Float64 may be empty, which keeps "40" from becoming "40.0" beside an empty cell.
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "schema_version": "int64",
        "table": "str",
        "submitted": "str",
        "run_id": "str",
        "cell": "str",
        "dataset": "str",
        "n_classes": "int64",
        "architecture": "str",
        "method": "str",
        "topology": "str",
        "n_clients": "int64",
        "local_steps": "Int64",
        "train_delta": "Float64",
        "seed": "int64",
        "checkpoint_sha256": "str",
        "attack": "str",
        "attack_params_json": "str",
        "norm": "str",
        "eps": "float64",
        "alpha": "Float64",
        "steps": "Int64",
        "universal": "bool",
        "n_examples": "int64",
        "clean_acc": "float64",
        "robust_acc": "float64",
        "ci_low": "float64",
        "ci_high": "float64",
        "n_correct": "int64",
        "worst_case": "Float64",
        "reliability_flags": "str",
        "attack_forwards": "int64",
        "attack_backwards": "int64",
        "zero_gradients": "Float64",
        "sfo_x": "int64",
        "sfo_y": "int64",
        "comm_rounds": "int64",
        "messages": "int64",
        "bytes_payload": "int64",
        "bytes_wire": "Int64",
        "wall_s": "float64",
        "torch_version": "str",
        "package_version": "str",
        "git_commit": "str",
        "created_utc": "str",
    }
)
# The last three only break ties, so that the order of files on disk never shows.
ORDER = ["table", "dataset", "method", "attack", "eps", "seed", "run_id", "attack_params_json", "n_examples"]
NO_TABLES: Mapping[str, TableRecord] = MappingProxyType({})

LARGEST = 2**63
"""Whole numbers of a column are below it."""


def rebuild(results: Results) -> pd.DataFrame:
    """The leaderboard anew from all cells, written."""
    with results.claim_leaderboard():  # the last one who writes it has seen all cells
        everything = gather(results)
        write(everything, results.leaderboard)
    return everything


def gather(results: Results, also: Mapping[str, TableRecord] = NO_TABLES) -> pd.DataFrame:
    """One row for each test cell, or each published one, with what its run knows, in fixed order.

    `table` are the stems of the tables that asked for the run, joined by ";": those that the store remembers, and
    those of `also`, by their stems. The flags are the cell's own and those of the audit over all rows.
    """
    tables, published = {**results.tables(), **also}, results.published()
    users = {} if published is None else published.users

    def shown(cell: Cell) -> bool:
        if published is None:
            return True
        lists = [published.own, published.users, *(table.cells for table in tables.values())]
        return any(cell.stem in each.get(cell.run.id, ()) for each in lists)

    rows, points, records = [], [], []
    for cell in results.cells(shown):
        stems = sorted(stem for stem, table in tables.items() if cell.run.id in table.networks)
        row = _row(cell.run.record, cell.record) | {"table": ";".join(stems), "cell": cell.stem}
        if cell.stem in users.get(cell.run.id, ()):
            row["submitted"] = "user"  # whatever it was where it was made
        rows.append(row)
        points.append(audit.of_cell(cell.run.record, cell.record))
        records.append(cell.record)
    for row, flags in zip(rows, audit.flags(points), strict=True):
        row["reliability_flags"] = ";".join(flags)
    for places, cells in _by_network(records):
        for place, worst in zip(places, beside(cells), strict=True):
            rows[place]["worst_case"] = worst
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict(COLUMNS))
    return frame.sort_values(ORDER, kind="stable", ignore_index=True)


def _by_network(records: Sequence[CellRecord]) -> list[tuple[list[int], list[CellRecord]]]:
    """The places and the cells of each network."""
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(record.checkpoint_sha256, []).append(place)
    return [(mine, [records[place] for place in mine]) for mine in places.values()]


def content(frame: pd.DataFrame) -> bytes:
    """The CSV; floats keep all their digits."""
    return str(frame.to_csv(index=False, lineterminator="\n")).encode()


def write(frame: pd.DataFrame, path: Path) -> None:
    """Replace the CSV at `path` in one step."""
    files.write_bytes(path, content(frame))


def read(path: Path) -> pd.DataFrame:
    """What `write` has written, with the same types and the same bits."""
    texts = [name for name, kind in COLUMNS.items() if kind == "str"]
    # Only Python's own engine reads floats to the last bit in every version of pandas.
    frame = pd.read_csv(path, dtype=dict(COLUMNS), na_values=[""], keep_default_na=False, engine="python")
    return frame.fillna(dict.fromkeys(texts, ""))


def _row(run: RunRecord, cell: CellRecord) -> dict[str, object]:
    classifier, ledger, attack = run.classifier, run.ledger, cell.settings
    assert classifier is not None  # else it could not be attacked
    ci_low, ci_high = wilson(cell.n_correct, cell.n_examples)
    return {
        "schema_version": cell.schema_version,
        "submitted": cell.submitted,
        "run_id": cell.run_id,
        "dataset": cell.dataset,
        "n_classes": len(classifier.classes),
        "architecture": classifier.architecture.name,
        "method": cell.method,
        "topology": run.settings.network["graph"],
        "n_clients": ledger.nodes,
        "local_steps": whole(run.settings.trainer.get("K")),
        # A trainer that never asks for a y-gradient (K-GT) trains at y = 0, whatever radius the problem allows.
        "train_delta": number(run.settings.problem.get("eps")) if ledger.sfo_y else 0.0,
        "seed": cell.seed,
        "checkpoint_sha256": cell.checkpoint_sha256,
        "attack": cell.attack,
        "attack_params_json": json.dumps(attack, sort_keys=True, separators=(",", ":")),
        "norm": cell.norm,
        "eps": cell.eps,
        "alpha": number(attack.get("alpha")),
        "steps": whole(attack.get("steps")),
        "universal": cell.universal,
        "n_examples": cell.n_examples,
        "clean_acc": cell.clean_acc,
        "robust_acc": cell.robust_acc,
        "ci_low": ci_low,
        "ci_high": ci_high,
        "n_correct": cell.n_correct,
        "attack_forwards": cell.forwards,
        "attack_backwards": cell.backwards,
        "zero_gradients": cell.zero_gradients,
        "sfo_x": ledger.sfo_x,
        "sfo_y": ledger.sfo_y,
        "comm_rounds": ledger.rounds,
        "messages": ledger.messages,
        "bytes_payload": ledger.bytes_payload,
        "bytes_wire": run.wire_bytes,  # a simulated network has no wire
        "wall_s": cell.wall_s,
        "torch_version": cell.versions["torch"],
        "package_version": cell.versions["robustbench_dec"],
        "git_commit": cell.git_commit or "",
        "created_utc": cell.created_utc,
    }


def whole(setting: object) -> int | None:
    """A setting that a user's class may declare as it likes, where it is a whole number that the column can hold."""
    return setting if type(setting) is int and abs(setting) < LARGEST else None


def number(setting: object) -> float | None:
    """The same where any number will do; true and false are none."""
    return setting if type(setting) is float else whole(setting)

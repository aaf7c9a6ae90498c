"""What is on the page: rows, their means over seeds, runs, curves and pictures, as one JSON-able dictionary."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd
from matplotlib.colors import to_hex

from robustbench_dec import titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit, board, labelled_rows, references
from robustbench_dec.page import pictures
from robustbench_dec.rendering import export, style
from robustbench_dec.store.records import RunRecord, TableRecord
from robustbench_dec.store.results import Cell, Results, Run

BUDGET = 480_000
"""Characters that pictures may take; the first seeds' come first, what does not fit is left out."""

UNSHOWN = {
    "schema_version",
    "versions",
    "curve_sha256",
    "perturbation_sha256",
    "threads_used",
    "classifier",
    "final",
    "named",
}
"""What a record says of files that the page does not have, and what the page says once for all runs or elsewhere."""

CURVE = ("round", "sfo", "megabytes")

Content = dict[str, Any]


def gather(frame: pd.DataFrame, results: Results, tables: Mapping[str, TableRecord]) -> Content:
    """Everything that the page shows of the rows of `labelled_rows.read`, and of the tables that asked for them."""
    runs = labelled_rows.runs(results, frame["run_id"])
    groups = labelled_rows.averaged(frame)
    rows = frame.reset_index(drop=True).to_dict("records")  # by their places, as `averaged` counts them
    cells = [_cell(row, runs) for row in rows]
    versions = list({json.dumps(v, sort_keys=True): v for v in _versions(runs, cells)}.values())
    own = [name for name in frame.columns if name not in labelled_rows.ADDED]
    return {
        "tables": [_table(table) for table in board.tables(frame, runs, tables)],
        "columns": own,
        "floats": [name for name in own if pd.api.types.is_float_dtype(frame[name])],
        "rows": [[labelled_rows.json_value(row[name]) for name in own] for row in rows],
        "added": [
            {name: row[name] for name in labelled_rows.ADDED} | _extra(cell, versions)
            for row, cell in zip(rows, cells, strict=True)
        ],
        "groups": [asdict(group) | {"latex": export.latex_line(group)} for group in groups],
        "runs": {
            run_id: _shown(run.record) | {"versions": versions.index(run.record.versions)}
            for run_id, run in runs.items()
        },
        "versions": versions,
        "curves": {run_id: curve for run_id, run in runs.items() if (curve := _curve(run))},
        "pictures": _pictures(rows, runs, cells),
        "titles": {
            "dataset": {name: titles.dataset(name) for name in dict.fromkeys(group.dataset for group in groups)},
            "method": {name: titles.method(name) for name in labelled_rows.method_ranks(frame["method"])},
            "attack": {name: titles.attack(name) for name in dict.fromkeys(group.attack for group in groups)},
        },
        "colours": {name: to_hex(colour) for name, colour in style.colours(frame["method"]).items()},
        "flags": dict(audit.FLAGS),
        "latex": {"head": export.LATEX_HEAD, "foot": export.LATEX_FOOT},
        "references": _references(frame),
    }


def _table(table: board.Table) -> Content:
    """A table of the board, without what only the comparison of its entries needs."""
    content = asdict(table)
    for block in content["blocks"]:
        for network in block["networks"]:
            for entry in (network["clean"], *network["attacks"].values(), *network["worst"].values()):
                del entry["by_seed"]
    return content


def _shown(run: RunRecord) -> Content:
    """A run's record as the page has it: what is said of a classifier stands beside the rest."""
    record: Content = run.model_dump(mode="json", exclude=UNSHOWN)
    if run.classifier is not None:
        record |= run.classifier.model_dump(mode="json") | {"architecture": run.classifier.architecture.name}
    return record


def _cell(row: Content, runs: Mapping[str, Run]) -> Cell | None:
    """The cell behind a row, None where the row came from elsewhere."""
    run = runs.get(row["run_id"])
    return None if run is None else run.find(row["cell"])


def _versions(runs: Mapping[str, Run], cells: list[Cell | None]) -> list[dict[str, str]]:
    there = [cell.record.versions for cell in cells if cell is not None]
    return [*(run.record.versions for run in runs.values()), *there]


def _extra(cell: Cell | None, versions: list[dict[str, str]]) -> Content:
    """What the leaderboard's columns do not say about a cell."""
    if cell is None:
        return {}
    record = cell.record
    return {
        "attack_seed": record.attack_seed,
        "threads": record.threads,
        "versions": versions.index(record.versions),
    }


def _curve(run: Run) -> Content | None:
    if not run.has_curve:
        return None
    try:
        curve = run.curve()
        curve["megabytes"] = curve["bytes_per_edge"] * run.record.ledger.directed_edges / 1e6
        curve = curve[curve["round"] > 0]  # an untrained model says nothing and would press all lines together
        measures = ["clean_acc", *(name for name in curve.columns if "@" in name)]
        return {name: [labelled_rows.json_value(value) for value in curve[name]] for name in (*CURVE, *measures)}
    except (KeyError, ValueError) as error:
        raise BadInput(f"the curve of {run.id} is no training curve ({error}); train this run again") from error


def _pictures(rows: list[Content], runs: Mapping[str, Run], cells: list[Cell | None]) -> list[Content]:
    """The trained y of each run, then the perturbation of each universal cell, seed by seed within the budget."""
    wanted: list[tuple[Content, Run | Cell]] = []
    run_ids = [row["run_id"] for row in rows]
    for run_id, run in runs.items():
        if run.has_perturbation:
            eps = run.record.settings.problem["eps"]
            wanted.append(({"kind": "trained", "row": run_ids.index(run_id), "eps": eps}, run))
    for place, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        if cell is not None and cell.has_perturbation:
            what: Content = {"kind": "attack", "row": place, "eps": row["eps"]}
            hit, classifier = cell.record.class_hit, runs[row["run_id"]].record.classifier
            if hit is not None and classifier is not None:
                what["hit"] = [classifier.classes[hit[0]], hit[1]]
            wanted.append((what, cell))
    found, used = [], 0
    for what, home in sorted(wanted, key=lambda pair: rows[pair[0]["row"]]["seed"]):
        uri = pictures.data_uri(home.perturbation(), what["eps"])
        used += len(uri or "")
        if uri and used <= BUDGET:
            found.append(what | {"uri": uri})
    return found


def _references(frame: pd.DataFrame) -> Content:
    """BibTeX by key, and the keys behind each method and attack."""
    found = {
        column: {name: references.of(kind, name) for name in dict.fromkeys(frame[column])}
        for column, kind in (("method", "trainer"), ("attack", "attack"))
    }
    entries = [entry for parts in found.values() for papers in parts.values() for entry in papers]
    return {
        "software": references.SOFTWARE,
        "entries": {entry.key: entry.text for entry in entries},
        **{
            column: {name: [paper.key for paper in papers] for name, papers in parts.items()}
            for column, parts in found.items()
        },
    }

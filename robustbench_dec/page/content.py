"""What is on the page: rows, their means over seeds, runs, curves and pictures, as one JSON-able dictionary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns

from robustbench_dec import files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit, references, view
from robustbench_dec.page import pictures
from robustbench_dec.rendering import export
from robustbench_dec.store import results as store

BUDGET = 800_000
"""Characters that pictures may take; the first seeds' come first, what does not fit is left out."""

UNSHOWN = ("schema", "versions", "curve_sha256", "perturbation_sha256", "threads_used")
"""What run.json tells of files that the page does not have, and what the page tells once for all runs."""

CURVE = ("round", "sfo", "megabytes")

Content = dict[str, Any]


def gather(frame: pd.DataFrame, results: Path) -> Content:
    """Everything that the page shows of the rows of `view.read`."""
    runs = view.runs(results, frame["run_id"])
    entries = view.averaged(frame)
    rows = frame.reset_index(drop=True).to_dict("records")  # by their places, as `averaged` counts them
    cells = [_cell(row, results) for row in rows]
    versions = list({json.dumps(v, sort_keys=True): v for v in _versions(runs, cells)}.values())
    own = [name for name in frame.columns if name not in view.ADDED]
    return {
        "columns": own,
        "floats": [name for name in own if pd.api.types.is_float_dtype(frame[name])],
        "rows": [[view.json_value(row[name]) for name in own] for row in rows],
        "added": [
            {name: row[name] for name in view.ADDED} | _extra(cell, versions)
            for row, cell in zip(rows, cells, strict=True)
        ],
        "groups": [entry | {"latex": export.latex_line(entry)} for entry in entries],
        "runs": {
            run_id: {name: value for name, value in run.items() if name not in UNSHOWN}
            | {"versions": versions.index(run["versions"])}
            for run_id, run in runs.items()
        },
        "versions": versions,
        "curves": {run_id: curve for run_id, run in runs.items() if (curve := _curve(results / "runs" / run_id, run))},
        "pictures": _pictures(rows, runs, cells, results),
        "titles": {
            "dataset": {name: titles.dataset(name) for name in _names(entries, "dataset")},
            "method": {name: titles.method(name) for name in view.method_ranks(frame["method"])},
            "attack": {name: titles.attack(name) for name in _names(entries, "attack")},
        },
        "colours": _colours(frame),
        "flags": dict(audit.FLAGS),
        "latex": {"head": export.LATEX_HEAD, "foot": export.LATEX_FOOT},
        "references": _references(frame),
    }


def _cell(row: Content, results: Path) -> Content:
    """The cell's own file, {} where a row came from elsewhere; never a file outside of the results."""
    home = (results / "runs").resolve()
    path = (home / row["run_id"] / "attacks" / f"{row['cell']}.json").resolve()
    if not path.is_relative_to(home) or not path.is_file():
        return {}
    cell = files.read_sealed(path)
    return cell | {"folder": path.parent}


def _versions(runs: Mapping[str, Content], cells: list[Content]) -> list[Content]:
    return [record["versions"] for record in [*runs.values(), *cells] if "versions" in record]


def _extra(cell: Content, versions: list[Content]) -> Content:
    """What the leaderboard's columns do not say about a cell."""
    extra = {name: cell[name] for name in ("attack_seed", "threads") if name in cell}
    return extra | ({"versions": versions.index(cell["versions"])} if "versions" in cell else {})


def _curve(folder: Path, run: Content) -> Content | None:
    if not (folder / "curve.csv").is_file():
        return None
    try:
        curve = store.curve(folder, run)
        curve["megabytes"] = curve["bytes_per_edge"] * run["ledger"]["directed_edges"] / 1e6
        curve = curve[curve["round"] > 0]  # an untrained model says nothing and would press all lines together
        measures = ["clean_acc", *(name for name in curve.columns if "@" in name)]
        return {name: [view.json_value(value) for value in curve[name]] for name in (*CURVE, *measures)}
    except (KeyError, ValueError) as error:
        raise BadInput(f"{folder / 'curve.csv'} is not a training curve ({error}); train this run again") from error


def _pictures(rows: list[Content], runs: Mapping[str, Content], cells: list[Content], results: Path) -> list[Content]:
    """The trained y of each run, then the perturbation of each universal cell, seed by seed within the budget."""
    wanted: list[tuple[Content, Path, str | None, float]] = []
    run_ids = [row["run_id"] for row in rows]
    for run_id, run in runs.items():
        path = results / "runs" / run_id / "perturbation.safetensors"
        if path.is_file():
            eps = run["settings"]["problem"]["eps"]
            wanted.append(
                (
                    {"kind": "trained", "row": run_ids.index(run_id), "eps": eps},
                    path,
                    run.get("perturbation_sha256"),
                    eps,
                )
            )
    for place, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        name = cell.get("perturbation_file")
        if name and (path := cell["folder"] / Path(name).name).is_file():
            wanted.append(
                ({"kind": "attack", "row": place, "eps": row["eps"]}, path, cell.get("perturbation_sha256"), row["eps"])
            )
    found, used = [], 0
    for what, path, sha256, eps in sorted(wanted, key=lambda one: rows[one[0]["row"]]["seed"]):
        uri = pictures.data_uri(path, sha256, eps)
        used += len(uri or "")
        if uri and used <= BUDGET:
            found.append(what | {"uri": uri})
    return found


def _colours(frame: pd.DataFrame) -> dict[str, str]:
    """Model label -> colour, the printed figures' palette in their order."""
    ranks = view.method_ranks(frame["method"])
    models = frame[["method", "model"]].drop_duplicates().itertuples()
    labels = list(dict.fromkeys(m.model for m in sorted(models, key=lambda m: (ranks[m.method], m.model))))
    palette = sns.color_palette("colorblind").as_hex()
    return {label: palette[place % len(palette)] for place, label in enumerate(labels)}


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


def _names(entries: list[Content], column: str) -> list[str]:
    return list(dict.fromkeys(entry[column] for entry in entries))

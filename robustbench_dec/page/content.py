"""What is on the page: rows, their means over seeds, runs, curves and pictures, as one JSON-able dictionary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns

from robustbench_dec import export, files, references, view
from robustbench_dec.errors import BadInput
from robustbench_dec.page import pictures

BUDGET = 800_000
"""Characters that pictures may take; the first seeds' come first, what does not fit is left out."""

FLAGS: Mapping[str, str] = {
    "rises": "Accuracy is higher than at a smaller radius, so the attack is weak at this one.",
    "weaker_than_one_step": "An iterated attack leaves more images right than one step: too few or too small steps.",
    "weaker_with_more_steps": "More steps of the same attack leave more images right than fewer.",
    "zero_gradients": "Many of the gradients were zero: the attack saw no direction, which is not robustness.",
    "below_chance": "One perturbation for all images went below the share of the rarest class, which cannot be.",
    "nan": "The attack returned NaN or infinite pixels; those images were put back.",
    "budget": "The attack left the ball of radius δ; its images were put back before they were counted.",
    "box": "The attack left [0, 1]; its images were clipped before they were counted.",
}
"""What a flag means, by the flag's name up to a colon."""

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
            run_id: {name: value for name, value in run.items() if name not in ("schema", "versions")}
            | {"versions": versions.index(run["versions"])}
            for run_id, run in runs.items()
        },
        "versions": versions,
        "curves": {run_id: curve for run_id, run in runs.items() if (curve := _curve(results / "runs" / run_id, run))},
        "pictures": _pictures(rows, runs, cells, results),
        "titles": {
            "dataset": {name: view.dataset_title(name) for name in _names(entries, "dataset")},
            "method": {name: view.method_title(name) for name in view.method_ranks(frame["method"])},
            "attack": {name: view.attack_title(name) for name in _names(entries, "attack")},
        },
        "colours": _colours(frame),
        "flags": FLAGS,
        "latex": {"head": export.LATEX_HEAD, "foot": export.LATEX_FOOT},
        "references": _references(frame),
    }


def _cell(row: Content, results: Path) -> Content:
    """The cell's own file, {} where a row came from elsewhere; never a file outside of the results."""
    home = (results / "runs").resolve()
    path = (home / row["run_id"] / "attacks" / f"{row['cell']}.json").resolve()
    if not path.is_relative_to(home) or not path.is_file():
        return {}
    cell: Content = files.read_json(path)
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
        curve = pd.read_csv(folder / "curve.csv")
        curve["megabytes"] = curve["bytes_per_edge"] * run["ledger"]["directed_edges"] / 1e6
        curve = curve[curve["round"] > 0]  # an untrained model says nothing and would press all lines together
        measures = ["clean_acc", *(name for name in curve.columns if "@" in name)]
        return {name: [view.json_value(value) for value in curve[name]] for name in (*CURVE, *measures)}
    except (KeyError, ValueError) as error:
        raise BadInput(f"{folder / 'curve.csv'} is not a training curve ({error}); train this run again") from error


def _pictures(rows: list[Content], runs: Mapping[str, Content], cells: list[Content], results: Path) -> list[Content]:
    """The trained y of each run, then the perturbation of each universal cell, seed by seed within the budget."""
    wanted: list[tuple[Content, Path, float]] = []
    run_ids = [row["run_id"] for row in rows]
    for run_id, run in runs.items():
        path = results / "runs" / run_id / "perturbation.safetensors"
        if path.is_file():
            eps = run["settings"]["problem"]["eps"]
            wanted.append(({"kind": "trained", "row": run_ids.index(run_id), "eps": eps}, path, eps))
    for place, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        name = cell.get("perturbation_file")
        if name and (path := cell["folder"] / Path(name).name).is_file():
            wanted.append(({"kind": "attack", "row": place, "eps": row["eps"]}, path, row["eps"]))
    found, used = [], 0
    for what, path, eps in sorted(wanted, key=lambda one: rows[one[0]["row"]]["seed"]):
        uri = pictures.data_uri(path, eps)
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

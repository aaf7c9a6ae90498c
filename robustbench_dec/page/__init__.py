"""Page: the leaderboard as one self-contained HTML file, tables/index.html. Nothing is asked of the network to view it.

What results say is embedded as JSON and put on the page as text nodes only; the content security policy names the
page's own style and script by their hashes, so that markup from a user's name could not run even if it got through.
"""

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import jinja2
import pandas as pd

from robustbench_dec import files
from robustbench_dec.leaderboard import labelled_rows
from robustbench_dec.page import content, figures_and_links
from robustbench_dec.store.records import TableRecord
from robustbench_dec.store.results import Results

SCRIPTS = ("dom.js", "charts.js", "details.js", "state.js", "networks.js", "cells.js", "drawings.js", "script.js")


def write(results: Results, path: Path) -> Path:
    """The page of a leaderboard and the runs beside it."""
    files.write_text(path, render(results, folder=path.parent))
    return path


def render(
    results: Results,
    leaderboard: pd.DataFrame | None = None,
    *,
    also: Mapping[str, TableRecord] = labelled_rows.NO_TABLES,
    folder: Path | None = None,
) -> str:
    """The page as text, of the leaderboard on disk or of one that is yet to be written with a table; the same gives
    the same. Where it will stand in a `folder`, it shows the figures and Table 1 that lie there."""
    frame = labelled_rows.read(results) if leaderboard is None else labelled_rows.labelled(leaderboard, results, also)
    data = content.gather(frame, results, labelled_rows.tables(results, also))
    data["parts"] = [asdict(part) for part in figures_and_links.parts(frame, folder)]
    style, script = _part("style.css"), "".join(_part(name) for name in SCRIPTS)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["percent"] = lambda fraction: f"{100 * fraction:.1f}"
    return environment.from_string(_part("template.html")).render(
        data=data,
        figures=figures_and_links.figures(folder),
        table1=figures_and_links.table1(folder),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        json=embedded(data),
    )


def embedded(data: object) -> str:
    """JSON for a <script type="application/json">: a "<" in a string can neither end that element nor open another."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _part(name: str) -> str:
    return (importlib.resources.files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

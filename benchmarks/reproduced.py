"""Figures and Table 1 made anew elsewhere, held against the committed runs: how far apart are they?

    make table1 RESULTS=out; make figures RESULTS=out
    python benchmarks/reproduced.py out            writes benchmarks/reproduced.csv

A row for Table 1 and for each data set of the figures' pages: runs that are in both places, how many have the same
costs at every measured point, how many the same numbers, and the largest relative difference of ||grad Phi||'s floor
(Table 1) or of Phi (figures); where both were made; and whether what is printed is the same: Table 1 byte for byte, of
a page's windows every number's four decimals and who is ahead of whom (nothing where only a part was made). Rows of
what is not in the folder stay as they are.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import files

HERE = Path(__file__).parent
TABLES = HERE.parent / "tables"
PAGES = {"figures": "{}", "figures-split": "{}, second page"}
"""Of the figures, and how a row calls a data set of theirs."""
COSTS = ["round", "sfo", "exchanges", "messages", "bytes_per_edge"]


def table1(ours: Path, theirs: Path) -> dict[str, Any]:
    """The runs of Table 1."""
    pairs = [(_read(ours / path.name), _read(path)) for path in sorted((theirs).glob("*.json"))]
    costs = sum(first["reached"] == second["reached"] for first, second in pairs)
    same = sum(first["curve"] == second["curve"] and first["floor"] == second["floor"] for first, second in pairs)
    apart = max(abs(second["floor"] / first["floor"] - 1) for first, second in pairs)
    return {"what": "table1", "runs": len(pairs), "same_costs": costs, "same": same, "apart": apart} | _made(pairs)


def figures(ours: Path, theirs: Path, stem: str) -> Iterator[dict[str, Any]]:
    """The runs of one page of the figures, by data set."""
    page = pd.read_csv(TABLES / f"{stem}.csv", usecols=["run_id"])["run_id"].unique()
    found: dict[str, list[tuple[Path, Path]]] = {}
    for home in (theirs / run for run in sorted(page) if (theirs / run / "run.json").is_file()):
        found.setdefault(_read(home / "run.json")["dataset"], []).append((ours / home.name, home))
    for dataset, homes in found.items():
        curves = [tuple(pd.read_csv(home / "curve.csv") for home in pair) for pair in homes]
        costs = sum(first[COSTS].equals(second[COSTS]) for first, second in curves)
        same = sum(first["phi"].equals(second["phi"]) for first, second in curves)
        apart = max(float((second["phi"] / first["phi"] - 1).abs().max()) for first, second in curves)
        what = PAGES[stem].format(dataset)
        row = {"what": what, "runs": len(curves), "same_costs": costs, "same": same, "apart": apart}
        yield row | _made([(_read(first / "run.json"), _read(second / "run.json")) for first, second in homes])


def same_windows(anew: Path, stem: str) -> bool | None:
    """Whether a page's windows are the same as far as they are printed; None where they were not made."""
    if not (anew / f"{stem}-windows.csv").is_file():
        return None
    numbers = ["mean", "min", "max"]
    frames = [pd.read_csv(folder / f"{stem}-windows.csv", keep_default_na=False) for folder in (TABLES, anew)]
    words, printed = ([frame.drop(columns=numbers) for frame in frames], [frame[numbers].round(4) for frame in frames])
    return words[0].equals(words[1]) and printed[0].equals(printed[1])


def _made(pairs: list[tuple[Any, Any]]) -> dict[str, str]:
    first, second = pairs[0]
    return {name: record["machine"]["torch_isa"] for name, record in (("committed", first), ("anew", second))}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    results, anew = HERE.parent / "results", Path(sys.argv[1])
    rows = []
    if (anew / "table1.csv").is_file():
        same = (TABLES / "table1.csv").read_bytes() == (anew / "table1.csv").read_bytes()
        rows.append(table1(results / "table1", anew / "table1") | {"same_file": same})
    for stem in PAGES:
        same_page = same_windows(anew, stem)
        rows += [row | {"same_file": same_page} for row in figures(results / "runs", anew / "runs", stem)]
    known = pd.read_csv(HERE / "reproduced.csv").set_index("what")
    new = pd.DataFrame(rows).set_index("what")
    print(new.to_string())
    frame = pd.concat([known[~known.index.isin(new.index)], new])
    files.write_text(HERE / "reproduced.csv", frame.to_csv(lineterminator="\n", float_format="%.2g"))


if __name__ == "__main__":
    main()

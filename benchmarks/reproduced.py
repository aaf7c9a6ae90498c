"""Figures and Table 1 made anew elsewhere, held against the committed runs: how far apart are they?

    make table1 RESULTS=out; make figures RESULTS=out DATASET=phishing SEEDS=1
    python benchmarks/reproduced.py out            writes benchmarks/reproduced.csv

A row for Table 1 and for each data set of the figures: runs that are in both places, how many have the same costs at
every measured point, how many the same numbers, and the largest relative difference of ||grad Phi||'s floor (Table 1)
or of Phi (figures); where both were made; and whether the table that is printed is the same.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import files

HERE = Path(__file__).parent
COSTS = ["round", "sfo", "exchanges", "messages", "bytes_per_edge"]


def table1(ours: Path, theirs: Path) -> dict[str, Any]:
    """The runs of Table 1."""
    pairs = [(_read(ours / path.name), _read(path)) for path in sorted((theirs).glob("*.json"))]
    costs = sum(first["reached"] == second["reached"] for first, second in pairs)
    same = sum(first["curve"] == second["curve"] and first["floor"] == second["floor"] for first, second in pairs)
    apart = max(abs(second["floor"] / first["floor"] - 1) for first, second in pairs)
    return {"what": "table1", "runs": len(pairs), "same_costs": costs, "same": same, "apart": apart} | _made(pairs)


def figures(ours: Path, theirs: Path) -> Iterator[dict[str, Any]]:
    """The runs of the figures, by data set."""
    found: dict[str, list[tuple[Path, Path]]] = {}
    for path in sorted(theirs.glob("*/run.json")):
        if (home := ours / path.parent.name).is_dir():
            found.setdefault(_read(path)["dataset"], []).append((home, path.parent))
    for dataset, homes in found.items():
        curves = [tuple(pd.read_csv(home / "curve.csv") for home in pair) for pair in homes]
        costs = sum(first[COSTS].equals(second[COSTS]) for first, second in curves)
        same = sum(first["phi"].equals(second["phi"]) for first, second in curves)
        apart = max(float((second["phi"] / first["phi"] - 1).abs().max()) for first, second in curves)
        row = {"what": dataset, "runs": len(curves), "same_costs": costs, "same": same, "apart": apart}
        yield row | _made([(_read(first / "run.json"), _read(second / "run.json")) for first, second in homes])


def _made(pairs: list[tuple[Any, Any]]) -> dict[str, str]:
    first, second = pairs[0]
    return {name: record["machine"]["torch_isa"] for name, record in (("committed", first), ("anew", second))}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    results, anew = HERE.parent / "results", Path(sys.argv[1])
    rows = [table1(results / "table1", anew / "table1"), *figures(results / "runs", anew / "runs")]
    printed = [(folder / "table1.csv").read_bytes() for folder in (HERE.parent / "tables", anew)]
    rows[0]["same_file"] = printed[0] == printed[1]
    print(pd.DataFrame(rows).to_string())
    text = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n", float_format="%.2g")
    files.write_text(HERE / "reproduced.csv", text)


if __name__ == "__main__":
    main()

"""Which runs stand behind which table: results/tables/<stem>.json, written when the table is rendered.

The leaderboard's column `table` comes from here, so that it depends on the results alone, not on the specifications
that lie around or on where tables are written.
"""

from collections.abc import Collection
from pathlib import Path

from robustbench_dec import files


def path(results: Path, stem: str) -> Path:
    """The file that tells the runs of a table."""
    return results / "tables" / f"{stem}.json"


def content(run_ids: Collection[str]) -> bytes:
    """What stands in that file."""
    return files.sealed({"runs": sorted(run_ids)})


def read(results: Path) -> dict[str, frozenset[str]]:
    """The ids of the runs of every table that was rendered from these results, by its stem."""
    found = sorted((results / "tables").glob("[!.]*.json"))
    return {each.stem: frozenset(files.read_sealed(each)["runs"]) for each in found}

"""Tests read what git tracks: a user may train, compare and write tables in the repository, and `make test` passes."""

import shutil
from pathlib import Path

import pytest

from tests.support import repository
from tests.support.tiny import Made


def contents(home: Path) -> dict[Path, bytes]:
    return {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_users_runs_rows_and_tables_are_not_what_tests_read(tracked: Path, finished: Made, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(tracked, clone)
    repository.git("init", "--quiet", root=clone)
    repository.git("add", "--force", "--all", root=clone)
    for run in finished.folders:
        shutil.copytree(run, clone / "results" / "runs" / run.name)
    shutil.copy(finished.file, clone / "tables")
    with (clone / "results" / "leaderboard.csv").open("a") as rows:
        rows.write("a row of the user's own\n")
    (clone / "tables" / "table2.tex").unlink()
    copy = repository.check_out(tmp_path / "copy", "results", "tables", root=clone)
    assert len(contents(copy)) > 100
    assert contents(copy) == contents(tracked)

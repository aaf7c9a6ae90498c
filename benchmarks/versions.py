"""Versions of the suite side by side: each trains in a process of its own, and they are asked in turn.

So a busy machine, or one that changes its clock, slows all of them, and ratios can be trusted where times cannot.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import files

ROOT = Path(__file__).resolve().parents[1]
OLD = "aaaaf82"
"""Version 0.1.0."""


class Version:
    """A process that trains with the code in `folder`."""

    def __init__(self, folder: Path, asked: dict[str, Any], threads: int) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "benchmarks" / "version_worker.py")],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        where = self._ask(json.dumps(asked))
        assert Path(where).is_relative_to(folder), f"the worker in {folder} imported {where}"

    def seconds(self, rounds: int) -> float:
        """Train so many rounds further."""
        return float(self._ask(str(rounds)))

    def phi(self) -> float:
        """Phi at the mean x, where it stands."""
        return float(self._ask("phi"))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _ask(self, line: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def checkout(old: str) -> Iterator[Path]:
    """The folder of another version: a folder as it is, or a commit's, checked out for as long as it is needed."""
    if Path(old).is_dir():
        yield Path(old).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), old], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def write(script: str, rows: list[dict[str, Any]], keys: Sequence[str] = ()) -> None:
    """Print the rows and put them into the script's CSV; with keys, rows that have others stay as they are there."""
    path, frame = Path(script).with_suffix(".csv"), pd.DataFrame(rows)
    print(frame.to_string(index=False))
    if keys and path.exists():
        before = pd.read_csv(path)
        if list(before) == list(frame):
            frame = (
                pd.concat([before, frame])
                .drop_duplicates(list(keys), keep="last")
                .sort_values(list(keys), kind="stable")
            )
    files.write_text(path, frame.to_csv(index=False, lineterminator="\n", float_format="%.4g"))


def numbers(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a table with its fractions, such as "1e-2/32560", as numbers."""

    def number(value: Any) -> Any:
        if isinstance(value, str) and value[:1].isdigit():
            above, _, below = value.partition("/")
            return float(Fraction(above) / Fraction(below or 1))
        return value

    return {name: number(value) for name, value in settings.items()}

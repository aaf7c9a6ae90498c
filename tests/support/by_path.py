"""The store reached by paths, in short: tests look at the files themselves, which no other code does."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from robustbench_dec.attack import Attack
from robustbench_dec.leaderboard import gather
from robustbench_dec.problem import Classifier
from robustbench_dec.rendering import report as reports
from robustbench_dec.running import cells, suite
from robustbench_dec.running import train as running
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.specs.table import Spec
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Results, Run

QUIET = running.Habits(progress=False)


def train(run: RunSpec, results: Path, **how: Any) -> Path:
    """The folder of a trained run."""
    habits, others = _habits(how)
    return running.train(run, Results(results), habits, **others).folder


def make(specification: Spec, results: Path, **how: Any) -> list[Path]:
    """The folders of a table's runs, all complete."""
    habits, others = _habits(how)
    runs = suite.make(suite.listed(specification), Results(results), habits, title=specification.title, **others)
    return [run.folder for run in runs]


def _habits(how: dict[str, Any]) -> tuple[running.Habits, dict[str, Any]]:
    """What decides no number, without bars unless they are asked for; and the rest."""
    named = {field.name for field in fields(running.Habits)}
    chosen = {name: value for name, value in how.items() if name in named}
    return replace(QUIET, **chosen), {name: how[name] for name in how.keys() - named}


def report(specification: Spec, stem: str, results: Path, tables: Path) -> list[Path]:
    """A table's files, written."""
    return reports.report(specification, suite.listed(specification), stem, Results(results), tables)


def rebuild(results: Path) -> None:
    """The leaderboard, written."""
    gather.rebuild(Results(results))


def attack(
    folder: Path,
    attacks: Sequence[tuple[str, Attack]],
    *,
    problem: Classifier,
    n_examples: int | None = None,
    wait: bool = True,
) -> list[CellRecord]:
    """The cells of some attacks on the run in a folder."""
    run = Run(folder)
    wanted = cells.requests(attacks, run.record.seed, n_examples=n_examples)
    return cells.attack(run, wanted, problem=problem, progress=False, wait=wait)

"""Survival: of the settings that a protocol's rule puts first, each method takes the first that breaks on no seed.

A row of the CSV is one short run: on which seed, and whether it diverged. One that did strikes its setting, and the
next one is tried. No accuracy is looked at. A protocol without survival takes what comes first.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from robustbench_dec import files
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.running import trials
from robustbench_dec.running.pool import side_by_side
from robustbench_dec.running.train import Habits, train
from robustbench_dec.running.trials import Choices
from robustbench_dec.specs.protocol import Protocol
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.store import locks
from robustbench_dec.store.results import Results

SETTING = ["block", "method", "trial"]
KEY = [*SETTING, "seed"]
COLUMNS = [*KEY, "rounds", "run_id", "diverged", "said", "protocol_sha256"]


class Short(NamedTuple):
    """One short run of a setting that would be taken."""

    block: str
    method: str
    trial: int
    run: RunSpec


def carry_out(
    protocol: Protocol,
    folder: Path,
    results: Results,
    how: Habits = Habits(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
) -> pd.DataFrame:
    """Make the short runs that decide the choice and have no row yet, until what would be taken has survived them."""
    work = functools.partial(_try, protocol=protocol, folder=folder, results=results, how=how)
    while missing := _missing(protocol, folder):
        side_by_side(work, missing, jobs, "survival", how.progress)
    return read(protocol, folder)


def chosen(protocol: Protocol, folder: Path) -> Choices:
    """What each data set and method takes, by the rows beside the protocol."""
    missing = _missing(protocol, folder)
    if missing:
        settings = sorted({f"trial {short.trial} of {short.method} on {short.block}" for short in missing})
        raise BadInput(
            f"whether {', '.join(settings)} survives is still to be tried, {len(missing)} short runs; "
            "`robustbench-dec trials` makes them"
        )
    return _first(protocol, folder)


def read(protocol: Protocol, folder: Path) -> pd.DataFrame:
    """The rows so far."""
    path = None if protocol.survival is None else folder / protocol.survival.file
    if path is None or not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"run_id": str}, keep_default_na=False)


def struck(rows: pd.DataFrame) -> set[tuple[str, str, int]]:
    """The settings of which a run diverged."""
    return set(rows[rows["diverged"].astype(bool)][SETTING].itertuples(index=False, name=None))


def _first(protocol: Protocol, folder: Path) -> Choices:
    return trials.choice(protocol, trials.read(folder / protocol.trials_file), struck(read(protocol, folder)))


def _missing(protocol: Protocol, folder: Path) -> list[Short]:
    """The short runs without a row of what would be taken now."""
    if protocol.survival is None:
        return []
    known, blocks = set(read(protocol, folder)["run_id"]), {block.title: block for block in protocol.blocks}
    shorts = [
        Short(title, method, taken.number, protocol.survivor(blocks[title], taken.candidate, method, taken.point, seed))
        for (title, method), taken in _first(protocol, folder).items()
        for seed in protocol.survival.seeds
    ]
    return [short for short in shorts if short.run.id not in known]


def _try(short: Short, protocol: Protocol, folder: Path, results: Results, how: Habits) -> None:
    """Make one short run and write its row, unless its setting was struck meanwhile."""
    assert protocol.survival is not None
    if (short.block, short.method, short.trial) in struck(read(protocol, folder)):
        return
    said = ""
    try:
        train(short.run, results, how)
    except Diverged as error:
        said = str(error)
    where = (short.block, short.method, short.trial, short.run.seed)
    row = (*where, short.run.rounds, short.run.id, bool(said), said, protocol.sha256)
    path = folder / protocol.survival.file
    with locks.claim(path):
        frame = pd.DataFrame([*read(protocol, folder).itertuples(index=False, name=None), row], columns=COLUMNS)
        frame = frame.drop_duplicates(KEY, keep="last").sort_values(KEY, kind="stable")
        files.write_text(path, frame.to_csv(index=False, lineterminator="\n"))

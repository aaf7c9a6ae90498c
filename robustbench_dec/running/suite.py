"""A whole table: train and attack what is missing. Files that exist are work that is done."""

import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from pathlib import Path
from typing import Any, cast

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import Attack
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.running import cells, train
from robustbench_dec.running.pool import pool, share_of_cores
from robustbench_dec.specs import table as spec
from robustbench_dec.store import locks

PAUSE = 0.3
"""Seconds until a worker looks again whether what others work on is done."""


def make(
    specification: spec.Spec,
    results: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    progress: bool = True,
    save_seconds: float = 20.0,
    save_rounds: int | None = None,
) -> list[Path]:
    """Every run of the table with all its cells; the run folders, in the table's order.

    `jobs` workers, and those of other processes that make a table in the same folder, share the work by claims (see
    locks.py): each takes the first run that nobody trains and the first cells that nobody computes.
    """
    files.sweep(results)
    locks.sweep(results)
    outputs = {
        results / "runs" / one.id: _outputs(block, one, specification.n_examples, results)
        for block, one in specification.runs()
    }
    work = functools.partial(
        _work, specification, results, device, progress, {"save_seconds": save_seconds, "save_rounds": save_rounds}
    )
    workers = min(jobs, sum(not path.is_file() for paths in outputs.values() for path in paths))
    with (
        share_of_cores(jobs) as threads,
        progress_bars.bar(total=len(outputs), desc=specification.title, unit="run", show=progress) as bar,
    ):

        def show() -> None:
            bar.update(sum(all(path.is_file() for path in paths) for paths in outputs.values()) - bar.n)

        if workers <= 1:
            work(show)
        else:
            with pool(workers, threads) as submit:
                futures = [submit(work, None) for _ in range(workers)]
                while wait(futures, timeout=PAUSE, return_when=FIRST_EXCEPTION).not_done:
                    show()
                    for future in futures:
                        if future.done():
                            future.result()  # raises what ended a worker
                for future in futures:
                    future.result()
        show()
    return list(outputs)


def _outputs(block: spec.BlockSpec, one: spec.RunSpec, n_examples: int | None, results: Path) -> list[Path]:
    """The files that show that a run is complete."""
    folder = results / "runs" / one.id
    return [folder / "run.json", *cell_paths(folder, n_examples, block, one.seed)]


def cell_paths(folder: Path, n_examples: int | None, block: spec.BlockSpec, seed: int) -> list[Path]:
    """The files of the cells that the table wants of a run."""
    return [cells.cell_path(folder, name, at, n_examples, seed) for name, at in attacks_of(block)]


def _work(
    specification: spec.Spec,
    results: Path,
    device: str,
    progress: bool,
    saving: Mapping[str, Any],
    show: Callable[[], None] | None,
) -> None:
    """One worker: go through the runs, do what nobody else does, and again until all is done."""
    left, problems = list(specification.runs()), _Problems()
    while left:
        held = []
        for block, one in left:
            try:
                _complete(block, one, specification.n_examples, results, device, progress, saving, problems)
            except locks.Busy:
                held.append((block, one))
            if show is not None:
                show()
        left = held
        if left:
            time.sleep(PAUSE)


def _complete(
    block: spec.BlockSpec,
    one: spec.RunSpec,
    n_examples: int | None,
    results: Path,
    device: str,
    progress: bool,
    saving: Mapping[str, Any],
    problems: "_Problems",
) -> None:
    """Train one run and compute all its cells, where they are missing; Busy where others do a part of it."""
    trained = functools.partial(train.train, one, results, device=device, progress=progress, wait=False, **saving)
    folder = trained()
    if _missing(block, folder, n_examples, one.seed):
        trained(checkpoint=True)  # a fresh clone has numbers but no checkpoints
        # Trained on another kind of machine its bits may differ, and then all cells are to be made again.
        missing = _missing(block, folder, n_examples, one.seed)
        problem = cast(Classifier, problems.of(one))
        cells.attack(
            folder, missing, problem=problem, n_examples=n_examples, device=device, progress=progress, wait=False
        )


def _missing(block: spec.BlockSpec, folder: Path, n_examples: int | None, seed: int) -> list[tuple[str, Attack]]:
    """The attacks of which a finished run has no cell about its checkpoint."""
    sha256 = files.read_sealed(folder / "run.json")["checkpoint_sha256"]
    pairs = zip(attacks_of(block), cell_paths(folder, n_examples, block, seed), strict=True)
    return [pair for pair, path in pairs if cells.usable_cell(path, sha256) is None]


class _Problems:
    """The problem of the run that a worker attacks, so that its data are not read again for each cell."""

    def __init__(self) -> None:
        self._key: Any = None
        self._problem: Problem | None = None

    def of(self, one: spec.RunSpec) -> Problem:
        key = (one.problem, one.network.nodes)
        if self._problem is None or key != self._key:
            self._key, self._problem = key, one.build_problem()
        return self._problem


def attacks_of(block: spec.BlockSpec) -> list[tuple[str, Attack]]:
    return [(attack.name, one) for attack in block.attacks for one in attack.build()]

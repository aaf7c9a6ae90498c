"""A whole table's work: listed once, then trained and attacked where it is missing. Files that exist are work done."""

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass
from typing import Any, cast

from robustbench_dec import bars as progress_bars
from robustbench_dec.errors import Diverged
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.running import cells
from robustbench_dec.running.pool import pool, share_of_cores
from robustbench_dec.running.train import Habits, train
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.specs.table import BlockSpec, Spec
from robustbench_dec.store import locks, zoo
from robustbench_dec.store.results import Results, Run

PAUSE = 0.3
"""Seconds until a worker looks again whether what others work on is done."""


@dataclass(frozen=True)
class Work:
    """One run of a table, and the cells that the table wants of it."""

    block: BlockSpec
    run: RunSpec
    cells: tuple[cells.Request, ...]
    may_diverge: bool = False
    """Whether a run that diverges is a result of the table; else it ends the table's making."""

    def done(self, results: Results) -> int:
        """How many of its files, the run's and the cells', are there; of a run that diverged there are no more."""
        home = results.run(self.run.id)
        if self.may_diverge and home.divergence is not None:
            return self.size
        return home.exists + sum(home.cell(request.key).exists for request in self.cells)

    @property
    def size(self) -> int:
        """How many files show that it is done."""
        return 1 + len(self.cells)


def listed(specification: Spec) -> list[Work]:
    """All that a table asks for, in its order: from here on nothing is resolved again."""
    return [
        Work(
            block,
            run,
            tuple(
                cells.Request(
                    spec.name,
                    attack,
                    run.seed,
                    specification.n_examples,
                    schema=run.schema,
                    protocol_sha256=specification.redefined_sha256.get(spec.name, run.protocol_sha256),
                )
                for spec in block.attacks
                for attack in spec.build()
            ),
            may_diverge=(
                specification.layout == "methods"
                or specification.steps is not None
                or specification.protocol is not None  # settings were chosen by a rule, on another seed
            ),
        )
        for block, run in specification.runs()
    ]


def make(
    work: Sequence[Work],
    results: Results,
    how: Habits = Habits(),  # noqa: B008 (frozen)
    *,
    title: str = "",
    jobs: int = 1,
    after_each: Callable[[], object] = lambda: None,
) -> list[Run]:
    """Every listed run with all its cells, in the list's order; `after_each` is called when more runs are complete.

    `jobs` workers, and those of other processes that make a table in the same folder, share the work by claims (see
    locks.py): each takes the first run that nobody trains and the first cells that nobody computes.
    """
    results.sweep()
    worker = functools.partial(_work, work, results, how)
    workers = min(jobs, sum(item.size - item.done(results) for item in work))

    def complete() -> int:
        return sum(item.done(results) == item.size for item in work)

    with (
        share_of_cores(jobs) as threads,
        progress_bars.bar(total=len(work), initial=complete(), desc=title, unit="run", show=how.progress) as bar,
    ):

        def show() -> None:
            new = complete() - bar.n
            bar.update(new)
            if new:
                after_each()

        if workers <= 1:
            worker(show)
        else:
            with pool(workers, threads) as submit:
                futures = [submit(worker, None) for _ in range(workers)]
                while wait(futures, timeout=PAUSE, return_when=FIRST_EXCEPTION).not_done:
                    show()
                    for future in futures:
                        if future.done():
                            future.result()  # raises what ended a worker
                for future in futures:
                    future.result()
        show()
    return [results.run(item.run.id) for item in work]


def _work(work: Sequence[Work], results: Results, how: Habits, show: Callable[[], None] | None) -> None:
    """One worker: go through the list, do what nobody else does, and again until all is done."""
    left, problems = list(work), _Problems()
    while left:
        held = []
        for item in left:
            try:
                _complete(item, results, how, problems)
            except locks.Busy:
                held.append(item)
            if show is not None:
                show()
        left = held
        if left:
            time.sleep(PAUSE)


def _complete(item: Work, results: Results, how: Habits, problems: "_Problems") -> None:
    """Train one run and compute all its cells, where they are missing; Busy where others do a part of it."""
    if item.may_diverge and results.run(item.run.id).divergence is not None:
        return
    trained = functools.partial(train, item.run, results, how, wait=False)
    try:
        home = trained()
    except Diverged as error:
        if not item.may_diverge:
            raise
        results.run(item.run.id).write_divergence(str(error))
        return
    if missing := _missing(home, item):
        kept = None if home.has_checkpoint else zoo.found_of_run(home)
        if kept is None:
            home = trained(checkpoint=True)  # a fresh clone has numbers, and not every run keeps its network
            # Trained on another kind of machine its bits may differ, and then all cells are to be made again.
            missing = _missing(home, item)
        problem, model = cast(Classifier, problems.of(item.run)), None if kept is None else kept.model(how.device)
        cells.attack(home, missing, problem=problem, device=how.device, model=model, progress=how.progress, wait=False)


def _missing(home: Run, item: Work) -> list[cells.Request]:
    """The attacks of which a finished run has no cell about its checkpoint."""
    return [request for request in item.cells if home.cell(request.key).usable() is None]


class _Problems:
    """The problem of the run that a worker attacks, so that its data are not read again for each cell."""

    def __init__(self) -> None:
        self._key: Any = None
        self._problem: Problem | None = None

    def of(self, run: RunSpec) -> Problem:
        key = (run.problem, run.network.nodes)
        if self._problem is None or key != self._key:
            self._key, self._problem = key, run.build_problem()
        return self._problem

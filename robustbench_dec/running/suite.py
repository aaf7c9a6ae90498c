"""A whole table: train and attack what is missing, gather, render. Files that exist are work that is done."""

import contextlib
import functools
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import RLock, Thread
from types import MappingProxyType
from typing import Any, TypeVar, cast

import pandas as pd
import safetensors.torch
import torch

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.foreign import attack_named
from robustbench_dec.data import catalogue
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.rendering import attacks_table as table
from robustbench_dec.rendering import curves as plots
from robustbench_dec.rendering import networks_table as network_table
from robustbench_dec.running import train as run
from robustbench_dec.specs import table as spec
from robustbench_dec.store import locks

T = TypeVar("T")
R = TypeVar("R")


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
        _share_of_cores(jobs) as threads,
        progress_bars.bar(total=len(outputs), desc=specification.title, unit="run", show=progress) as bar,
    ):

        def show() -> None:
            bar.update(sum(all(path.is_file() for path in paths) for paths in outputs.values()) - bar.n)

        if workers <= 1:
            work(show)
        else:
            with _pool(workers, threads) as submit:
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
    return [folder / "run.json", *_paths(folder, n_examples, block, one.seed)]


def _paths(folder: Path, n_examples: int | None, block: spec.BlockSpec, seed: int) -> list[Path]:
    """The files of the cells that the table wants of a run."""
    return [run.cell_path(folder, name, at, n_examples, seed) for name, at in _attacks(block)]


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


def side_by_side(
    work: Callable[[T], R], items: Sequence[T], jobs: int, title: str, progress: bool, unit: str = "run"
) -> list[R]:
    """work(item) for every item, in the items' order.

    `jobs` items are worked on side by side, each by a process with its share of the cores. One thread each is as fast
    as all cores on one run after the other, and gives the same bits on machines with other numbers of cores.
    """
    workers = min(jobs, len(items))
    with (
        _share_of_cores(jobs) as threads,
        progress_bars.bar(total=len(items), desc=title, unit=unit, show=progress) as bar,
    ):
        if workers <= 1:
            done = []
            for item in items:
                done.append(work(item))
                bar.update()
            return done
        with _pool(workers, threads) as submit:
            futures = [submit(work, item) for item in items]
            for future in as_completed(futures):
                future.result()
                bar.update()
            return [future.result() for future in futures]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _share_of_cores(jobs: int) -> Iterator[int]:
    """The threads of each of so many workers, for this process too while it is the only one.

    However few pieces of work are left: numbers depend on the threads a little, and what a stopped command has left
    must come out as if it had not been stopped.
    """
    former = torch.get_num_threads()
    threads = former if jobs <= 1 else max(1, cores() // jobs)
    torch.set_num_threads(threads)
    try:
        yield threads
    finally:
        torch.set_num_threads(former)


@contextlib.contextmanager
def _pool(workers: int, threads: int) -> Iterator[Callable[..., Future[Any]]]:
    """`submit` of a pool of so many processes with so many threads each; a failure inside ends them all."""
    context = get_context("spawn")  # torch's threads do not survive a fork
    lock, started = context.RLock(), context.Value("i", 0)
    progress_bars.use_lock(lock)
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(threads, lock, started))

    def submit(*call: Any) -> Future[Any]:
        with _workers_ignore_interrupts():
            return pool.submit(*call)

    try:
        yield submit
    except BaseException as error:  # a failure or Ctrl-C ends all workers; what they had finished or saved is on disk
        for worker in active_children():
            worker.terminate()
        progress_bars.use_lock(RLock())  # one of them may have died with the shared one in its hands
        if isinstance(error, BrokenProcessPool):
            raise BadInput(
                "one of the workers was killed, most likely because memory ran out; the same command goes on where "
                "this one was, and needs less memory with fewer --jobs"
            ) from error
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _workers_ignore_interrupts() -> Iterator[None]:
    """Processes started inside leave Ctrl-C to this one, which ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _start_worker(threads: int, lock: Any, started: Any) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with started.get_lock():
        index, started.value = started.value, started.value + 1
    progress_bars.start_worker(index, lock)


def _end_with_parent() -> None:
    """Workers of a process that was killed would go on for nobody."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
    train = functools.partial(run.train, one, results, device=device, progress=progress, wait=False, **saving)
    folder = train()
    if _missing(block, folder, n_examples, one.seed):
        train(checkpoint=True)  # a fresh clone has numbers but no checkpoints
        # Trained on another kind of machine its bits may differ, and then all cells are to be made again.
        missing = _missing(block, folder, n_examples, one.seed)
        problem = cast(Classifier, problems.of(one))
        run.attack(
            folder, missing, problem=problem, n_examples=n_examples, device=device, progress=progress, wait=False
        )


def _missing(block: spec.BlockSpec, folder: Path, n_examples: int | None, seed: int) -> list[tuple[str, Attack]]:
    """The attacks of which a finished run has no cell about its checkpoint."""
    sha256 = files.read_sealed(folder / "run.json")["checkpoint_sha256"]
    pairs = zip(_attacks(block), _paths(folder, n_examples, block, seed), strict=True)
    return [pair for pair, path in pairs if run.usable_cell(path, sha256) is None]


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


def report(specification: spec.Spec, stem: str, results: Path, tables: Path) -> list[Path]:
    """The leaderboard of all runs, and this table's files, from the cells on disk."""
    runs = {results / "runs" / one.id: block for block, one in specification.runs()}
    runs = {folder: block for folder, block in runs.items() if (folder / "run.json").is_file()}
    if not runs:
        raise BadInput(f"no finished run of this table is in {results}; make the table first")
    everything = rebuild(results, tables, {stem: {folder.name for folder in runs}})
    wanted = [
        (folder.name, path.stem)
        for folder, block in runs.items()
        for path, _ in _cells(folder, specification.n_examples, block)
    ]
    rows = everything[pd.MultiIndex.from_frame(everything[["run_id", "cell"]]).isin(wanted)]
    if specification.layout == "networks":
        return [results / "leaderboard.csv", *network_table.render(specification, rows, results, tables / stem)]
    written = table.render(
        rows, blocks(specification), tables / stem, specification.caption, specification.paper or None
    )
    folders = list(runs)
    written += plots.curves(pd.concat([_curve(folder) for folder in folders]), tables / stem)
    trained, uaps = _pictures(runs, specification)
    if trained or uaps:
        written += plots.perturbations(trained, uaps, tables / stem)
    return [results / "leaderboard.csv", *written]


def rebuild(results: Path, tables: Path, also: Mapping[str, set[str]] = MappingProxyType({})) -> pd.DataFrame:
    """The leaderboard anew from all cells; runs are told by the specifications in `tables`, and by `also`."""
    path = results / "leaderboard.csv"
    with locks.claim(path):  # the last one who writes it has seen all cells
        everything = leaderboard.gather(results, _tables(tables) | dict(also))
        leaderboard.write(everything, path)
    return everything


def blocks(specification: spec.Spec) -> list[table.Block]:
    """The specification as the table has it."""
    return [_block(block) for block in specification.blocks]


def tune(
    specification: spec.Spec,
    stem: str,
    results: Path,
    tables: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    progress: bool = True,
) -> Path:
    """Short runs over the grids of [tune]; a CSV with one row per grid point.

    Classifiers are judged on the validation part only, other problems by what their curves end with, such as Phi.
    """
    if specification.tune is None:
        raise BadInput("this specification has no [tune] part; see tables/table2.toml for one")
    grids = specification.tune.grids
    trials = [
        (block, name, dict(zip(grid, values, strict=True)))
        for block in specification.blocks
        for name, grid in grids.get(block.title, {}).items()
        for values in itertools.product(*grid.values())
    ]
    work = functools.partial(_try, specification=specification, results=results, device=device, progress=progress)
    rows = side_by_side(work, trials, jobs, f"tune {specification.title}", progress)
    path = tables / f"{stem}-tune.csv"
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return path


def _try(
    trial: tuple[spec.BlockSpec, str, dict[str, Any]],
    specification: spec.Spec,
    results: Path,
    device: str,
    progress: bool,
) -> dict[str, Any]:
    """One row of the tuning's CSV."""
    block, name, point = trial
    short = specification.tune
    assert short is not None
    problem = block.problem | {key[8:]: value for key, value in point.items() if key.startswith("problem.")}
    trainer = block.trainers[name] | {key: value for key, value in point.items() if not key.startswith("problem.")}
    end = {"rounds": short.rounds, "sfo": short.sfo, "exchanges": short.exchanges}
    one = specification.run(
        block, name, specification.seeds[0],
        problem=problem, trainer_settings=trainer, curve=[], curve_points=1, **end,
    )  # fmt: skip
    row: dict[str, Any] = {"dataset": one.data_set, "method": name, **one.budget.named, **point}
    built = one.build_problem()
    try:
        folder = run.train(one, results, device=device, progress=progress)
        record = files.read_sealed(folder / "run.json")
        if not isinstance(built, Classifier):
            ends = {key: value for key, value in record["final"].items() if isinstance(value, float)}
            return row | {"diverged": False, **ends}
        row |= {"diverged": False, "validation_clean": record["clean"]["validation"]}
        attacks = [(attack.name, at) for attack in short.attacks.get(block.title, []) for at in attack.build()]
        for cell in run.attack(folder, attacks, problem=built, part="validation", device=device, progress=progress):
            row[f"{cell['attack']}@{cell['eps']:g}"] = cell["robust_acc"]
    except Diverged:
        row |= {"diverged": True}
    return row


def _tables(folder: Path) -> dict[str, set[str]]:
    """Which runs each specification beside this one asks for, itself and its profiles."""
    found = {}
    for path in sorted(folder.glob("*.toml")):
        if "blocks" not in spec.content(path):  # a specification of another kind, such as table1.toml
            continue
        specification = spec.read(path)
        found[path.stem] = {one.id for _, one in specification.runs()}
        for profile in specification.profiles:
            found[f"{path.stem}-{profile}"] = {one.id for _, one in specification.with_profile(profile).runs()}
    return found


def _attacks(block: spec.BlockSpec) -> list[tuple[str, Attack]]:
    return [(attack.name, one) for attack in block.attacks for one in attack.build()]


def _cells(folder: Path, n_examples: int | None, block: spec.BlockSpec) -> list[tuple[Path, dict[str, Any] | None]]:
    """The files of the cells that the table wants of a finished run, with their contents where they exist."""
    record = files.read_sealed(folder / "run.json")
    paths = _paths(folder, n_examples, block, record["seed"])
    return [(path, run.known_cell(path, record["checkpoint_sha256"])) for path in paths]


def _block(block: spec.BlockSpec) -> table.Block:
    columns = tuple((attack.name, eps) for attack in block.attacks for eps in attack.eps)
    dataset, chosen = str(block.problem["dataset"]), block.problem.get("classes")
    return table.Block(
        block.title,
        dataset,
        tuple(block.trainers),
        columns,
        classes=len(chosen or catalogue.find(dataset, catalogue.IMAGES).classes),
        universal=frozenset(attack.name for attack in block.attacks if attack_named(attack.name).universal),
    )


def _curve(folder: Path) -> pd.DataFrame:
    record = files.read_sealed(folder / "run.json")
    added = {name: record[name] for name in ("dataset", "method", "seed")}
    ledger = {name: record["ledger"][name] for name in ("nodes", "directed_edges")}
    return run.curve(folder, record).assign(**added, **ledger)


def _pictures(runs: Mapping[Path, spec.BlockSpec], specification: spec.Spec) -> tuple[list[Any], list[Any]]:
    """The trained y of every method that has one, and the UAPs against every method, of the first seed."""
    trained, uaps = [], []
    for folder, block in runs.items():
        record = files.read_sealed(folder / "run.json")
        if record["seed"] != specification.seeds[0]:
            continue
        title = f"{record['dataset']}, {record['method']}"
        if record.get("perturbation_sha256") is not None:
            data = files.verified(folder / "perturbation.safetensors", record["perturbation_sha256"])
            y = safetensors.torch.load(data)["y"]
            trained.append((title, y, record["settings"]["problem"]["eps"]))
        for path, cell in _cells(folder, specification.n_examples, block):
            if cell is not None and cell["perturbation_file"] is not None:
                data = files.verified(path.with_name(cell["perturbation_file"]), cell["perturbation_sha256"])
                y = safetensors.torch.load(data)["y"]
                uaps.append((title, y, cell["eps"]))
    return trained, uaps

"""A whole table: train and attack what is missing, gather, render. Files that exist are work that is done."""

import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import pandas as pd
import safetensors.torch

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.foreign import attack_named
from robustbench_dec.data import catalogue
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.rendering import attacks_table as table
from robustbench_dec.rendering import curves as plots
from robustbench_dec.rendering import networks_table as network_table
from robustbench_dec.running import cells, train
from robustbench_dec.running.pool import pool, share_of_cores
from robustbench_dec.specs import table as spec
from robustbench_dec.store import locks
from robustbench_dec.store import results as store

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
    return [folder / "run.json", *_paths(folder, n_examples, block, one.seed)]


def _paths(folder: Path, n_examples: int | None, block: spec.BlockSpec, seed: int) -> list[Path]:
    """The files of the cells that the table wants of a run."""
    return [cells.cell_path(folder, name, at, n_examples, seed) for name, at in _attacks(block)]


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
    pairs = zip(_attacks(block), _paths(folder, n_examples, block, seed), strict=True)
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
    return [(path, cells.known_cell(path, record["checkpoint_sha256"])) for path in paths]


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
    return store.curve(folder, record).assign(**added, **ledger)


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

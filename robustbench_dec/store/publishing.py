"""Publishing: what of a results folder its leaderboard shows.

A folder with a list, published.json, shows the cells of the tables and the single cells that are on it, and nothing
else that lies there; a folder without one shows every cell. Only `publish` and `withdraw` change the list. No file of a
run is removed: what is withdrawn is not shown any more.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.store.bits import MOST_FLIPS
from robustbench_dec.store.records import CellRecord, PublishedRecord
from robustbench_dec.store.results import Cell, Results, Run, run_at

ByRun = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Change:
    """The list as it will be, the cells that it has more or fewer, and their files in the folder of results."""

    record: PublishedRecord
    cells: tuple[Cell, ...]
    files: tuple[Path, ...]


def selected(sources: Sequence[Path], attacks: Collection[str] = ()) -> list[Cell]:
    """The test cells in folders of results, in runs' folders and in files of cells; only those of `attacks`, if any."""
    found = [cell for source in sources for cell in _in(source)]
    labels = {cell.record.attack for cell in found}
    for name in attacks:
        if name not in labels:
            raise BadInput(f"no cell of the attack '{name}' there; there are: {', '.join(sorted(labels)) or 'none'}")
    return [cell for cell in found if not attacks or cell.record.attack in attacks]


@contextlib.contextmanager
def publish(cells: Sequence[Cell], results: Results) -> Iterator[Change]:
    """Copy cells and the records of their runs to `results` where they are not there yet. The list is not written.

    If the block fails, in which what follows from the new list is made and written, the copies are taken back.
    """
    record = _list_of(results)
    asked = [record.own, record.users, *(table.cells for table in results.tables().values())]
    new = [cell for cell in cells if not _listed(asked, cell)]
    for cell in new:
        _check_home(cell, results.run(cell.run.id))
    here = [results.run(cell.run.id).cell(cell.stem) for cell in new]
    with undone(lambda: _files(here)):
        for cell in new:
            cell.copy_to(results.run(cell.run.id))
        yield Change(record.model_copy(update={"users": _more(record.users, here)}), tuple(here), _files(here))


@contextlib.contextmanager
def undone(there: Callable[[], Iterable[Path]]) -> Iterator[None]:
    """If the block fails, those files are removed that are there after it and were not before, and their folders."""
    before = {*there()}
    try:
        yield
    except BaseException:
        for path in {*there()} - before:
            files.remove(path)
            with contextlib.suppress(OSError):  # a folder that has something else in it stays
                for folder in path.parents:
                    folder.rmdir()
        raise


def check(results: Results) -> None:
    """Refuse a folder without a list."""
    _list_of(results)


def withdraw(cells: Sequence[Cell], results: Results) -> Change:
    """Without these cells, as far as they are single ones on the list; what a table asks for stays with the table."""
    record = _list_of(results)
    there = [results.run(cell.run.id).cell(cell.stem) for cell in cells]  # wherever they were published from
    gone = [cell for cell in there if _listed([record.own, record.users], cell)]
    if not gone:
        tables = [stem for stem, table in results.tables().items() for cell in cells if _listed([table.cells], cell)]
        by = f"; {tables[0]} asks for what is there, and is withdrawn as tables/{tables[0]}.toml" if tables else ""
        raise BadInput(f"none of these {len(cells)} cells is on the list {results.publication} by itself{by}")
    left = record.model_copy(update={"own": _fewer(record.own, gone), "users": _fewer(record.users, gone)})
    lists = [left.own, left.users, *(table.cells for table in results.tables().values())]
    unneeded = [path for cell in gone if not _listed(lists, cell) for path in cell.files]
    lonely = {cell.run.id: cell.run for cell in gone if not any(cell.run.id in each for each in lists)}
    return Change(left, tuple(gone), (*unneeded, *(path for run in lonely.values() for path in run.record_files)))


def with_own(results: Results, cells: Sequence[Cell]) -> PublishedRecord:
    """The list with cells of the suite's own on it that no table asks for."""
    record = _list_of(results)
    return record.model_copy(update={"own": _more(record.own, cells)})


def with_table(results: Results, stem: str) -> PublishedRecord:
    """The list with a table on it."""
    record = _list_of(results)
    return record.model_copy(update={"tables": tuple(sorted({*record.tables, stem}))})


def without_table(results: Results, stem: str) -> PublishedRecord:
    """The list without a table."""
    record = _list_of(results)
    if stem not in record.tables:
        raise BadInput(
            f"{results.publication} lists no table '{stem}'; there are: {', '.join(record.tables) or 'none'}"
        )
    return record.model_copy(update={"tables": tuple(each for each in record.tables if each != stem)})


def _list_of(results: Results) -> PublishedRecord:
    record = results.published()
    if record is None:
        raise BadInput(
            f"{results.root} has no list {results.publication.name}, so its leaderboard shows every cell there is; "
            "--to is the results folder of a checkout of this repository"
        )
    return record


def _in(source: Path) -> Iterable[Cell]:
    if source.suffix == ".json" and source.is_file():
        run = run_at(source.parent.parent)
        wanted = (run.folder.resolve().name, source.stem)
        return list(Results(run.folder.resolve().parents[1]).cells(lambda cell: (cell.run.id, cell.stem) == wanted))
    if source.is_dir() and Run(source).exists:
        root, run_id = source.resolve().parents[1], source.resolve().name
        return list(Results(root).cells(lambda cell: cell.run.id == run_id))
    if (source / "runs").is_dir():
        return list(Results(source).cells())
    raise BadInput(f"no cells in {source}; give a folder of results, a run's folder or one attacks/<cell>.json")


def _check_home(cell: Cell, home: Run) -> None:
    if home.exists and home.record.checkpoint_sha256 != cell.run.record.checkpoint_sha256:
        raise BadInput(
            f"{home.folder} is about another checkpoint than {cell.run.folder}; its cells cannot stand there"
        )
    for other in home.cells() if home.exists else ():
        differ = _before_differ(cell.record, other.record)
        if differ > MOST_FLIPS * cell.record.n_examples + 1:
            raise BadInput(
                f"{cell.run.folder / cell.stem} has {differ} images that its network gets right or wrong "
                f"without attack where {other.stem} in {home.folder} says otherwise; one is not about this network"
            )
    there = home.cell(cell.stem)
    if there.exists and there.record != cell.record:
        raise BadInput(f"{home.folder} has other outcomes in its cell {cell.stem}; both cannot stand there")


def _before_differ(mine: CellRecord, other: CellRecord) -> int:
    """On how many of the images of both a network's outcomes without attack differ; they may on another CPU."""
    first, second = mine.right_before, other.right_before
    if first is None or second is None or mine.checkpoint_sha256 != other.checkpoint_sha256 or mine.part != other.part:
        return 0
    images = min(len(first), len(second))
    return int((first[:images] != second[:images]).sum())


def _listed(lists: Iterable[ByRun], cell: Cell) -> bool:
    return any(cell.stem in each.get(cell.run.id, ()) for each in lists)


def _more(listed: ByRun, cells: Iterable[Cell]) -> dict[str, tuple[str, ...]]:
    stems = {run_id: {*each} for run_id, each in listed.items()}
    for cell in cells:
        stems.setdefault(cell.run.id, set()).add(cell.stem)
    return {run_id: tuple(sorted(stems[run_id])) for run_id in sorted(stems)}


def _fewer(listed: ByRun, cells: Sequence[Cell]) -> dict[str, tuple[str, ...]]:
    gone = {(cell.run.id, cell.stem) for cell in cells}
    left = {run_id: tuple(stem for stem in each if (run_id, stem) not in gone) for run_id, each in listed.items()}
    return {run_id: each for run_id, each in left.items() if each}


def _files(cells: Sequence[Cell]) -> tuple[Path, ...]:
    runs = {cell.run.id: cell.run for cell in cells}
    return (
        *(path for run in runs.values() for path in run.record_files),
        *(path for cell in cells for path in cell.files),
    )

"""Results: the folder where runs and their cells are kept. No other room knows the name of a file in it.

    results = Results(Path("results"))
    results.runs()                  the finished runs, by id
    run = results.run(run_id)       one run, finished or not
    run.exists, run.finished()      is there a record; are its files there and whole
    run.record                      RunRecord, read and verified once
    run.model(), run.tensors()      x-bar as a network; the stacks X and Y, after their bytes were checked
    run.curve(), run.perturbation() what was measured by the round; the mean trained y as an image, or None
    run.cells(), run.cell(key)      its cells that are there; one by its CellKey or by its stem
    cell.record, cell.perturbation()
    results.cells()                 every test cell of a present checkpoint
    results.tables()                what each rendered table asked for, of those that are published
    results.published()             what the leaderboard shows; None: every cell

A run's folder, results/runs/<id>/:
    checkpoint.safetensors   X (n, d), Y (n, q) if there is one, and the network's card
    network.safetensors      the average network, where the run keeps it (see zoo.py), and its card network.json
    perturbation.safetensors the mean trained y as an image
    curve.csv                accuracy and costs over the rounds
    run.json                 RunRecord; written last: a run that has it is done
    diverged.json            DivergedRecord, alone: a run that came to no end, in a table that says so
    attacks/<stem>.json      CellRecord, one per attack and radius; <stem>.safetensors its universal perturbation
    resume.safetensors       where an unfinished run stands, and resume-former.safetensors, where it stood before; both
                             gone when it is done

JSON files are sealed (see files.py) and tell the sha256 of the files beside them, so that a damaged one is found out.
Who trains a run or computes a cell claims it (see locks.py): several processes may work in one folder.
"""

import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypedDict

import pandas as pd
import safetensors.torch
from torch import Tensor, nn

from robustbench_dec import bars, files
from robustbench_dec.errors import BadInput
from robustbench_dec.store import locks
from robustbench_dec.store.checkpoint import load_checkpoint
from robustbench_dec.store.records import (
    CellRecord,
    ClaimRecord,
    DivergedRecord,
    PublishedRecord,
    RunRecord,
    TableRecord,
)

RUN_RECORD = "run.json"
CHECKPOINT = "checkpoint.safetensors"
PERTURBATION = "perturbation.safetensors"
CURVE = "curve.csv"
JOURNAL = "resume.safetensors"
DIVERGED = "diverged.json"
CELLS = "attacks"
BATCHES = "-batches.json"


@dataclass(frozen=True)
class CellKey:
    """Which cell of a run: a stem that is readable, with a digest of all that decides its number but the checkpoint."""

    stem: str

    @classmethod
    def of(cls, name: str, eps: float, decides: Sequence[object]) -> "CellKey":
        """The key of an attack under the name by which it was asked for, at a radius, with all that decides."""
        readable = re.sub(r"\W+", "-", re.sub(r"\.py(:\w+)?$|\.safetensors$", "", Path(name).name))
        return cls(f"{readable}-{eps:g}-{files.digest(decides)[:8]}")


@dataclass(frozen=True)
class RunFiles:
    """The bytes of a finished run's files beside its record."""

    checkpoint: bytes
    curve: bytes
    perturbation: bytes | None

    def digests(self) -> "Digests":
        """What the record tells of them."""
        y = self.perturbation
        return {
            "checkpoint_sha256": hashlib.sha256(self.checkpoint).hexdigest(),
            "curve_sha256": hashlib.sha256(self.curve).hexdigest(),
            "perturbation_sha256": None if y is None else hashlib.sha256(y).hexdigest(),
        }


class Digests(TypedDict):
    """The sha256 of a run's files."""

    checkpoint_sha256: str
    curve_sha256: str
    perturbation_sha256: str | None


class Cell:
    """One attack at one radius on one run, computed or not."""

    def __init__(self, run: "Run", stem: str) -> None:
        self.run, self.stem = run, stem
        self._path = run.folder / CELLS / f"{stem}.json"
        self._y = self._path.with_suffix(".safetensors")

    @property
    def exists(self) -> bool:
        return self._path.is_file()

    @cached_property
    def record(self) -> CellRecord:
        """What the cell says, read and verified once."""
        return CellRecord.read(self._path)

    def known(self) -> CellRecord | None:
        """Its record, if it is there and is about the run's checkpoint; Damaged if it or its perturbation is."""
        if not self.exists:
            return None
        record = CellRecord.read(self._path)
        if record.checkpoint_sha256 != self.run.record.checkpoint_sha256:
            return None
        if record.perturbation_sha256 is not None:
            files.verified(self._y, record.perturbation_sha256)
        self.__dict__["record"] = record
        return record

    def usable(self, announce: bool = False) -> CellRecord | None:
        """Its record, if it needs no work: a damaged one does, which is announced by the one who does it."""
        try:
            return self.known()
        except files.Damaged as error:
            if announce:
                bars.say(f"{error.fact}; the cell is computed again")
            return None

    def perturbation(self) -> Tensor | None:
        """The universal perturbation that was applied, after its bytes were checked."""
        sha256 = self.record.perturbation_sha256
        return None if sha256 is None else safetensors.torch.load(files.verified(self._y, sha256))["y"]

    @property
    def has_perturbation(self) -> bool:
        """Whether its universal perturbation is here."""
        return self._y.is_file()

    @property
    def files(self) -> list[Path]:
        """Those of its files that are there."""
        return [path for path in (self._path, self._y) if path.is_file()]

    def copy_to(self, home: "Run", submitted: Literal["", "user"] | None = None) -> None:
        """Copy it to the same run in another folder, with what that run has there by way of records; checked bytes.

        `submitted` tells on whose wish it is there, where that is not as here.
        """
        self.run.copy_record_to(home)
        there = home.cell(self.stem)
        if there.usable() is None:
            y = self.record.perturbation_sha256
            changed = {} if submitted is None else {"submitted": submitted}
            there.write(self.record.model_copy(update=changed), None if y is None else files.verified(self._y, y))

    def claim(self, wait: bool = True) -> AbstractContextManager[None]:
        """Be the only one who computes it."""
        return locks.claim(self._path, wait=wait)

    @property
    def batches(self) -> Path:
        """What is done of it before it is whole."""
        return self._path.with_name(f".{self.stem}{BATCHES}")

    def write(self, record: CellRecord, perturbation: bytes | None) -> None:
        """Write it whole, its record last."""
        if perturbation is not None:
            files.write_bytes(self._y, perturbation)
        record.write(self._path)
        self.__dict__["record"] = record
        files.remove(self.batches)


class Run:
    """One training, finished or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What its cells say of it: id, data set, method, seed."""
        return self.record.id, self.record.dataset, self.record.method, self.record.seed

    @property
    def exists(self) -> bool:
        """Whether it has a record, which is written last."""
        return (self.folder / RUN_RECORD).is_file()

    @cached_property
    def record(self) -> RunRecord:
        """What the run says, read and verified once."""
        return RunRecord.read(self.folder / RUN_RECORD)

    @property
    def has_curve(self) -> bool:
        """Whether its curve is here: a network that was only shipped has none."""
        return (self.folder / CURVE).is_file()

    @property
    def has_perturbation(self) -> bool:
        """Whether its trained y is here."""
        return (self.folder / PERTURBATION).is_file()

    @property
    def has_checkpoint(self) -> bool:
        """Whether its checkpoint is here: those of committed runs are not in a fresh clone."""
        return (self.folder / CHECKPOINT).is_file()

    def finished(self, checkpoint: bool = False, announce: bool = False) -> bool:
        """Whether it is done and its files are whole; a damaged one is announced by the one who trains it again."""
        if not self.exists or (checkpoint and not self.has_checkpoint):
            return False
        try:
            record = RunRecord.read(self.folder / RUN_RECORD)
            files.verified(self.folder / CURVE, record.curve_sha256)
            if record.perturbation_sha256 is not None:
                files.verified(self.folder / PERTURBATION, record.perturbation_sha256)
            if self.has_checkpoint:
                files.verified(self.folder / CHECKPOINT, record.checkpoint_sha256)
        except files.Damaged as error:
            if announce:
                bars.say(f"{error.fact}; the run is trained again")
            return False
        self.__dict__["record"] = record
        return True

    def claim(self, wait: bool = True, meanwhile: Callable[[], object] = lambda: None) -> AbstractContextManager[None]:
        """Be the only one who trains it (see locks.claim)."""
        return locks.claim(self.folder / RUN_RECORD, wait=wait, meanwhile=meanwhile)

    @property
    def journal(self) -> Path:
        """Where it stands before it is finished; what it replaces is kept beside it."""
        return self.folder / JOURNAL

    def tensors(self) -> dict[str, Tensor]:
        """The stacks X (n, d) and, if it has one, Y (n, q), after their bytes were checked."""
        return safetensors.torch.load(self._checkpoint())

    def model(self, device: str = "cpu") -> nn.Module:
        """The network with the average parameters x-bar, after its bytes were checked."""
        self._checkpoint()
        return load_checkpoint(self.folder / CHECKPOINT, device, self.record.named.model).to(device)

    def _checkpoint(self) -> bytes:
        path = self.folder / CHECKPOINT
        if not path.is_file():
            raise BadInput(f"{path} is missing; train the run again to attack it")
        try:
            return files.verified(path, self.record.checkpoint_sha256)
        except files.Damaged as error:
            raise BadInput(
                f"{path} has not the sha256 that {RUN_RECORD} tells; it is damaged or was changed, so train it again"
            ) from error

    def curve(self) -> pd.DataFrame:
        """What was measured by the round, after its bytes were checked."""
        return pd.read_csv(io.BytesIO(files.verified(self.folder / CURVE, self.record.curve_sha256)))

    def perturbation(self) -> Tensor | None:
        """The mean trained y as an image, None for a run without one, after its bytes were checked."""
        sha256 = self.record.perturbation_sha256
        path = self.folder / PERTURBATION
        return None if sha256 is None else safetensors.torch.load(files.verified(path, sha256))["y"]

    def cells(self) -> list[Cell]:
        """Its cells that are there, of any part and checkpoint."""
        paths = sorted((self.folder / CELLS).glob("*.json"))
        return [Cell(self, path.stem) for path in paths if not path.name.startswith(".")]  # others are under way

    def cell(self, key: CellKey | str) -> Cell:
        """One of its cells, computed or not."""
        return Cell(self, _plain(key if isinstance(key, str) else key.stem))

    def find(self, stem: str) -> Cell | None:
        """A cell by the name that a table says, which may come from a user's file; None if there is none."""
        return cell if _is_plain(stem) and (cell := Cell(self, stem)).exists else None

    def write(self, record: RunRecord, content: RunFiles) -> None:
        """Write its files, the record last, and forget where it stood."""
        if content.perturbation is not None:
            files.write_bytes(self.folder / PERTURBATION, content.perturbation)
        files.write_bytes(self.folder / CHECKPOINT, content.checkpoint)
        files.write_bytes(self.folder / CURVE, content.curve)
        record.write(self.folder / RUN_RECORD)
        self.__dict__["record"] = record

    @property
    def divergence(self) -> str | None:
        """How it diverged, if it did and a table wants to say so."""
        path = self.folder / DIVERGED
        return DivergedRecord.read(path).sentence if path.is_file() else None

    def write_divergence(self, sentence: str) -> None:
        """Remember that the run diverged; where it stood is of no more use."""
        DivergedRecord(id=self.id, sentence=sentence).write(self.folder / DIVERGED)
        for path in self.folder.glob(Path(JOURNAL).stem + "*.safetensors"):
            files.remove(path)

    def adopt(self, record: RunRecord) -> None:
        """Make a home for the cells of a network that was trained elsewhere: its record, and no other file."""
        if not self.exists:
            record.write(self.folder / RUN_RECORD)
        elif self.record.checkpoint_sha256 != record.checkpoint_sha256:
            raise BadInput(
                f"{self.folder} is about another checkpoint than {record.id}; make the entry of the zoo again"
            )

    def copy_record_to(self, home: "Run") -> None:
        """Copy its record, curve and trained y, all but its checkpoint, to a folder that has no such run yet.

        Refused where the folder has a run of that name with another checkpoint.
        """
        for name, sha256 in ((CURVE, self.record.curve_sha256), (PERTURBATION, self.record.perturbation_sha256)):
            if not home.exists and (self.folder / name).is_file():
                files.write_bytes(home.folder / name, files.verified(self.folder / name, sha256))
        home.adopt(self.record)

    @property
    def record_files(self) -> list[Path]:
        """Its record, or how it diverged, and what lies beside it, all but its checkpoint and its cells."""
        names = (RUN_RECORD, CURVE, PERTURBATION, DIVERGED)
        return [path for name in names if (path := self.folder / name).is_file()]

    def sweep(self) -> None:
        """Remove the temporary files that killed processes left behind."""
        files.sweep(self.folder)

    def abandon(self) -> None:
        """Remove its folder if it is empty: of a run that cannot be, nothing stays."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def tidy(self) -> None:
        """Remove what killed processes left of finished work: temporary files, locks, journals and batches."""
        files.sweep(self.folder)
        locks.sweep(self.folder)
        journals = self.folder.glob(Path(JOURNAL).stem + "*.safetensors")
        if any(journals) and self.has_checkpoint:
            with contextlib.suppress(locks.Busy), self.claim(wait=False):
                if self.finished(checkpoint=True):
                    for path in self.folder.glob(Path(JOURNAL).stem + "*.safetensors"):
                        files.remove(path)
        for batches in (self.folder / CELLS).glob(f".*{BATCHES}"):
            cell = self.cell(batches.name[1:].removesuffix(BATCHES))
            if cell.exists:
                with contextlib.suppress(locks.Busy), cell.claim(wait=False):
                    files.remove(batches)


class ClaimRun:
    """One run of a table of claims, measured or not: one sealed file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exists(self) -> bool:
        return self._path.is_file()

    def usable(self, announce: bool = False) -> ClaimRecord | None:
        """Its record, if it needs no work: a damaged one does, which is announced by the one who does it."""
        if not self.exists:
            return None
        try:
            return ClaimRecord.read(self._path)
        except files.Damaged as error:
            if announce:
                bars.say(f"{error.fact}; it is measured again")
            return None

    def claim(self) -> AbstractContextManager[None]:
        """Be the only one who measures it."""
        return locks.claim(self._path)

    def write(self, record: ClaimRecord) -> None:
        record.write(self._path)


class Claims:
    """The measured runs of one table of claims."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, run_id: str) -> ClaimRun:
        """One run, measured or not."""
        return ClaimRun(self._folder / f"{_plain(run_id)}.json")

    def ids(self) -> list[str]:
        """The runs that are measured."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))


class Results:
    """A folder of runs, cells and the leaderboard."""

    def __init__(self, root: Path, listed: PublishedRecord | None = None) -> None:
        self.root, self._listed = root, listed

    def listing(self, record: PublishedRecord) -> "Results":
        """The same folder as it will be when this is its list, which is not written: what follows is made first."""
        return Results(self.root, record)

    @property
    def leaderboard(self) -> Path:
        """The CSV of all cells."""
        return self.root / "leaderboard.csv"

    @property
    def zoo(self) -> Path:
        """The folder of trained networks that come with the results."""
        return self.root / "zoo"

    def submission(self, name: str, said: Mapping[str, bytes]) -> dict[Path, bytes]:
        """The files in which what somebody said of what they submitted is kept; refused if others said something else.

        `said`: the claim and the card, by the names of their files.
        """
        home = self.root / "submissions" / _plain(name)
        kept = {home / file: data for file, data in said.items()}
        for path, data in kept.items():
            if path.is_file() and path.read_bytes() != data:
                raise BadInput(f"{path} is of another submission; give this one's folder another name than {name}")
        return kept

    def run(self, run_id: str) -> Run:
        """One run, finished or not."""
        return Run(self.root / "runs" / _plain(run_id))

    def find(self, run_id: str) -> Run | None:
        """A finished run by the name that a table says, which may come from a user's file; None if there is none."""
        return run if _is_plain(run_id) and (run := self.run(run_id)).exists else None

    def runs(self) -> list[Run]:
        """The runs that have a record, by id."""
        return [Run(path.parent) for path in sorted((self.root / "runs").glob(f"*/{RUN_RECORD}"))]

    def cells(self, wanted: Callable[[Cell], bool] = lambda _: True) -> Iterator[Cell]:
        """Every test cell of a present checkpoint that is wanted, run by run.

        Validation accuracies choose settings and rank nobody; a cell of an earlier checkpoint awaits a new one.
        """
        for folder in sorted((self.root / "runs").glob(f"*/{CELLS}")):
            run = Run(folder.parent)
            cells = [cell for cell in run.cells() if wanted(cell)]
            if cells and not run.exists:
                raise BadInput(
                    f"the cells in {folder} belong to a run, but {folder.parent / RUN_RECORD} is missing; restore it "
                    f"or delete {folder.parent}"
                )
            twins: dict[str, Cell] = {}
            for cell in cells:
                record = cell.record
                if (record.run_id, record.dataset, record.method, record.seed) != run.identity:
                    raise BadInput(
                        f"{folder / cell.stem}.json is a cell of {record.run_id}, but lies in the folder of {run.id}; "
                        "move it back"
                    )
                if record.part == "test" and record.checkpoint_sha256 == run.record.checkpoint_sha256:
                    twin = twins.setdefault(record.model_dump_json(), cell)
                    if twin is not cell:
                        raise BadInput(
                            f"{folder / cell.stem}.json is {twin.stem}.json under a second name, which would count "
                            "twice; delete the copy"
                        )
                    yield cell

    def claims(self, table: str) -> Claims:
        """The measured runs of a table of claims."""
        return Claims(self.root / _plain(table))

    def tuning(self) -> "Results":
        """Where runs are kept that were only made to choose settings."""
        return Results(self.root / "tune")

    def tables(self) -> dict[str, TableRecord]:
        """What each rendered table asked for, by the table's stem; of published tables only, where there is a list."""
        found = sorted((self.root / "tables").glob("[!.]*.json"))
        return {path.stem: TableRecord.read(path) for path in found if self.shows(path.stem)}

    @property
    def publication(self) -> Path:
        """The list of what the leaderboard shows. A folder without one shows every cell."""
        return self.root / "published.json"

    def published(self) -> PublishedRecord | None:
        """What the leaderboard shows; None: every cell."""
        if self._listed is not None:
            return self._listed
        return PublishedRecord.read(self.publication) if self.publication.is_file() else None

    def shows(self, table: str) -> bool:
        """Whether the cells of a table are on the leaderboard as soon as it is rendered."""
        published = self.published()
        return published is None or table in published.tables

    def table_file(self, stem: str, record: TableRecord) -> dict[Path, bytes]:
        """The file that remembers what a table asked for, and what is to be written there."""
        return {self.root / "tables" / f"{_plain(stem)}.json": record.content()}

    def claim_leaderboard(self) -> AbstractContextManager[None]:
        """Be the only one who writes the leaderboard."""
        return locks.claim(self.leaderboard)

    def sweep(self) -> None:
        """Remove the temporary files and locks that killed processes left behind."""
        files.sweep(self.root)
        locks.sweep(self.root)


def run_at(folder: Path) -> Run:
    """The finished run in a folder that a user names; refused if there is none."""
    run = Run(folder)
    if not run.exists:
        raise BadInput(f"no finished run in {folder}; `robustbench-dec train` makes one and prints its folder")
    return run


def _is_plain(name: str) -> bool:
    """Whether a name is one that can be printed, and does not lead out of the results."""
    return name not in ("", ".", "..") and name.isprintable() and not any(character in name for character in "/\\")


def _plain(name: str) -> str:
    if not _is_plain(name):
        raise BadInput(f"'{name}' is no name of a run or a cell; they are like mnist-dream-s0-0123456789")
    return name

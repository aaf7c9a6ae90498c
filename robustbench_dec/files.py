"""Files that are either whole or absent: every write goes to a temporary file, is synced, and is renamed into place."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robustbench_dec.errors import BadInput


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step; a full disk or a missing permission is a BadInput that names the file."""
    produce(path, lambda temporary: _write_and_sync(temporary, data))


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by `content` as indented JSON; NaN is refused, because other JSON readers refuse it."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file; a file that is not JSON is a BadInput that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} should be JSON but is not ({error}); delete it to have it made again") from error


def produce(path: Path, writer: Callable[[Path], None]) -> None:
    """Let `writer` fill a temporary file beside `path`, then rename it to `path`: readers never see a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Same suffix, because some writers choose their format by it.
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            writer(temporary)
            os.chmod(temporary, 0o644)  # mkstemp gives 0600; results are for everyone to read
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"cannot write {path} ({reason}); free space or choose a folder that you may write to"
        ) from error


def sha256(path: Path) -> str:
    """The hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(content: Any) -> str:
    """The hexadecimal SHA-256 of a JSON-able value in its canonical form (sorted keys, no spaces)."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _write_and_sync(path: Path, data: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())

"""Locks: who works on which file, so that processes share a results folder and nothing is computed twice.

A claim is a lock of the kernel (flock) on a hidden file beside the one that is to be made. The kernel releases it when
its process ends, however it ends: a lock file that a killed process left behind blocks nobody. Folders that several
machines share need a file system whose flock they share too, such as NFS 4.
"""

import contextlib
import datetime
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from robustbench_dec import bars as progress_bars
from robustbench_dec import files

PATIENCE = 1.0
"""Seconds after which one who waits says for whom."""
PAUSE = 0.05
"""Seconds between two looks at a claim that is held."""


class Busy(Exception):
    """Another process works on this; the message tells which."""


@contextlib.contextmanager
def claim(path: Path, *, wait: bool = True, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Be the only one who makes `path`; raises Busy where another does, unless told to wait for it.

    `meanwhile` is called again and again by one who waits. Inside, look again whether the work is done: the former
    holder may have done it.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _try(lock)
    began, told = time.monotonic(), False
    while descriptor is None:
        if not wait:
            raise Busy(f"{path} is being made by {_holder(lock)}")
        if not told and time.monotonic() - began > PATIENCE:
            progress_bars.say(f"waiting for {path}, which is being made by {_holder(lock)}")
            told = True
        time.sleep(PAUSE)
        meanwhile()
        descriptor = _try(lock)
    try:
        yield
    finally:
        _release(lock, descriptor)


def sweep(folder: Path) -> None:
    """Remove the lock files that killed processes left behind."""
    for lock in folder.rglob(".*.lock"):
        with contextlib.suppress(OSError):  # gone by now, or the folder is for reading only
            descriptor = os.open(lock, os.O_RDWR)
            try:
                if _lock(descriptor) and _is(descriptor, lock):
                    lock.unlink()
            finally:
                os.close(descriptor)


def _try(lock: Path) -> int | None:
    """The descriptor of the lock, which is now ours; None if another process has it."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
            if not _lock(descriptor):
                os.close(descriptor)
                return None
            if _is(descriptor, lock):  # else its holder has removed it since we opened it
                break
            os.close(descriptor)
        try:
            since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps({"host": files.HOST, "pid": os.getpid(), "since": since}).encode())
        except OSError:
            _release(lock, descriptor)
            raise
        return descriptor
    except OSError as error:
        raise files.unwritable(lock, error) from error


def _release(lock: Path, descriptor: int) -> None:
    """Remove the file while it is still ours, then let go of it."""
    with contextlib.suppress(OSError):
        lock.unlink()
    os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(descriptor: int, path: Path) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(lock: Path) -> str:
    try:
        content = json.loads(lock.read_text())
        return f"process {content['pid']} on {content['host']} since {content['since']}"
    except (OSError, ValueError, KeyError):  # it is just coming or going
        return "another process"

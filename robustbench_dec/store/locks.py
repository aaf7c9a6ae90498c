"""Locks: who works on which file, so that processes share a results folder and nothing is computed twice.

A claim is a lock of the kernel (flock, by filelock) on a hidden file beside the one that is to be made. The kernel
releases it when its process ends, however it ends: a lock file that a killed process left behind blocks nobody. Folders
that several machines share need a file system whose flock they share too, such as NFS 4.
"""

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

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
    began, announced = time.monotonic(), False
    while (release := _try(lock)) is None:
        if not wait:
            raise Busy(f"{path} is being made by {_holder(lock)}")
        if not announced and time.monotonic() - began > PATIENCE:
            progress_bars.say(f"waiting for {path}, which is being made by {_holder(lock)}")
            announced = True
        time.sleep(PAUSE)
        meanwhile()
    try:
        yield
    finally:
        release()


def sweep(folder: Path) -> None:
    """Remove the lock files that killed processes left behind."""
    for lock in folder.rglob(".*.lock"):
        with contextlib.suppress(OSError, Timeout):  # held, gone by now, or the folder is for reading only
            held = FileLock(lock, timeout=0, fallback_to_soft=False)
            with held:
                lock.unlink()


def _try(lock: Path) -> Callable[[], None] | None:
    """Take the lock and sign it; what gives it back, or None if another process has it."""
    held = FileLock(lock, timeout=0, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held.acquire()
    except Timeout:
        return None
    except OSError as error:
        raise files.unwritable(lock, error) from error

    def release() -> None:
        with contextlib.suppress(OSError):
            lock.unlink()  # while it is still ours: who has opened it finds its name gone, and tries again
        held.release()

    return release


def _sign(descriptor: int) -> None:
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"host": files.HOST, "pid": os.getpid(), "since": since}).encode())


def _holder(lock: Path) -> str:
    try:
        content = json.loads(lock.read_text())
        return f"process {content['pid']} on {content['host']} since {content['since']}"
    except (OSError, ValueError, KeyError):  # it is just coming or going
        return "another process"

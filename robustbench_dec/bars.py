"""Progress: bars, silent when not on a terminal and each worker process with lines of its own; and remarks."""

import contextlib
import fcntl
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from tqdm.auto import tqdm

LINES_PER_WORKER = 2  # a worker shows what it works on and, for attacks, the batches of the present cell
_first_line = 0


def bar(*arguments: Any, show: bool = True, nested: int = 0, **settings: Any) -> Any:
    """A tqdm bar; `nested` lines below the outermost bar of this process."""
    position = _first_line + nested if _first_line or nested else None
    return tqdm(*arguments, disable=None if show else True, position=position, leave=not position, **settings)


def say(sentence: str) -> None:
    """One line on standard error; it goes above a bar, not through it."""
    tqdm.write(f"robustbench-dec: {sentence}", file=sys.stderr)


def start_worker(index: int, terminal: str) -> None:
    """Make this process's bars stand below those of the main process and of the workers before it."""
    global _first_line
    _first_line = 1 + LINES_PER_WORKER * index
    tqdm.set_lock(Terminal(terminal))


@contextlib.contextmanager
def shared_terminal() -> Iterator[str]:
    """The file by which this process shares the terminal with its workers, which are given its name."""
    with tempfile.NamedTemporaryFile(prefix="robustbench-dec-terminal-") as file:
        tqdm.set_lock(Terminal(file.name))
        try:
            yield file.name
        finally:
            tqdm.set_lock(threading.RLock())


class Terminal:
    """Who holds it may write on the terminal. Unlike a semaphore it is let go of when its holder is killed: the kernel
    does that for locks of files. Threads of one process take turns by a lock of their own."""

    def __init__(self, path: str) -> None:
        self._threads, self._depth = threading.RLock(), 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait for it, if so; whether it was got."""
        if not self._threads.acquire(blocking, timeout):
            return False
        if self._depth == 0:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._threads.release()
                return False
        self._depth += 1
        return True

    def release(self) -> None:
        """Let it go, as often as it was acquired."""
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> "Terminal":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

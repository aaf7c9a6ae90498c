"""Progress: bars on a terminal, where each worker has its own; elsewhere a line for what is done; and remarks."""

import contextlib
import fcntl
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Generic, Protocol, Self, TypeVar, overload

from tqdm.auto import tqdm

from robustbench_dec.errors import printable

NOTEBOOK = any(cls.__module__ == "tqdm.notebook" for cls in tqdm.__mro__)
"""Whether this is a notebook, in which tqdm's bars are widgets."""

LINES_PER_WORKER = 2  # a worker shows what it works on and, for attacks, the batches of the present cell
_first_line = 0

PAUSE = 60.0
"""Seconds between two lines about small parts, such as rounds and batches, where there is no terminal."""
PAUSES: Mapping[str, float] = dict.fromkeys(("run", "cell", "model", "place"), 2.0)
"""The same for what deserves a line of its own."""

Item = TypeVar("Item", covariant=True)


class Bar(Protocol[Item]):
    """What a bar and the lines that stand for it can do."""

    n: int

    def __iter__(self) -> Iterator[Item]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, /) -> object: ...

    def update(self, n: int = 1) -> object: ...

    def set_postfix(self, **values: str) -> object: ...


@overload
def bar(
    *,
    total: int | None = ...,
    desc: str | None = ...,
    unit: str = ...,
    initial: int = ...,
    show: bool = ...,
    nested: int = ...,
) -> Bar[None]: ...


@overload
def bar(
    items: Iterable[Item],
    *,
    total: int | None = ...,
    desc: str | None = ...,
    unit: str = ...,
    initial: int = ...,
    show: bool = ...,
    nested: int = ...,
) -> Bar[Item]: ...


def bar(
    items: Iterable[Item] | None = None,
    *,
    total: int | None = None,
    desc: str | None = None,
    unit: str = "batch",
    initial: int = 0,
    show: bool = True,
    nested: int = 0,
) -> Bar[Item] | Bar[None]:
    """A tqdm bar, `nested` lines below the outermost one of this process; lines where there is no terminal."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if show and not sys.stderr.isatty() and not NOTEBOOK:
        return Lines(items, total, desc or "", unit, initial)
    position = _first_line + nested if _first_line or nested else None
    shown: Bar[Item] = tqdm(
        items,
        total=total,
        desc=desc,
        unit=unit,
        initial=initial,
        disable=not show,
        position=position,
        leave=not position,
    )
    return shown


class Lines(Generic[Item]):
    """A line on standard error when something is finished, with the time so far and the time that is left.

    Runs and cells get a line each, unless they come faster than one can read; small parts of them now and then.
    """

    def __init__(self, items: Iterable[Item] | None, total: int | None, desc: str, unit: str, initial: int) -> None:
        self.items, self.total, self.desc, self.unit, self.n = items, total, desc, unit, initial
        self.first, self.began = initial, time.monotonic()
        self.said, self.remark = self.began, ""
        self.pause = PAUSES.get(unit, PAUSE)

    def __iter__(self) -> Iterator[Item]:
        for item in self.items or ():
            yield item
            self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """So many more are finished."""
        self.n += n
        now = time.monotonic()
        if n and now - self.said >= self.pause:
            self.said = now
            print(f"robustbench-dec: {self.line(now - self.began)}", file=sys.stderr, flush=True)

    def set_postfix(self, **values: str) -> None:
        """What is said behind the next lines."""
        self.remark = ", ".join(f"{name} {value}" for name, value in values.items())

    def line(self, seconds: float) -> str:
        """Where it stands after so many seconds."""
        many = {"pass": "passes", "batch": "batches"}.get(self.unit, f"{self.unit}s")
        parts = [f"{self.n}{'' if self.total is None else f' of {self.total}'} {many}", f"{_clock(seconds)} so far"]
        if self.total is not None and self.first < self.n < self.total:
            left = seconds * (self.total - self.n) / (self.n - self.first)
            parts.append(f"about {_clock(left)} left")
        return f"{self.desc}: {', '.join([*parts, self.remark] if self.remark else parts)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def say(sentence: str) -> None:
    """One line on standard error; it goes above a bar, not through it."""
    tqdm.write(f"robustbench-dec: {printable(sentence)}", file=sys.stderr)


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

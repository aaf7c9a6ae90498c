"""Progress: bars, silent when not on a terminal and each worker process with lines of its own; and remarks."""

import sys
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


def start_worker(index: int, lock: Any) -> None:
    """Make this process's bars stand below those of the main process and of the workers before it."""
    global _first_line
    _first_line = 1 + LINES_PER_WORKER * index
    tqdm.set_lock(lock)


def use_lock(lock: Any) -> None:
    """Share the terminal with workers that have been given the same lock."""
    tqdm.set_lock(lock)

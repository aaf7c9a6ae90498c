"""What Linux tells of processes; elsewhere nothing is told, and nothing found."""

import os
from collections.abc import Iterable
from pathlib import Path


def children(pid: int) -> set[int]:
    """The processes that a process has started, or that became its own."""
    found: set[int] = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (task / "children").read_text().split()}
    except (OSError, ValueError):  # it is gone
        pass
    return found


def family(pids: Iterable[int]) -> set[int]:
    """Processes with all that come from them."""
    found, left = set[int](), list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children(pid)
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0

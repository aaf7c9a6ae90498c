"""Memory: what is freed stays with the process."""

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h


@functools.cache
def keep_freed() -> None:
    """Take memory from the heap alone and give none of it back before the end.

    The GNU C library fetches every large block from the system and gives it back when it is freed, so that each
    result of an operation on large stacks meets new pages, all of which the system fills with zeros first. That made
    a node of 1,000 cost 3 times a node of 10 (benchmarks/many_nodes.csv). Elsewhere this does nothing.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)

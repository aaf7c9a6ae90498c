"""Work that the tests of all workers share: the first that needs it does it, the others wait and read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], object]) -> Path:
    """A folder of the whole session, filled by one worker; read only."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a folder of its own, beside those of the others
        base = base.parent
    home, whole = base / name, base / f"{name}.whole"
    with FileLock(base / f"{name}.lock"):
        if not whole.exists():
            home.mkdir()
            fill(home)
            whole.touch()
    return home

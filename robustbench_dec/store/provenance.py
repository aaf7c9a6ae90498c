"""What stands beside every number: versions, threads, time and commit."""

import datetime
import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import robustbench_dec


@functools.cache
def versions() -> dict[str, str]:
    """Versions of all that can change a number."""
    packages = ("torch", "torchvision", "torchattacks", "numpy", "scipy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"robustbench_dec": robustbench_dec.__version__, **found, "python": platform.python_version()}


@functools.cache
def git_commit() -> str | None:
    """The commit of the checkout that this package runs from, '+' if it is changed; None outside a checkout."""
    folder = Path(__file__).resolve().parent
    run = functools.partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=False)
    try:
        commit = run(["git", "rev-parse", "--short=12", "HEAD"])
        changed = run(["git", "status", "--porcelain", "--untracked-files=no", "--", "*.py", "*.toml"])
    except FileNotFoundError:
        return None
    if commit.returncode != 0:
        return None
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")


def stamp(seconds: float) -> dict[str, Any]:
    """The fields that every result file carries."""
    return {
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "wall_s": round(seconds, 3),
        "created_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(),
    }

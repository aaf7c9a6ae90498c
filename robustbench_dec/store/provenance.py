"""What stands beside every number: versions, machine, threads, time and commit."""

import ctypes
import datetime
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TypedDict

import torch

import robustbench_dec
from robustbench_dec.store.records import Machine


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


@functools.cache
def machine() -> Machine:
    """The processor, and the instruction sets that PyTorch and oneDNN chose for it."""
    system = f"{platform.system()} {platform.machine()}"
    isa = str(torch.backends.cpu.get_cpu_capability())
    return Machine(cpu=_processor(), torch_isa=isa, onednn_isa=_onednn(), system=system)


def _processor() -> str:
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        named = None
    return named[1].strip() if named else platform.processor() or "unknown"


def _onednn() -> str:
    """The instruction set that oneDNN says it uses. It prints that on C's standard output, and only there."""
    if not torch.backends.mkldnn.is_available():
        return "none"
    with tempfile.TemporaryFile() as printed:
        out = os.dup(1)
        try:
            ctypes.CDLL(None).fflush(None)
            os.dup2(printed.fileno(), 1)
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                torch.nn.functional.conv2d(torch.zeros(2, 16, 8, 8), torch.zeros(16, 16, 3, 3))
            ctypes.CDLL(None).fflush(None)
        except (OSError, TypeError, AttributeError):  # no C library under that name, as on Windows
            return "unknown"
        finally:
            os.dup2(out, 1)
            os.close(out)
        printed.seek(0)
        said = printed.read().decode(errors="replace")
    named = re.search(r",cpu,isa:([^\n]+)", said) or re.search(r",convolution,([\w:]+)", said)
    return named[1].strip() if named else "unknown"


class Stamp(TypedDict):
    """The fields of `Made`."""

    versions: dict[str, str]
    machine: Machine
    threads: int
    wall_s: float
    created_utc: str
    git_commit: str | None


def stamp(seconds: float) -> Stamp:
    """The fields that every result file carries."""
    return {
        "versions": versions(),
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "wall_s": round(seconds, 3),
        "created_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(),
    }

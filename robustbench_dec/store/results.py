"""The files of a run: is it finished and whole, its network, its curve, and what killed processes left of it."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from robustbench_dec import bars, files
from robustbench_dec.errors import BadInput
from robustbench_dec.store import locks
from robustbench_dec.store.checkpoint import load_checkpoint


def finished(folder: Path, checkpoint: bool, announce: bool = False) -> bool:
    """Whether a run is done and its files are whole; a damaged one is announced by who trains it again."""
    path = folder / "checkpoint.safetensors"
    if not (folder / "run.json").is_file() or (checkpoint and not path.is_file()):
        return False
    try:
        record = files.read_sealed(folder / "run.json")
        files.verified(folder / "curve.csv", record.get("curve_sha256"))
        if record.get("perturbation_sha256"):
            files.verified(folder / "perturbation.safetensors", record["perturbation_sha256"])
        if path.is_file():
            files.verified(path, record["checkpoint_sha256"])
    except files.Damaged as error:
        if announce:
            bars.say(f"{error.fact}; the run is trained again")
        return False
    return True


def tidy(folder: Path) -> None:
    """Remove what killed processes left of finished work: temporary files, locks, journals and batches."""
    files.sweep(folder)
    locks.sweep(folder)
    checkpoint = folder / "checkpoint.safetensors"
    if any(folder.glob("resume*.safetensors")) and checkpoint.is_file():
        with contextlib.suppress(locks.Busy), locks.claim(folder / "run.json", wait=False):
            if finished(folder, checkpoint=True):
                for path in folder.glob("resume*.safetensors"):
                    files.remove(path)
    for batches in folder.glob("attacks/.*-batches.json"):
        cell = batches.with_name(f"{batches.name[1:].removesuffix('-batches.json')}.json")
        if cell.is_file():
            with contextlib.suppress(locks.Busy), locks.claim(cell, wait=False):
                files.remove(batches)


def mean_model(folder: Path, device: str = "cpu") -> nn.Module:
    """The network with the average parameters x-bar of a finished run, after its bytes were checked."""
    record = files.read_sealed(folder / "run.json")
    path = folder / "checkpoint.safetensors"
    if not path.is_file():
        raise BadInput(f"{path} is missing; train the run again to attack it")
    if files.sha256(path) != record["checkpoint_sha256"]:
        raise BadInput(
            f"{path} has not the sha256 that run.json tells; it is damaged or was changed, so train it again"
        )
    return load_checkpoint(path, device)


def curve(folder: Path, record: Mapping[str, Any]) -> pd.DataFrame:
    """The curve of a finished run, after its bytes were checked against its run.json."""
    return pd.read_csv(io.BytesIO(files.verified(folder / "curve.csv", record.get("curve_sha256"))))

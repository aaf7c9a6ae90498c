"""Attack a finished run: one cell per attack and radius, computed where it is missing or damaged."""

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.problem import Classifier
from robustbench_dec.running.attack_journal import Kept
from robustbench_dec.specs.table import SCHEMA
from robustbench_dec.store import locks, provenance
from robustbench_dec.store import results as store
from robustbench_dec.store.bits import pack

BATCH_SIZE = 500
"""Images that are attacked at once; every batch has a random state of its own, so this decides numbers a little."""

Attacks = Sequence[tuple[str, Attack]]
"""Attacks with the names by which they were asked for."""


def cell_path(
    folder: Path,
    name: str,
    attack: Attack,
    n_examples: int | None,
    seed: int,
    part: str = "test",
    batch_size: int = BATCH_SIZE,
) -> Path:
    """A cell's file: readable, with a digest of all that decides its number but the checkpoint."""
    key = [SCHEMA, name, attack.settings(), n_examples, seed, part]
    key += [attack.source_sha256] if attack.source_sha256 else []
    key += [batch_size] if batch_size != BATCH_SIZE else []
    stem = re.sub(r"\W+", "-", re.sub(r"\.py(:\w+)?$|\.safetensors$", "", Path(name).name))
    return folder / "attacks" / f"{stem}-{attack.eps:g}-{files.digest(key)[:8]}.json"


def known_cell(path: Path, checkpoint_sha256: str) -> dict[str, Any] | None:
    """The cell, if it is there and is about this checkpoint; Damaged if it or its perturbation is."""
    if not path.is_file():
        return None
    cell = files.read_sealed(path)
    if cell["checkpoint_sha256"] != checkpoint_sha256:
        return None
    if cell["perturbation_file"] is not None:
        files.verified(path.with_name(cell["perturbation_file"]), cell.get("perturbation_sha256"))
    return cell


def usable_cell(path: Path, checkpoint_sha256: str, told: bool = False) -> dict[str, Any] | None:
    """The cell, if it needs no work: a damaged one does, which is `told` by the one who does it."""
    try:
        return known_cell(path, checkpoint_sha256)
    except files.Damaged as error:
        if told:
            progress_bars.say(f"{error.fact}; the cell is computed again")
        return None


def attack(
    folder: Path,
    attacks: Attacks,
    *,
    problem: Classifier,
    n_examples: int | None = None,
    part: str = "test",
    device: str = "cpu",
    batch_size: int = BATCH_SIZE,
    model: nn.Module | None = None,
    submitted: str = "",
    progress: bool = True,
    wait: bool = True,
) -> list[dict[str, Any]]:
    """The cells of a finished run for each attack, computed where they are missing or damaged.

    `model` is its average network where the checkpoint lies elsewhere; `submitted` tells on whose wish a cell is made,
    where that is not a table's. Batches that are done when an attack raises are kept, and are not attacked again.
    Cells that other processes compute are waited for; or else they are left to them, the others are computed, and the
    whole is Busy.
    """
    record = files.read_sealed(folder / "run.json")
    sha256, seed = record["checkpoint_sha256"], record["seed"]
    cells, busy = [], None
    for name, one in progress_bars.bar(attacks, desc=f"attacks on {folder.name}", unit="cell", show=progress):
        path = cell_path(folder, name, one, n_examples, seed, part, batch_size)
        cell = usable_cell(path, sha256)
        if cell is None:
            try:
                with locks.claim(path, wait=wait):
                    cell = usable_cell(path, sha256, told=True)
                    if cell is None:
                        model = model or store.mean_model(folder, device).to(device)
                        shown = path.stem if progress else None
                        cell = _cell(record, path, name, one, model, problem, part, n_examples, batch_size, shown)
                        cell |= {"submitted": submitted}
                        files.write_sealed(path, cell)
                        files.remove(_batches(path))
            except locks.Busy as error:
                busy = error
                continue
        cells.append(cell)
    store.tidy(folder)
    if busy is not None:
        raise busy
    return cells


def _batches(cell: Path) -> Path:
    """What an unfinished cell has done so far."""
    return cell.with_name(f".{cell.stem}-batches.json")


def _cell(
    record: dict[str, Any],
    path: Path,
    name: str,
    one: Attack,
    model: nn.Module,
    problem: Classifier,
    part: str,
    n_examples: int | None,
    batch_size: int,
    progress: str | None,
) -> dict[str, Any]:
    """Attack, and tell all that decides the number; a universal perturbation is written beside the cell."""
    began = time.perf_counter()
    seed = record["seed"]
    images, labels = getattr(problem.images, f"{part}_images"), getattr(problem.images, f"{part}_labels")
    images, labels = images[:n_examples], labels[:n_examples]
    outcome = evaluate(
        one,
        model,
        images,
        labels,
        train=(problem.images.train_images, problem.images.train_labels),
        seed=seed,
        batch_size=batch_size,
        progress=progress,
        parts=Kept(_batches(path), [record["checkpoint_sha256"], len(labels)]),
    )
    perturbation_file = perturbation_sha256 = None
    if outcome.perturbation is not None:
        perturbation_file = f"{path.stem}.safetensors"
        data = safetensors.torch.save({"y": outcome.perturbation.float().contiguous()})
        perturbation_sha256 = hashlib.sha256(data).hexdigest()
        files.write_bytes(path.with_name(perturbation_file), data)
    return {
        "schema": SCHEMA,
        "run_id": record["id"],
        "dataset": record["dataset"],
        "method": record["method"],
        "seed": seed,
        "attack": name,
        "submitted": "",
        "source_sha256": one.source_sha256,
        "settings": one.settings(),
        "norm": one.norm,
        "eps": one.eps,
        "universal": one.universal,
        "part": part,
        "n_examples": len(labels),
        "batch_size": batch_size,
        "n_correct": int(outcome.robust.sum()),
        "rarest_class": labels.bincount(minlength=len(record["classes"])).min().item() / len(labels),
        "clean_acc": outcome.clean_accuracy,
        "robust_acc": outcome.robust_accuracy,
        "bits": pack(outcome.robust),
        "attack_seed": seed,
        "forwards": outcome.forwards,
        "backwards": outcome.backwards,
        "zero_gradients": outcome.zero_gradients,
        "flags": list(outcome.flags),
        "checkpoint_sha256": record["checkpoint_sha256"],
        "perturbation_file": perturbation_file,
        "perturbation_sha256": perturbation_sha256,
        **provenance.stamp(time.perf_counter() - began),
    }

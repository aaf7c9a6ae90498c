"""The zoo: small trained networks that come with the suite, results/zoo/<data set>/<name>.safetensors and .json.

The tensors are the average x-bar of a run's nodes ("X", one row) and, for methods that train one, the average y
("y", as an image). The card beside them is the run's run.json (architecture, data, settings, ledger, clean accuracy,
the sha256 of the run's whole checkpoint, by which stored attack cells are found) with the entry's name and own sha256.
"""

import fnmatch
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import safe_open
from torch import nn

from robustbench_dec import files, shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.problems.universal import Universal
from robustbench_dec.store import results as store
from robustbench_dec.store.checkpoint import load_checkpoint

OWN = ("name", "sha256", "run_id")
"""What a card has beside the fields of run.json."""


def home() -> Path:
    """Where the shipped entries are: results/zoo of the checkout, or inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "results" / "zoo"
    return checkout if checkout.is_dir() else package / "zoo_files"


@dataclass(frozen=True)
class Entry:
    """One network with its card, in the zoo or in a run's folder."""

    name: str
    checkpoint: Path
    sha256: str
    record: dict[str, Any]  # as in run.json

    def model(self, device: str = "cpu") -> nn.Module:
        """The network, after its bytes were checked."""
        if not self.checkpoint.is_file():
            raise BadInput(f"{self.checkpoint} is missing; restore it, or train the run again")
        if files.sha256(self.checkpoint) != self.sha256:
            raise BadInput(
                f"{self.checkpoint} has not the sha256 that its card tells; it is damaged or was changed, so fetch or "
                "train it again"
            )
        return load_checkpoint(self.checkpoint, device).to(device)

    def problem(self) -> Universal:
        """Its data, as it was trained on them."""
        return _problem(json.dumps(self.record["settings"]["problem"], sort_keys=True))


@functools.cache
def _problem(settings: str) -> Universal:
    """One for all networks of a data set, so that images are read once."""
    given = {name: value for name, value in json.loads(settings).items() if name not in ("name", "eps", "clamp")}
    return shelf.make(Universal, given)


def entries(pattern: str = "*", folder: Path | None = None) -> list[Entry]:
    """The entries whose names match, for example mnist/*; refused if there are none."""
    root = folder or home()
    cards = {f"{path.parent.name}/{path.stem}": path for path in sorted(root.glob("*/*.json"))}
    found = [_entry(name, path) for name, path in cards.items() if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        there = ", ".join(cards) or f"none in {root}; `robustbench-dec zoo add` makes one of a finished run"
        raise BadInput(f"no model of the zoo matches '{pattern}'; there are: {there}")
    return found


def from_path(path: Path) -> Entry:
    """A run's folder, its checkpoint, or a file of a zoo elsewhere."""
    if path.is_dir():
        path = path / "checkpoint.safetensors"
    if path.suffix != ".safetensors":
        raise BadInput(f"a checkpoint is a .safetensors file, not {path}; pickles (.pt, .pth, .pkl) are never read")
    if not path.is_file():
        raise BadInput(f"no checkpoint {path}; give a run's folder, a .safetensors file or a name of the zoo")
    card, record = path.with_suffix(".json"), path.with_name("run.json")
    if card.is_file():
        return _entry(f"{path.parent.name}/{path.stem}", card)
    if not record.is_file():
        raise BadInput(
            f"{path} has neither run.json nor a card {card.name} beside it, which tell its data and its sha256"
        )
    content = files.read_sealed(record)
    return Entry(content["id"], path, content["checkpoint_sha256"], content)


def add(folder: Path, name: str, zoo: Path) -> Entry:
    """Make an entry of a finished run: the average network and the average y, and the card."""
    parts = name.split("/")
    if len(parts) != 2 or not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in parts):
        raise BadInput(f"a name in the zoo is DATA_SET/NAME of letters, digits, '-', '_' and '.', not '{name}'")
    if not (folder / "run.json").is_file():
        raise BadInput(f"no finished run in {folder}; `robustbench-dec train` makes one and prints its folder")
    record = files.read_sealed(folder / "run.json")
    if record["dataset"] != parts[0]:
        raise BadInput(
            f"this run was trained on {record['dataset']}, so its name should be {record['dataset']}/{parts[1]}"
        )
    store.mean_model(folder)  # refuses a checkpoint that is missing or changed
    with safe_open(folder / "checkpoint.safetensors", "pt") as handle:
        tensors = {"X": handle.get_tensor("X").mean(0, keepdim=True).contiguous()}
        if "Y" in handle.keys():  # noqa: SIM118 (not a dict)
            shape = record["architecture_card"]["shape"]
            tensors["y"] = handle.get_tensor("Y").mean(0).view(shape).contiguous()
        metadata = handle.metadata()
    path = zoo / parts[0] / f"{parts[1]}.safetensors"
    files.write_bytes(path, safetensors.torch.save(tensors, metadata))
    own = {"name": name, "sha256": files.sha256(path), "run_id": record["id"]}
    files.write_json(path.with_suffix(".json"), own | record)
    return _entry(name, path.with_suffix(".json"))


def list_models(pattern: str = "*") -> list[str]:
    """The names in the zoo, for example mnist/dec_fedtrack."""
    try:
        return [entry.name for entry in entries(pattern)]
    except BadInput:
        return []


def load_model(name: str, device: str = "cpu") -> nn.Module:
    """A network of the zoo by its name, or of a checkpoint by its path: images in [0, 1] in, logits out, eval mode.

    Its `card` tells where it comes from.
    """
    path = Path(name)
    if name in list_models():
        (entry,) = entries(name)
    elif path.exists() or path.suffix:
        entry = from_path(path)
    else:
        (entry,) = entries(name)[:1]  # raises: there is none, and it tells which there are
    model = entry.model(device)
    model.card = entry.record  # type: ignore[assignment]
    return model


def _entry(name: str, card: Path) -> Entry:
    content = files.read_json(card)
    try:
        record = {key: value for key, value in content.items() if key not in OWN}
        return Entry(name, card.with_suffix(".safetensors"), content["sha256"], record)
    except (KeyError, AttributeError) as error:
        raise BadInput(f"{card} is no card of the zoo: it lacks {error}") from error

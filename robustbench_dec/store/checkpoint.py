"""Checkpoints: stacks of parameters as safetensors, with the network's card in the metadata; pickles are never read."""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn

from robustbench_dec.architecture import Architecture
from robustbench_dec.errors import BadInput
from robustbench_dec.tensors import UNREADABLE


def load_checkpoint(path: Path, device: str = "cpu", place: str | None = None) -> nn.Module:
    """The average network of a checkpoint file (safetensors; pickles are refused).

    `place`: where the source of a network from a user's own file lies, if not in the current folder.
    """
    try:
        with safe_open(path, "pt", device=device) as handle:
            card = json.loads((handle.metadata() or {}).get("architecture", "null"))
            average = handle.get_tensor("X").mean(0)
    except FileNotFoundError as error:
        raise BadInput(f"no checkpoint {path}") from error
    except UNREADABLE as error:
        raise BadInput(f"{path} is not a whole safetensors checkpoint ({error}); pickles are not read") from error
    if card is None:
        raise BadInput(f"{path} has no network card in its metadata; checkpoints of this suite have one")
    try:
        architecture = Architecture.model_validate(card)
    except ValidationError as error:
        raise BadInput(f"{path} has a network card that this suite cannot read: {card}") from error
    return architecture.at(place).build(average)


def checkpoint_bytes(stacks: Mapping[str, Tensor], architecture: Architecture | None) -> bytes:
    """A checkpoint file of stacks such as X (n, d) and Y (n, q); those of networks carry their card."""
    tensors = {name: Z.cpu().contiguous() for name, Z in stacks.items()}
    card = {} if architecture is None else {"architecture": json.dumps(architecture.as_json())}
    data: bytes = safetensors.torch.save(tensors, card)
    return data


def perturbation_bytes(y: Tensor) -> bytes:
    """A file with one perturbation (C, H, W)."""
    data: bytes = safetensors.torch.save({"y": y.cpu().float().contiguous()})
    return data

"""A checkpoint file, safetensors with the network's card in its metadata, as a network."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from robustbench_dec.errors import BadInput
from robustbench_dec.models import Architecture


def load_checkpoint(path: Path, device: str = "cpu") -> nn.Module:
    """The average network of a checkpoint file (safetensors; pickles are refused)."""
    try:
        with safe_open(path, "pt", device=device) as handle:
            card = json.loads((handle.metadata() or {}).get("architecture", "null"))
            X = handle.get_tensor("X")
    except FileNotFoundError as error:
        raise BadInput(f"no checkpoint {path}") from error
    except (SafetensorError, ValueError) as error:
        raise BadInput(f"{path} is not a whole safetensors checkpoint ({error}); pickles are not read") from error
    if card is None:
        raise BadInput(f"{path} has no network card in its metadata; checkpoints of this suite have one")
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in card.items()}
        architecture = Architecture(**fields)
    except (TypeError, AttributeError) as error:
        raise BadInput(f"{path} has a network card that this suite cannot read: {card}") from error
    return architecture.build(X.mean(0))

"""Tensors in bytes that somebody else wrote: safetensors, read whole or refused. Pickles are never read."""

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from robustbench_dec.errors import BadInput

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""As what images and perturbations may be stored: with smaller ones torch computes little."""

UNREADABLE = (SafetensorError, KeyError, ValueError, TypeError, OverflowError, RuntimeError)
"""What safetensors and torch raise: a header can name a kind of numbers that torch has not, or a shape whose size it
cannot count."""


def read(path: Path) -> tuple[dict[str, Tensor], bytes]:
    """The tensors of a file that is there, and the very bytes that they were read from.

    A file that is mapped may change after it was checked, and torch takes shapes from it that it cannot compute with.
    """
    data = path.read_bytes()
    try:
        return safetensors.torch.load(data), data
    except UNREADABLE as error:
        raise BadInput(f"{path} is not a whole safetensors file ({error}); pickles are not read") from error

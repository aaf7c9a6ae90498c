"""Bits: one boolean per image as text in JSON."""

import base64

import numpy as np
import torch
from torch import Tensor


def pack(bits: Tensor) -> str:
    """Booleans (n,) as base64 of packed bits."""
    return base64.b64encode(np.packbits(bits.numpy()).tobytes()).decode()


def unpack(text: str, count: int) -> Tensor:
    """The first `count` booleans of what `pack` has packed."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count)
    return torch.from_numpy(bits.astype(bool))

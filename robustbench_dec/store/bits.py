"""Bits: one boolean per image as text in JSON."""

import base64

import numpy as np
import torch
from torch import Tensor

MOST_FLIPS = 0.001
"""The share of a cell's images that may differ: 10 of MNIST's 10,000."""


def pack(bits: Tensor) -> str:
    """Booleans (n,) as base64 of packed bits."""
    return base64.b64encode(np.packbits(bits.numpy()).tobytes()).decode()


def count(text: str, of: int) -> int:
    """How many of `of` packed booleans are true; ValueError if that is not what `pack` has packed."""
    packed = base64.b64decode(text, validate=True)
    number = int.from_bytes(packed, "big")
    if len(packed) != -(-of // 8) or number & ((1 << (-of % 8)) - 1):
        raise ValueError(f"the outcomes are not those of {of} images")
    return number.bit_count()


def unpack(text: str, count: int) -> Tensor:
    """The first `count` booleans of what `pack` has packed."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count)
    return torch.from_numpy(bits.astype(bool))

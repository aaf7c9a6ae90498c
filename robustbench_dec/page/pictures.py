"""Pictures for the page: small PNG files as data URIs; perturbations coloured as in rendering/pictures.py."""

import base64
import io

import numpy as np
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from robustbench_dec.rendering.pictures import DIVERGING, luminance

LEVELS = 33
"""Colours of a perturbation, an odd number so that 0 has one: a file of few colours is less than half as large."""
LARGEST = 96
"""Pixels of a side; a larger perturbation is shown smaller."""


def data_uri(y: Tensor | None, eps: float) -> str | None:
    """A perturbation (C, H, W) as its luminance from -eps to eps; None where it has neither one channel nor three."""
    if y is None or y.ndim != 3 or len(y) not in (1, 3):
        return None
    share = np.clip((luminance(y) / (eps or 1.0) + 1) / 2, 0, 1)  # (H, W)
    image = Image.fromarray(np.round(255 * share).astype(np.uint8))
    if max(image.size) > LARGEST:
        image.thumbnail((LARGEST, LARGEST))
    image = Image.fromarray(np.round(np.asarray(image) / 255 * (LEVELS - 1)).astype(np.uint8), "P")
    colours = colormaps[DIVERGING](np.linspace(0, 1, LEVELS))[:, :3]  # (LEVELS, 3)
    image.putpalette(np.round(255 * colours).astype(np.uint8).tobytes())
    return png_uri(image)


def png_uri(image: Image.Image) -> str:
    """An image as the address of itself."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

"""Pictures of perturbations for the page: small PNG files as data URIs, coloured as in rendering/pictures.py."""

import base64
import io
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from matplotlib import colormaps
from PIL import Image

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering.pictures import DIVERGING

LARGEST = 96
"""Pixels of a side; a larger perturbation is shown smaller."""


def data_uri(path: Path, sha256: str | None, eps: float) -> str | None:
    """The perturbation y of a safetensors file, from -eps to eps; None where it has neither one channel nor three."""
    try:
        y = safetensors.numpy.load(files.verified(path, sha256))["y"]  # (C, H, W)
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise BadInput(f"{path} should hold one perturbation y but does not ({error}); attack again") from error
    if y.ndim != 3 or len(y) not in (1, 3):
        return None
    share = np.clip((y.astype(np.float64) / (eps or 1.0) + 1) / 2, 0, 1)
    colours = colormaps[DIVERGING](share[0])[..., :3] if len(share) == 1 else share.transpose(1, 2, 0)
    image = Image.fromarray(np.round(255 * colours).astype(np.uint8))
    if max(image.size) > LARGEST:
        image.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

"""A picture of who holds which labels: nodes x classes, the share of each class in what a node holds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustbench_dec.rendering import style

COLOURS = "Blues"
WRITTEN = 20
"""Nodes up to which the numbers are written into the picture."""


def picture(counts: NDArray[np.int64], classes: Sequence[str], title: str, stem: Path) -> dict[Path, bytes]:
    """<stem>.png and <stem>.pdf of counts (n, classes)."""
    n, k = counts.shape
    share = counts / counts.sum(1, keepdims=True).clip(min=1)
    with style.sheet(grid=False):
        height = 1.2 + min(0.28 * n, 12)
        figure = Figure(figsize=(1.6 + 0.55 * k, height), layout="constrained")
        panel = figure.subplots()
        panel.imshow(share, cmap=COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        panel.set_title(title)
        panel.set_xlabel("class")
        panel.set_ylabel("node")
        panel.set_xticks(range(k), classes, rotation=0 if max(map(len, classes)) < 4 else 45)
        if n <= WRITTEN:
            panel.set_yticks(range(n))
            for i, c in np.argwhere(counts > 0):
                dark = share[i, c] > 0.6
                panel.text(c, i, f"{counts[i, c]:,}", ha="center", va="center", fontsize=6, color="w" if dark else "k")
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

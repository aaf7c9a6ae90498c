"""Pictures of perturbations."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from robustbench_dec import titles
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import style

DIVERGING = "coolwarm"

Picture = tuple[str, Tensor, float]  # title, perturbation (C, H, W), radius


def perturbations(trained: Sequence[Picture], uaps: Sequence[Picture], stem: Path) -> dict[Path, bytes]:
    """Pictures of perturbations: <stem>-perturbations.png.

    The trained y come first, then a row for each stretch of equal titles in `uaps` ("mnist, k_gt"), with its radii from
    small to large. One channel is shown from -delta (blue) to delta (red), three as the colour (y / delta + 1) / 2.
    """
    stretches = itertools.groupby(uaps, key=lambda picture: picture[0])
    groups = [(f"UAP, {title}", sorted(group, key=lambda picture: picture[2])) for title, group in stretches]
    width = max([3, *(len(group) for _, group in groups)])
    rows = [("Trained y", list(trained[start : start + width])) for start in range(0, len(trained), width)]
    if not rows + groups:
        raise BadInput("a picture of perturbations needs at least one of them, but none came; train or attack first")
    with style.sheet(grid=False):
        figure = Figure(figsize=(1.3 + 1.2 * width, 0.6 + 1.5 * (len(rows) + len(groups))), layout="constrained")
        grid = figure.subplots(len(rows) + len(groups), width, squeeze=False)
        for panel in grid.flat:
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
        for panels, (label, pictures) in zip(grid, rows + groups, strict=True):
            panels[0].set_ylabel(_lines(label), rotation=0, ha="right", va="center", fontweight="bold")
            for panel, (title, perturbation, eps) in zip(panels, pictures, strict=False):
                panel.set_title(
                    f"δ = {eps:g}" if label.endswith(title) else f"{_lines(title)}\nδ = {eps:g}", fontsize=8
                )
                _picture(panel, perturbation, eps)
        bar = figure.colorbar(
            ScalarMappable(Normalize(-1, 1), DIVERGING),
            ax=grid,
            location="bottom",
            shrink=0.5,
            aspect=40,
            ticks=[-1, 0, 1],
        )
        bar.ax.set_xticklabels(["−δ", "0", "δ"])  # noqa: RUF001
        bar.outline.set_visible(False)
        bar.set_label("Scale of one channel. Three channels: each from none (−δ) to full (δ), grey is 0.", fontsize=7)  # noqa: RUF001
        return {stem.with_name(f"{stem.name}-perturbations.png"): style.drawn(figure, "png")}


def _picture(panel: Axes, perturbation: Tensor, eps: float) -> None:
    share = np.clip(perturbation.detach().cpu().numpy() / (eps or 1.0), -1, 1)  # (C, H, W), in units of the radius
    if len(share) == 1:
        panel.imshow(share[0], cmap=DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
    elif len(share) == 3:
        panel.imshow((share.transpose(1, 2, 0) + 1) / 2, interpolation="nearest")
    else:
        raise BadInput(
            f"a perturbation to look at has 1 or 3 channels, but one has shape {tuple(share.shape)}; leave it out"
        )


def _lines(title: str) -> str:
    """The parts of a title one below the other, data sets and methods by their printed names."""
    return "\n".join(titles.method(titles.dataset(part)) for part in title.split(", "))

"""Pictures of perturbations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from robustbench_dec import titles
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering import style

DIVERGING = "coolwarm"

LUMINANCE = (0.299, 0.587, 0.114)
"""What red, green and blue add to brightness (ITU-R BT.601)."""


@dataclass(frozen=True)
class Picture:
    """A perturbation of the network of a method on a data set; what it leaves right, and hits, where that is known."""

    dataset: str
    method: str
    y: Tensor  # (C, H, W)
    radius: float
    accuracy: float | None = None
    hit: tuple[str, float] | None = None
    """The class that most images are taken for, with their share."""


def perturbations(trained: Sequence[Picture], universal: Sequence[Picture], stem: Path) -> dict[Path, bytes]:
    """Pictures of perturbations: <stem>-perturbations.png.

    A row is a network: the y that it was trained against within its radius rho, then the universal perturbations that
    attack it, from the smallest radius delta to the largest. Each is drawn from minus its radius (blue) to plus its
    radius (red), a colour image by its luminance.
    """
    networks = list(dict.fromkeys((each.dataset, each.method) for each in [*universal, *trained]))
    if not networks:
        raise BadInput("a picture of perturbations needs at least one of them, but none came; train or attack first")
    first = {(each.dataset, each.method): each for each in trained}
    attacks = {
        network: sorted((p for p in universal if (p.dataset, p.method) == network), key=lambda p: p.radius)
        for network in networks
    }
    width = 1 + max(len(each) for each in attacks.values())
    with style.sheet(grid=False):
        figure = Figure(figsize=(1.5 + 1.25 * width, 0.8 + 1.5 * len(networks)), layout="constrained")
        grid = figure.subplots(len(networks), width, squeeze=False)
        for panel in grid.flat:
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
        for panels, network in zip(grid, networks, strict=True):
            name = f"{titles.dataset(network[0])}\n{titles.method(network[1])}"
            panels[0].set_ylabel(name, rotation=0, ha="right", va="center", fontweight="bold")
            if network in first:
                panels[0].set_title(f"trained y\nρ = {first[network].radius:g}", fontsize=8)  # noqa: RUF001
                _draw(panels[0], first[network])
            else:
                panels[0].text(0.5, 0.5, "trained\nat y = 0", ha="center", va="center", color="0.4")
            for panel, picture in zip(panels[1:], attacks[network], strict=False):
                left = "" if picture.accuracy is None else f"\n{100 * picture.accuracy:.1f} % right"
                hit = "" if picture.hit is None else f"\n{100 * picture.hit[1]:.0f} % as {picture.hit[0]}"
                panel.set_title(f"UAP, δ = {picture.radius:g}{left}{hit}", fontsize=8)
                _draw(panel, picture)
        scale = ScalarMappable(Normalize(-1, 1), DIVERGING)
        bar = figure.colorbar(scale, ax=grid, location="bottom", shrink=0.5, aspect=40, ticks=[-1, 0, 1])
        bar.ax.set_xticklabels(["minus the radius", "0", "plus the radius"])
        bar.outline.set_visible(False)
        colours = any(len(each.y) == 3 for each in [*trained, *universal])
        bar.set_label(
            "ρ: radius of y in training. δ: radius of the attack. Right: test images still classified correctly.\n"  # noqa: RUF001
            + "The first seed that most methods finished."
            + (" Colour images: luminance of the perturbation." if colours else ""),
            fontsize=7,
        )
        return {stem.with_name(f"{stem.name}-perturbations.png"): style.drawn(figure, "png")}


def luminance(y: Tensor) -> NDArray[np.float64]:
    """A perturbation (C, H, W) as one channel (H, W): its only one, or the luminance of three."""
    values = y.detach().cpu().numpy().astype(np.float64)
    if len(values) not in (1, 3):
        raise BadInput(
            f"a perturbation to look at has 1 or 3 channels, but one has shape {tuple(values.shape)}; leave it out"
        )
    return values[0] if len(values) == 1 else np.tensordot(LUMINANCE, values, axes=1)


def _draw(panel: Axes, picture: Picture) -> None:
    share = luminance(picture.y) / (picture.radius or 1.0)  # in units of the radius
    panel.imshow(np.clip(share, -1, 1), cmap=DIVERGING, vmin=-1, vmax=1, interpolation="nearest")

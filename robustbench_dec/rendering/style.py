"""How figures look, and how they become files.

Without pyplot's global state and without dates, so that the same results give the same bytes.
"""

import io
from collections.abc import Iterable
from contextlib import AbstractContextManager

import matplotlib.style
import seaborn as sns
from matplotlib.figure import Figure

from robustbench_dec import titles

Dash = tuple[float, tuple[float, ...]] | None
Colour = tuple[float, float, float]

DASHES: tuple[Dash, ...] = (
    None,
    (0, (5, 1.6)),
    (0, (1.2, 1.4)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (8, 2, 1.2, 2, 1.2, 2)),
)
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.edgecolor": "0.3",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # real letters, which publishers ask for
    "savefig.dpi": 200,
}
UNDATED = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}


def colours(methods: Iterable[str]) -> dict[str, Colour]:
    """A colour for each method, the same in every picture and on the page: its place on the shelf decides."""
    palette = [*sns.color_palette("colorblind"), *sns.color_palette("dark")]
    wanted = [*methods]
    everybody = [*titles.methods(), *titles.in_order(wanted, titles.methods())]
    places = {name: place for place, name in enumerate(dict.fromkeys(everybody))}
    return {name: palette[places[name] % len(palette)] for name in titles.in_order(wanted, titles.methods())}


def sheet(grid: bool = True) -> AbstractContextManager[None]:
    """The style of everything that is drawn inside, whatever the user's own settings are."""
    return matplotlib.style.context(STYLE | {"axes.grid": grid}, after_reset=True)


def drawn(figure: Figure, kind: str) -> bytes:
    """The figure as a file of this kind, without a date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=UNDATED[kind])
    return buffer.getvalue()

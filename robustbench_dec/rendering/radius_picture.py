"""Accuracy against radius: a panel per data set, a line per network, chance as a dotted line; and the same as a CSV."""

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from robustbench_dec import files, titles
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.leaderboard.radius_curves import RadiusCurve
from robustbench_dec.rendering import style

WIDE = 3
"""Panels beside each other."""


def rows(curves: Sequence[RadiusCurve]) -> pd.DataFrame:
    """One row per network and radius, accuracies as fractions, with Wilson's 95 % interval."""
    found = []
    for each in curves:
        n = len(each.smallest)
        for radius, accuracy in zip(each.radii, each.accuracies, strict=True):
            low, high = wilson(round(accuracy * n), n)
            found.append(
                {
                    "dataset": each.run.dataset,
                    "method": each.run.method,
                    "seed": each.run.seed,
                    "run_id": each.run.id,
                    "norm": each.norm,
                    "eps": radius,
                    "accuracy": accuracy,
                    "ci_low": low,
                    "ci_high": high,
                    "n_examples": n,
                    "chance": each.chance,
                    "median_radius": each.median,
                    "attacks": ";".join(each.attacks),
                }
            )
    return pd.DataFrame(found)


def files_of(curves: Sequence[RadiusCurve], stem: Path) -> dict[Path, bytes]:
    """<stem>.csv, .png and .pdf."""
    text = io.StringIO()
    rows(curves).to_csv(text, index=False, lineterminator="\n")
    return files.beside(stem, {".csv": text.getvalue()}) | _picture(curves, stem)


def _picture(curves: Sequence[RadiusCurve], stem: Path) -> dict[Path, bytes]:
    panels = list(dict.fromkeys(each.run.dataset for each in curves))
    across = min(WIDE, len(panels))
    down = -(-len(panels) // across)
    colours = style.colours({each.run.method for each in curves})
    with style.sheet():
        figure = Figure(figsize=(3.4 * across + 0.6, 2.6 * down + 0.5), layout="constrained")
        places = figure.subplots(down, across, squeeze=False).flat
        for place in list(places)[len(panels) :]:
            place.set_visible(False)
        for dataset, panel in zip(panels, figure.axes, strict=False):
            here = [each for each in curves if each.run.dataset == dataset]
            for each in here:
                percent = [100 * accuracy for accuracy in each.accuracies]
                label = titles.method(each.run.method)
                panel.plot(each.radii, percent, color=colours[each.run.method], marker=".", label=label)
                if each.median is not None:  # half of the images are broken here
                    panel.plot([each.median], [50], "|", color=colours[each.run.method], markersize=9)
            for chance in sorted({each.chance for each in here}):
                panel.axhline(100 * chance, color="0.4", linestyle=":", linewidth=1)
            panel.set_title(titles.dataset(dataset))
            panel.set_xlabel(f"radius ({here[0].norm})")
            panel.set_ylabel("accuracy under the worst of all attacks, %")
            panel.set_ylim(0, 101)
            named = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))  # of equal labels the last
            panel.legend(named.values(), named.keys(), frameon=False)
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

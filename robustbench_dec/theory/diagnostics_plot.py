"""The theory's quantities over the rounds, one panel for each kind: <stem>.png and <stem>.pdf."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from robustbench_dec.rendering import style
from robustbench_dec.theory.diagnostics import Diagnosis

ROUNDING, DECADES = 1e-28, 3
"""Squares below the first are zeros with rounding errors; a panel shows at least so many decades."""

PANELS: dict[str, dict[str, str]] = {
    "Distance from the solution": {
        "grad_phi": r"$\|\nabla\Phi(\bar x)\|$",
        "delta": r"$\delta_t = \|\hat y(\bar x) - \bar y\|^2$",
    },
    "Client variance": {"Xi_x": r"$\Xi^x_t$", "Xi_y": r"$\Xi^y_t$"},
    "Drift of local iterates": {"E_x": r"$\mathcal{E}^x_t$", "E_y": r"$\mathcal{E}^y_t$"},
    "Quality of corrections": {"gamma_x": r"$\gamma^x_t$", "gamma_y": r"$\gamma^y_t$"},
    "Lyapunov function": {"H": r"$\mathcal{H}_t$", "phi_gap": r"$\Phi(\bar x) - \Phi^*$"},
    "Mean of corrections": {"mean_C": r"$\|\bar c\|$", "mean_D": r"$\|\bar d\|$"},
}

UNITS = {
    "Distance from the solution": "Norm; squared distance",
    "Client variance": r"$\|X - \bar x\|^2 / n$, in $y$ likewise",
    "Drift of local iterates": r"$\sum_k \|X^k - \bar x\|^2 / n$",
    "Quality of corrections": r"$\|C + \nabla f_i - \nabla f\|^2 / (n \ell^2)$",
    "Lyapunov function": "Value",
    "Mean of corrections": "Norm (0 but for rounding)",
}
"""What stands on the y axes: the quantities in x, as theory/diagnostics.py defines them; those in y are alike."""


def plot(diagnosis: Diagnosis, stem: Path) -> dict[Path, bytes]:
    """Lines are means over the seeds, bands go from the smallest to the largest; zeros have no place on the axes."""
    rows, known = diagnosis.rows, diagnosis.constants
    trainer = diagnosis.record["settings"]["trainer"]
    with style.sheet():
        figure = Figure(figsize=(9.2, 4.7), layout="constrained")
        grid = figure.subplots(2, 3, sharex=True)
        for panel, (title, lines) in zip(grid.flat, PANELS.items(), strict=True):
            _panel(panel, rows, lines)
            panel.set_ylabel(UNITS[title], fontsize=7)
            panel.set_title(title, loc="left", fontweight="bold")
        for panel in grid[-1]:
            panel.set_xlabel("Communication rounds")
        sizes = {"c": known.eta_c, "d": known.eta_d, "s": known.eta_s, "r": known.eta_r}
        steps = ", ".join(rf"$\eta_{letter}$ = {size:.3g}" for letter, size in sizes.items())
        where = rf"$p$ = {known.p:.3g}, $\ell$ = {known.l:.3g}, $\kappa$ = {known.kappa:.3g}"
        figure.suptitle(f"{trainer['title']}, K = {known.K}: {steps}; {where}", fontsize=9, x=0.01, ha="left")
        holds = [condition.holds for condition in diagnosis.conditions]
        lemmas = f"{sum(holds)} of the lemmas' {len(holds)} conditions on the step sizes hold."
        if diagnosis.uncovered:
            lemmas = f"No lemma covers this run: {diagnosis.uncovered}."
        seeds = rows["seed"].nunique()
        band = f"Lines: mean over {seeds} seeds. Bands: minimum to maximum." if seeds > 1 else "One seed."
        symbols = (
            r"$\bar x$, $\bar y$: means of the nodes; $C$, $D$: corrections; $\hat y$: the maximiser; "
            r"$\mathcal{H}$: $\Phi - \Phi^*$ and weighted sums of $\Xi$, $\gamma$, $\delta$ (theory/diagnostics.py)."
        )
        figure.supxlabel(f"{band} {lemmas}\n{symbols}", fontsize=7, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}


def _panel(panel: Axes, rows: pd.DataFrame, lines: dict[str, str]) -> None:
    colours = sns.color_palette("colorblind", len(lines))
    for (name, label), colour in zip(lines.items(), colours, strict=True):
        sns.lineplot(
            x=rows["round"],
            y=rows[name].where(rows[name] > ROUNDING, np.nan),
            color=colour,
            label=label,
            errorbar=("pi", 100),
            err_kws={"alpha": 0.18, "linewidth": 0},
            ax=panel,
        )
    panel.set(xlabel="", ylabel="", yscale="log")
    low, high = (math.log10(limit) for limit in panel.get_ylim())
    if high - low < DECADES:  # else small waves look like storms
        panel.set_ylim(10 ** (math.floor(low) - 1), 10 ** (math.ceil(high) + 1))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.margins(x=0.01)
    panel.legend(frameon=False, loc="best", handlelength=1.6)


def plot_lemmas(table: pd.DataFrame, diagnosis: Diagnosis, stem: Path) -> dict[Path, bytes]:
    """<stem>-lemmas.png and .pdf: a panel per lemma with both sides, and one with all ratios, where 1 is the limit.

    Lines are means over the seeds.
    """
    known = diagnosis.constants
    colours = dict(zip(("x", "y", ""), sns.color_palette("colorblind", 3), strict=True))
    lemmas = list(dict.fromkeys(table["lemma"]))
    with style.sheet():
        figure = Figure(figsize=(11, 4.9), layout="constrained")
        grid = figure.subplots(2, 4, sharex=True)
        *panels, ratios = grid.flat
        for panel, lemma in zip(panels, lemmas, strict=True):
            here = table[table["lemma"] == lemma]
            for block, rows in here.groupby("block", sort=False):
                of = f" ({block})" if block else ""
                for side, dashes in (("left", "-"), ("right", "--")):
                    line = rows.groupby("round")[side].mean()
                    line = line.where(line > ROUNDING, np.nan)
                    panel.plot(line.index, line, dashes, color=colours[str(block)], label=f"{side}{of}")
            applies = not here["outcome"].iloc[0].startswith("not applicable")
            violated = int((here["outcome"] == "violated").sum())
            word = f"{violated} violations" if applies else "not applicable"
            panel.set_title(f"Lemma {lemma}: {word}", loc="left", fontweight="bold")
            panel.set_yscale("log")
            panel.legend(frameon=False, fontsize=6)
        palette = sns.color_palette("colorblind", len(lemmas))
        for lemma, colour in zip(lemmas, palette, strict=True):
            here = table[(table["lemma"] == lemma) & ~table["outcome"].str.startswith("not applicable")]
            line = here.groupby("round")["ratio"].max()
            if len(line):
                ratios.plot(line.index, line.where(line > 0), color=colour, label=lemma)
        ratios.axhline(1, color="0.2", linewidth=0.8)
        ratios.set_yscale("log")
        ratios.set_title("Left / right, the largest", loc="left", fontweight="bold")
        ratios.legend(frameon=False, fontsize=6, ncols=2)
        for panel in grid[-1]:
            panel.set_xlabel("Communication rounds")
        where = rf"$p$ = {known.p:.3g}, $\ell$ = {known.l:.3g}, $\kappa$ = {known.kappa:.3g}"
        sizes = {"c": known.eta_c, "d": known.eta_d, "s": known.eta_s, "r": known.eta_r}
        steps = ", ".join(rf"$\eta_{letter}$ = {size:.3g}" for letter, size in sizes.items())
        figure.suptitle(f"Lemmas A.5 to A.11, K = {known.K}: {steps}; {where}", fontsize=9, x=0.01, ha="left")
        name = f"{stem.name}-lemmas"
        return {stem.with_name(f"{name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

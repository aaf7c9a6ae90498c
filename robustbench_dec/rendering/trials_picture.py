"""A picture of a protocol's trials: what each scored, and which score the rule would have taken after so many of them.

The line falls where a more accurate trial comes late: it moves the mark of a point below the best clean accuracy, and
trials that were taken before it may then lie outside.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from robustbench_dec import titles
from robustbench_dec.rendering import style
from robustbench_dec.running import trials
from robustbench_dec.specs.protocol import Protocol


def best_so_far(protocol: Protocol, rows: pd.DataFrame, method: str) -> list[float]:
    """The score that a method takes if both methods had drawn the first 1, 2, ... trials of a stage."""
    taken = []
    for count in range(1, protocol.trials + 1):
        order = trials.ranked(protocol, rows[rows["trial"].astype(int) < count])
        taken.append(float(order[order["method"] == method].iloc[0]["score"]))
    return taken


def picture(protocol: Protocol, done: pd.DataFrame, stem: Path) -> dict[Path, bytes]:
    """<stem>.png and .pdf: a panel for each data set, its short trials."""
    colours = style.colours(protocol.methods)
    with style.sheet():
        figure = Figure(figsize=(0.6 + 3.4 * len(protocol.blocks), 3.1), layout="constrained")
        panels = figure.subplots(1, len(protocol.blocks), squeeze=False)[0]
        for panel, block in zip(panels, protocol.blocks, strict=True):
            rows = done[(done["stage"] == "short") & (done["block"] == block.title)]
            near = rows["clean"] >= rows["clean"].max() - protocol.clean_within - 1e-12
            for method in protocol.methods:
                mine, colour = rows["method"] == method, colours[method]
                for inside in (True, False):
                    points = rows[mine & (near == inside)]
                    face = {"color": colour} if inside else {"edgecolor": colour, "facecolor": "none"}
                    panel.scatter(points["trial"] + 1, 100 * points["score"], s=16, linewidth=0.8, **face)
                line = [100 * score for score in best_so_far(protocol, rows, method)]
                panel.step(range(1, len(line) + 1), line, where="post", color=colour, label=titles.method(method))
            panel.set(title=block.title, xlabel="trials of each method", ylabel="score on held-out images (%)")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].legend(loc="lower right")
        rounds = ", ".join(f"{block.title} {protocol.rounds(block, full=False)}" for block in protocol.blocks)
        within = f"within {100 * protocol.clean_within:g} point of the best clean accuracy of either method"
        note = (
            f"Score: mean accuracy over the attacked columns, after a short run (rounds: {rounds}). Line: what\n"
            f"the rule takes after so many trials. Full points: {within}.\n"
            "Trials that diverged have no point."
        )
        figure.supxlabel(note, fontsize=6.5, color="0.35", x=0.01, ha="left")
        return {stem.with_name(f"{stem.name}.{kind}"): style.drawn(figure, kind) for kind in ("png", "pdf")}

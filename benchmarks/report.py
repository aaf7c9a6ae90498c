"""The tables of docs/speed.md, and of what was made anew in docs/reproduction.md, from the CSVs beside this file.

    python benchmarks/report.py

Every table stands between <!-- NAME.csv --> and <!-- end --> and is replaced by the rows of benchmarks/NAME.csv; a test
makes them again and compares.
"""

from functools import partial
from pathlib import Path

import pandas as pd

from robustbench_dec import files
from robustbench_dec.rendering.text import with_parts

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / "docs" / name for name in ("speed.md", "reproduction.md")]

Columns = dict[str, tuple[str, str]]
"""Of a CSV: the titles and the formats of those that are shown."""

TITLES = {
    "round": {"flower": "Flower", "fluke": "fluke"},
    "pgd": {"torchattacks": "torchattacks alone", "foolbox": "Foolbox", "art": "ART"},
}
"""How other libraries are called."""

TABLES: dict[str, Columns] = {
    "training_speed": {
        "dataset": ("data set", "{}"),
        "method": ("method", "{}"),
        "local_step_ms": ("local step, ms", "{:.0f}"),
        "old_ratio": ("to 0.1.0", "{:.2f}"),
        "bare_ratio": ("to bare PyTorch", "{:.2f}"),
        "limit_ratio": ("to the limit", "{:.2f}"),
    },
    "step_profile": {
        "dataset": ("data set", "{}"),
        "work": ("step of", "{}"),
        "operation": ("operation", "`{}`"),
        "share": ("share", "{:.0%}"),
        "ms": ("ms", "{:.0f}"),
    },
    "attack_speed": {
        "network": ("network", "{}"),
        "images": ("images", "{:,}"),
        "steps": ("steps", "{}"),
        "suite_seconds": ("suite, s", "{:.0f}"),
        "torchattacks_seconds": ("torchattacks alone, s", "{:.0f}"),
        "ratio": ("ratio", "{:.2f}"),
    },
    "logistic_speed": {
        "method": ("method", "{}"),
        "old_ms_per_round": ("0.1.0, ms", "{:.1f}"),
        "ms_per_round": ("ms", "{:.1f}"),
        "speedup": ("times as fast", "{:.2f}"),
        "phi_relative_difference": ("Phi differs by", "{:.1g}"),
    },
    "page_speed": {
        "deed": ("deed", "{}"),
        "rows": ("rows", "{:,}"),
        "ms": ("ms", "{:.0f}"),
        "ratio": ("ratio", "{:.1f}"),
    },
    "many_nodes": {
        "problem": ("problem", "{}"),
        "nodes": ("nodes", "{:,}"),
        "ms_per_round": ("round, ms", "{:.1f}"),
        "time_per_node_ratio": ("a node, to one of 10", "{:.2f}"),
        "sum_ratio": ("a sum of stacks, likewise", "{:.2f}"),
    },
    "harness_cost": {
        "network": ("network", "{}"),
        "here_s": ("in the same process, s", "{:.2f}"),
        "more_apart_s": ("more in its own, s", "{:.2f}"),
        "first_start_s": ("once a command, s", "{:.2f}"),
    },
    "peers": {
        "library": ("library", "{}"),
        "work": ("work", "{}"),
        "seconds": ("seconds", "{:.2f}"),
        "suite_seconds": ("suite", "{:.2f}"),
        "ratio": ("ratio", "{:.2f}"),
    },
    "divergence": {
        "method": ("method", "{}"),
        "seed": ("seed", "{}"),
        "threads": ("threads", "{}"),
        "diverged_in_round": ("diverges in round", "{}"),
        "largest_loss": ("largest loss", "{:.3g}"),
        "published": ("the published run", "{}"),
    },
    "reproduced": {
        "what": ("runs of", "{}"),
        "runs": ("made anew", "{}"),
        "same_costs": ("with the same costs", "{}"),
        "apart": ("floor or Phi apart by", "{:.0e}"),
        "committed": ("published by", "{}"),
        "anew": ("anew by", "{}"),
    },
    "reproduced_times": {
        "command": ("command", "`{}`"),
        "cpu": ("CPU", "{}"),
        "runs": ("runs or trials", "{}"),
        "core_seconds": ("seconds of a core", "{}"),
        "clock_seconds": ("on the clock", "{}"),
    },
}


def table(name: str) -> str:
    """The rows of a CSV as Markdown; of one that another version measured otherwise, or nobody yet, a sentence."""
    path, columns = HERE / f"{name}.csv", TABLES[name]
    frame = pd.read_csv(path).convert_dtypes() if path.exists() else pd.DataFrame()
    if not set(columns) <= set(frame):
        return f"Not measured with this version yet: `python benchmarks/{name}.py`."
    lines = ["| " + " | ".join(title for title, _ in columns.values()) + " |", "|" + "---|" * len(columns)]
    for _, row in frame.iterrows():
        cells = ("none" if pd.isna(row[column]) else form.format(row[column]) for column, (_, form) in columns.items())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sentence() -> str:
    """README's line about other libraries, of benchmarks/peers.csv; empty where nothing was measured."""
    path = HERE / "peers.csv"
    if not path.exists():
        return ""
    ratio = pd.read_csv(path).set_index(["work", "library"])["ratio"]

    def times(work: str, titles: str) -> str:
        return ", ".join(f"{title} {ratio[work, name]:.1f}" for name, title in TITLES[titles].items())

    return (
        f"Against this suite, a round takes {times('round', 'round')} times as long; PGD takes {times('pgd', 'pgd')} "
        f"times; FGSM {times('fgsm', 'pgd')} times (this suite also judges)."
    )


PARTS = {f"{name}.csv": partial(table, name) for name in TABLES}


if __name__ == "__main__":
    for page in PAGES:
        files.write_text(page, with_parts(page.read_text(), PARTS))

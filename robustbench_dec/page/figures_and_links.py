"""What lies around the page and belongs on it: the paper's figures and Table 1 beside it, code and papers of the parts.

The page stays one file: figures are embedded small, with a link to the full file; a link is made only to a file that is
there, relative to the page.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from robustbench_dec import shelf, titles
from robustbench_dec.leaderboard import references
from robustbench_dec.page.pictures import png_uri

WIDTH = 1000
"""Pixels of an embedded figure."""
COLOURS = 256
"""Of an embedded figure."""

FIGURES = {
    "figures-1": ("Figure 1", "Robust logistic regression: the objective Φ at the mean x̄, minus the best known one."),
    "figures-2": ("Figure 2", "Robust logistic regression: accuracy against what it cost."),
    "figures-split-1": (
        "Figure 1 on heterogeneous nodes",
        "The same objective where the nodes' data differ, with 1, 5 and 20 local steps.",
    ),
    "methods-heat": (
        "Methods and splits",
        "Every method on every way to deal the data, clean and in the worst case of all attacks.",
    ),
    "table2-radius-tradeoff": (
        "Table 2 by training radius",
        "What the radius of y in training costs in clean accuracy and buys under attack.",
    ),
}
SYMBOLS = {"kappa": "κ", "epsilon": "ε", "mu": "μ", "rho": "ρ", "delta": "δ", "log": "log", "tilde": ""}  # noqa: RUF001
POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Shown:
    """An embedded figure and the files that show it in full."""

    title: str
    caption: str
    uri: str
    width: int
    height: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table of plain texts and the files that have it in full."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class PartLinks:
    """A method or an attack with its code and its papers."""

    kind: str
    name: str
    title: str
    code: str | None  # relative to the page
    papers: tuple[tuple[str, str], ...]  # title with venue, address


def figures(folder: Path | None) -> list[Shown]:
    """The figures that lie beside the page."""
    if folder is None:
        return []
    return [_figure(folder, *each) for each in FIGURES.items() if (folder / f"{each[0]}.png").is_file()]


def _figure(folder: Path, stem: str, words: tuple[str, str]) -> Shown:
    image = Image.open(folder / f"{stem}.png").convert("RGB")
    width = min(WIDTH, image.width)
    small = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    uri = png_uri(small.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
    return Shown(*words, uri, *small.size, _there(folder, f"{stem}.png", f"{stem}.pdf"))


def table1(folder: Path | None) -> Grid | None:
    """The first table of table1.md, what the paper says of each method and what was seen."""
    if folder is None:
        return None
    path = folder / "table1.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    start = next((place for place, line in enumerate(lines) if line.startswith("|")), None)
    if start is None:
        return None
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append(tuple(plain(cell.strip()) for cell in line.strip().strip("|").split(" | ")))
    return Grid(table[0], tuple(table[2:]), _there(folder, "table1.md", "table1.csv", "table1.tex"))


def plain(text: str) -> str:
    """A cell of Markdown with small formulas as plain characters: $O(\\frac{1}{n\\epsilon^2})$ is O(1 / nε²)."""
    text = re.sub(r"<sup>\w+</sup>", "", text)
    text = re.sub(r"\\sqrt\{(\w+)\}", r"√\1", text)
    text = re.sub(r"\^(?:\{(-?\d+)\}|(\d))", lambda found: (found[1] or found[2]).translate(POWERS), text)
    text = re.sub(r"\\([a-z]+)", lambda found: SYMBOLS.get(found[1], f"\\{found[1]}"), text)
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1 / \2", text)
    return re.sub(r"\\([^A-Za-z0-9\s])", r"\1", text).replace("$", "")


def parts(frame: pd.DataFrame, folder: Path | None) -> list[PartLinks]:
    """The methods and attacks of a leaderboard, in the order of the tables."""
    methods = titles.in_order(frame["method"], titles.methods())
    attacks = titles.in_order(frame["attack"], titles.attacks())
    return [*_links("trainer", methods, folder), *_links("attack", attacks, folder)]


def _links(kind: str, names: Iterable[str], folder: Path | None) -> list[PartLinks]:
    title = titles.method if kind == "trainer" else titles.attack
    return [PartLinks(kind, name, title(name), _code(kind, name, folder), _papers(kind, name)) for name in names]


def _code(kind: str, name: str, folder: Path | None) -> str | None:
    """The part's file, where the page stands in the same checkout."""
    for path in shelf.beside(kind, f"{name}.py") if folder else ():
        link = os.path.relpath(path, folder and folder.resolve())
        if link == os.path.join("..", path.parent.name, path.name):
            return Path(link).as_posix()
    return None


def _papers(kind: str, name: str) -> tuple[tuple[str, str], ...]:
    found = references.of(kind, name)
    return tuple((f"{paper.title} ({paper.venue})", paper.link) for paper in found if paper.link)


def _there(folder: Path, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if (folder / name).is_file())

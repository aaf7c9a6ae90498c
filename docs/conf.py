"""Sphinx: `make docs`. Pages are Markdown; those in docs/made come from docs/make_pages.py."""

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "robustbench-dec"
author = "The robustbench-dec authors"
copyright = "2026, The robustbench-dec authors"
release = re.findall(r'__version__ = "(.+)"', (Path(__file__).parents[1] / "robustbench_dec/__init__.py").read_text())[
    0
]
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"robustbench-dec {release}"
html_static_path = ["static"]
html_css_files = ["wide.css"]
nitpicky = True
exclude_patterns = ["built"]


def to_made(app: Sphinx, name: str, text: list[str]) -> None:
    """A link to tables/table2.md, which suits the repository, leads to its page here."""
    text[0] = re.sub(r"\]\(\.\./tables/([\w-]+)\.md", r"](/made/tables/\1.md", text[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", to_made)

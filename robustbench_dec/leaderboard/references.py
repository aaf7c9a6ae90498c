"""References: which papers stand behind a trainer or an attack, from the references.bib of its shelf.

A new part's paper is one more entry there, with the part's name among its `keywords`.
"""

import functools
import importlib.resources
import re
from typing import NamedTuple

import robustbench_dec
from robustbench_dec import shelf

SOFTWARE = f"""@misc{{robustbench_dec,
  title = {{robustbench-dec: adversarial robustness of models trained without a server}},
  author = {{{{The robustbench-dec authors}}}},
  year = {{2026}},
  note = {{Version {robustbench_dec.__version__}}},
}}"""
"""How to cite this package itself; says what CITATION.cff says."""


class Reference(NamedTuple):
    """One BibTeX entry: its key, its whole text and its fields."""

    key: str
    text: str
    fields: dict[str, str]

    @property
    def authors(self) -> str:
        """The authors in reading order, separated by commas."""
        people = (person.split(", ", 1)[::-1] for person in self.fields["author"].split(" and "))
        return _plain(", ".join(" ".join(names) for names in people))

    @property
    def title(self) -> str:
        return _plain(self.fields["title"])

    @property
    def link(self) -> str:
        if "eprint" in self.fields:
            return f"https://arxiv.org/abs/{self.fields['eprint']}"
        return f"https://doi.org/{self.fields['doi']}" if "doi" in self.fields else ""

    @property
    def venue(self) -> str:
        """Where it appeared, with the year: "AISTATS 2024"; "arXiv 2405.00965" where it is only there."""
        where = self.fields.get("booktitle") or self.fields.get("journal")
        if where is None:
            return f"arXiv {self.fields['eprint']}" if "eprint" in self.fields else self.fields["year"]
        short = re.search(r"\((\w+)\)$", where)
        return f"{short[1] if short else where} {self.fields['year']}"


def of(kind: str, name: str) -> list[Reference]:
    """The papers behind a part; none for a user's own file or where no entry names it."""
    name = name.partition(":")[0] if name.startswith("torchattacks:") else name
    return [entry for entry in _entries(kind) if name in re.split(r",\s*", entry.fields.get("keywords", ""))]


@functools.cache
def _entries(kind: str) -> list[Reference]:
    text = (importlib.resources.files(shelf.SHELVES[kind]) / "references.bib").read_text(encoding="utf-8")
    entries = []
    for match in re.finditer(r"^@\w+\{(\S+),\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^\s*(\w+) = \{(.*)\},?$", match[2], re.MULTILINE))
        shown = re.sub(r"^\s*keywords = .*\n", "", match[0], flags=re.MULTILINE)  # ours, not the reader's
        entries.append(Reference(match[1], shown, fields))
    return entries


def _plain(text: str) -> str:
    """BibTeX's braces and accents as plain characters."""
    return re.sub(r"[{}]", "", text.replace(r"{\'e}", "é"))

"""References: which papers stand behind a trainer or an attack, from the BibTeX file beside it: trainers/dream.bib.

Entries are separated by empty lines and handed on as they are written. `torchattacks.bib` is for all of that library's.
"""

import functools
import re
from pathlib import Path
from typing import NamedTuple

from pybtex.database import Entry, parse_string
from pybtex.exceptions import PybtexError
from pybtex.richtext import Text

import robustbench_dec
from robustbench_dec import shelf
from robustbench_dec.errors import BadInput

SOFTWARE = f"""@misc{{robustbench_dec,
  title = {{robustbench-dec: adversarial robustness of models trained without a server}},
  author = {{{{The robustbench-dec authors}}}},
  year = {{2026}},
  note = {{Version {robustbench_dec.__version__}}},
}}"""
"""How to cite this package itself; says what CITATION.cff says."""


class Reference(NamedTuple):
    """One paper: its key, its BibTeX as it is written, and what pybtex reads in it."""

    key: str
    text: str
    entry: Entry

    @property
    def authors(self) -> str:
        """The authors in reading order, separated by commas."""
        people = self.entry.persons["author"]
        return _plain(
            ", ".join(" ".join([*p.first_names, *p.middle_names, *p.prelast_names, *p.last_names]) for p in people)
        )

    @property
    def title(self) -> str:
        return _plain(self.entry.fields["title"])

    @property
    def year(self) -> str:
        return str(self.entry.fields["year"])

    @property
    def link(self) -> str:
        fields = self.entry.fields
        if "eprint" in fields:
            return f"https://arxiv.org/abs/{fields['eprint']}"
        return f"https://doi.org/{fields['doi']}" if "doi" in fields else ""

    @property
    def venue(self) -> str:
        """Where it appeared, with the year: "AISTATS 2024"; "arXiv 2405.00965" where it is only there."""
        fields = self.entry.fields
        where = fields.get("booktitle") or fields.get("journal")
        if where is None:
            return f"arXiv {fields['eprint']}" if "eprint" in fields else self.year
        short = re.search(r"\((\w+)\)$", where)
        return f"{short[1] if short else where} {self.year}"


def of(kind: str, name: str) -> list[Reference]:
    """The papers behind a part; none for a user's own file or where no BibTeX file lies beside it."""
    name = name.partition(":")[0] if name.startswith("torchattacks:") else name
    return [paper for path in shelf.beside(kind, f"{name}.bib") for paper in _read(path)]


@functools.cache
def _read(path: Path) -> list[Reference]:
    papers = []
    for text in re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip()):
        try:
            ((key, entry),) = parse_string(text, "bibtex").entries.items()
        except (PybtexError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"{path} should be BibTeX entries with an empty line between them: {reason}") from error
        papers.append(Reference(key, text, entry))
    return papers


def _plain(text: str) -> str:
    """BibTeX's braces and accents as plain characters."""
    return str(Text.from_latex(text))

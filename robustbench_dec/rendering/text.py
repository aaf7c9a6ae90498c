"""Markdown and LaTeX: plain text escaped, and tables of texts that are escaped already."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

MARK = "†"  # an entry that the audit flags
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MARK: r"$^\dagger$",
    "δ": r"$\delta$",
    "α": r"$\alpha$",  # noqa: RUF001
    "η": r"$\eta$",
    "ρ": r"$\rho$",  # noqa: RUF001
    "≤": r"$\le$",
    "∞": r"$\infty$",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
}

LATEX_NEEDS = (
    "% Needs booktabs; where graphicx is loaded too, the table is scaled to the width of the text.",
    r"\providecommand{\resizebox}[3]{{\scriptsize\setlength{\tabcolsep}{2pt}#3}}",
)


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table: names to the left, numbers to the right."""
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def with_parts(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """A page whose parts, each between <!-- NAME --> and <!-- end -->, are made anew; other names are left alone."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{parts[name]()}\n<!-- end -->" if name in parts else found[0]

    return re.sub(r"<!-- ([\w.]+) -->\n.*?<!-- end -->", made, text, flags=re.DOTALL)


def latex_table(
    columns: str, rows: Sequence[str], caption: str, label: str | None = None, foot: Sequence[str] = ()
) -> list[str]:
    """The lines of a table over both columns of a page, all in LaTeX already; rows come with their inner rules."""
    return [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        *([rf"\label{{tab:{label}}}"] if label else []),
        r"\par\smallskip",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}%",
        "}",
        r"\par\smallskip",
        *foot,
        r"\end{table*}",
    ]


def latex_notes(notes: Iterable[str]) -> str:
    return rf"{{\footnotesize {escape_latex(' '.join(notes))}}}"


def latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)

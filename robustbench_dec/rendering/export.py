"""Export: a chosen part of the leaderboard as CSV, LaTeX, RobustBench-style JSON or BibTeX."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import labelled_rows, references
from robustbench_dec.rendering.text import escape_latex

LATEX_HEAD = r"""% Needs booktabs.
\begin{tabular}{@{}llllrrrrr@{}}
\toprule
Data set & Network & Attack & Norm & $\delta$ & Clean (\%) & Robust (\%) & Seeds & Images \\
\midrule
"""
LATEX_FOOT = r"""\bottomrule
\end{tabular}
"""


class Cell(TypedDict):
    """An attack on a model, as the documents tell it."""

    attack: str
    settings: dict[str, object]
    robust_acc: str
    n_examples: int
    flags: list[str]
    submitter: str


class Document(TypedDict):
    """A trained model with the keys of RobustBench's model_info files, and what they have no keys for."""

    link: str
    name: str
    authors: str
    additional_data: bool
    number_forward_passes: int
    dataset: str
    venue: str
    architecture: str
    eps: str
    clean_acc: str
    reported: str | None
    external: str
    unreliable: bool
    footnote: str
    method: str
    seed: int
    checkpoint_sha256: str
    cells: list[Cell]


def text(frame: pd.DataFrame, form: str) -> str:
    """Labelled rows (see `labelled_rows.read`, `select`) in one of the formats csv, latex, json, bibtex."""
    writers = {"csv": csv, "latex": latex, "json": json_text, "bibtex": bibtex}
    if form not in writers:
        raise BadInput(f"no format '{form}'; there are: {', '.join(writers)}")
    return writers[form](frame)


def csv(frame: pd.DataFrame) -> str:
    """The rows as they stand in results/leaderboard.csv."""
    return str(frame.drop(columns=labelled_rows.ADDED).to_csv(index=False, lineterminator="\n"))


def latex(frame: pd.DataFrame) -> str:
    """A booktabs table, one line per model, attack and radius: mean over seeds with the sample standard deviation."""
    return LATEX_HEAD + "".join(latex_line(group) for group in labelled_rows.averaged(frame)) + LATEX_FOOT


def latex_line(group: labelled_rows.Group) -> str:
    """A group of `labelled_rows.averaged` as a line of that table."""
    names = (titles.dataset(group.dataset), group.model, group.attack_label, group.norm)
    accuracies = (_percent(group.clean, group.clean_std), _percent(group.robust, group.robust_std))
    cells = [*map(escape_latex, names), f"{group.eps:g}", *accuracies, str(group.seeds), str(group.images)]
    return " & ".join(cells) + " \\\\\n"


def json_text(frame: pd.DataFrame) -> str:
    """All documents of `robustbench` as one JSON object."""
    return json.dumps(robustbench(frame), indent=1, allow_nan=False) + "\n"


def robustbench(frame: pd.DataFrame) -> dict[str, Document]:
    """One document per trained model, named <dataset>/<norm>/<run id>, with the keys of RobustBench's model_info files.

    As there, accuracies are percent in text with two decimals. A document has one `eps`: the largest radius of the
    view (choose another by selecting it). `external` is the best known robust accuracy there: the lowest one over the
    cells of the view on the most images, since a perturbation within a smaller ball is within this one too. Nobody
    reported a robust accuracy for these very checkpoints, so `reported` is null. Beyond RobustBench's keys, `cells` has
    every attack.
    """
    documents: dict[str, Document] = {}
    for (dataset, norm, run_id), rows in frame.groupby(["dataset", "norm", "run_id"], sort=False):
        row = rows.iloc[0]
        papers = references.of("trainer", row["method"])
        paper = papers[0] if papers else None
        flagged = sorted({flag for flags in rows["reliability_flags"] for flag in flags.split(";") if flag})
        most = rows[rows["n_examples"] == rows["n_examples"].max()]
        worst = most.loc[most["robust_acc"].idxmin()]
        documents[f"{dataset}/{norm}/{run_id}"] = {
            "link": paper.link if paper else "",
            "name": paper.title if paper else row["model"],
            "authors": paper.authors if paper else "",
            "additional_data": False,
            "number_forward_passes": 1,
            "dataset": dataset,
            "venue": paper.venue if paper else "N/A",
            "architecture": row["architecture"],
            "eps": f"{rows['eps'].max():g}",
            "clean_acc": _two(row["clean_acc"]),
            "reported": None,
            "external": _two(worst["robust_acc"]),
            "unreliable": bool(flagged),
            "footnote": _footnote(row, worst, flagged),
            "method": row["method"],
            "seed": int(row["seed"]),
            "checkpoint_sha256": row["checkpoint_sha256"],
            "cells": [_cell(cell) for _, cell in rows.iterrows()],
        }
    return documents


def bibtex(frame: pd.DataFrame) -> str:
    """This package, then the papers of the methods and attacks in the view, each once."""
    return "\n\n".join([references.SOFTWARE, *_papers(frame["method"], frame["attack"])]) + "\n"


def write_documents(documents: Mapping[str, Document], folder: Path) -> list[Path]:
    """Each document in a file of its own below `folder`, as RobustBench keeps them."""
    paths = []
    for name, document in documents.items():
        path = folder / f"{name}.json"
        if not path.resolve().is_relative_to(folder.resolve()):  # names may come from users
            raise BadInput(f"the model '{name}' would be written outside of {folder}; rename its run")
        files.write_json(path, document)
        paths.append(path)
    return paths


def _papers(methods: Iterable[str], attacks: Iterable[str]) -> Sequence[str]:
    texts: dict[str, str] = {}
    for kind, names in (("trainer", methods), ("attack", attacks)):
        for name in dict.fromkeys(names):
            found = references.of(kind, name)
            texts |= {entry.key: entry.text for entry in found}
            if not found:
                texts[f"{kind} {name}"] = f"% No reference is known for the {kind} {' '.join(name.split())}."
    return list(texts.values())


def _cell(row: pd.Series) -> Cell:
    return {
        "attack": row["attack"],
        "settings": json.loads(row["attack_params_json"] or "{}"),
        "robust_acc": _two(row["robust_acc"]),
        "n_examples": int(row["n_examples"]),
        "flags": [flag for flag in row["reliability_flags"].split(";") if flag],
        "submitter": row["submitter"],
    }


def _footnote(row: pd.Series, worst: pd.Series, flagged: Sequence[str]) -> str:
    footnote = (
        f"{row['model']}, seed {row['seed']}, {row['n_clients']} nodes ({row['topology']}). The best known robust "
        f"accuracy is by {worst['attack_label']} at eps {worst['eps']:g} on {worst['n_examples']:,} test images."
    )
    return f"{footnote} Flags of some cells: {', '.join(flagged)}." if flagged else footnote


def _percent(mean: float, std: float | None) -> str:
    return f"{100 * mean:.1f}" + (rf" {{\scriptsize$\pm$\,{100 * std:.1f}}}" if std is not None else "")


def _two(fraction: float) -> str:
    return f"{100 * fraction:.2f}"

"""Pages that are made from the code: every method, the command line, Python's functions, and a picture of the rooms.

`make docs` runs it before Sphinx: python docs/make_pages.py docs/made. Nothing here is typed that the code knows.
"""

import functools
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from html import escape
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import typer

import robustbench_dec
from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack
from robustbench_dec.commands.app import app
from robustbench_dec.leaderboard import references
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import Part, settable
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.rendering import model_cards
from robustbench_dec.specs.single import STARTERS
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results
from robustbench_dec.trainer import Trainer

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, NODES, SAMPLES = 30, 10, 256
"""On what a trainer's price is measured: so many rounds on a ring of so many nodes with so many samples each."""


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _prose(text: str) -> str:
    """A docstring as Markdown: what is indented is a formula or code, the rest are paragraphs."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        while lines and not lines[-1].startswith("    "):  # lines before the first indented one, and after the last
            lines.pop()
        parts.append(f"```text\n{block}\n```" if lines else _escaped(block))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Plain text as Markdown; what stands between backticks is left alone."""
    pieces = text.split("`")
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"([_*\[\]|])", r"\\\1", pieces[index]).replace("<", "&lt;")
    return "`".join(pieces)


# A page per method


def method(kind: str, name: str, cls: type[Part]) -> str:
    """A part's page: its papers, its formula, its price, its settings, and where it stands."""
    folder = shelf.SHELVES[kind]
    about = inspect.getdoc(inspect.getmodule(cls)) or ""
    parts = [f"# {cls.title}", f"`{name}`, in `{folder}/{name}.py`. In print: {_papers(kind, name)}."]
    parts += ["## What it does", _prose(about)]
    if inspect.getdoc(cls):
        parts.append(_prose(str(inspect.getdoc(cls))))
    if issubclass(cls, Trainer):
        parts += ["## Its price", price(name, cls)]
    parts += ["## Settings", _settings(cls)]
    stands = list(_stands(kind, name))
    parts += ["## Where it stands", "\n".join(f"- {each}" for each in stands) or "In no committed table."]
    return "\n\n".join(parts) + "\n"


def _papers(kind: str, name: str) -> str:
    papers = references.of(kind, name)
    linked = [
        f"{each.authors}, {f'[{each.title}]({each.link})' if each.link else each.title}, {each.venue}"
        for each in papers
    ]
    return "; ".join(linked) or "nothing; it is this suite's own"


def _settings(cls: type[Part]) -> str:
    hints = get_type_hints(cls)
    known = settable(cls)
    rows = []
    for field in fields(cls):
        if field.name in known:
            default = "must be given" if field.default is MISSING else f"`{field.default}`"
            rows.append([f"`{field.name}`", f"`{_type(hints[field.name])}`".replace("|", "or"), default])
    return table(["setting", "type", "default"], rows)


def _type(hint: Any) -> str:
    """A type in words; `Optional[int]` is `int or None`."""
    if get_args(hint) and type(None) in get_args(hint):
        return " or ".join(_type(each) for each in get_args(hint))
    if hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def price(name: str, cls: type[Trainer]) -> str:
    """What a round costs with the default settings, measured by the ledger."""
    starters = STARTERS["quadratic"] | {"batch": 128}
    given = {key: value for key, value in starters.items() if key in settable(cls)}
    trainer = cls.make({key: value for key, value in given.items() if key.startswith("eta") or key == "batch"})
    net = SimulatedNetwork(topology.build("ring", NODES))
    oracle = Oracle(Quadratic(m=SAMPLES, noise=0.01, heterogeneity=0.01), NODES, 0, net.ledger)
    state = trainer.init(oracle, net)
    for _ in range(ROUNDS):
        state = trainer.step(state, oracle, net)
    ledger = net.ledger
    vectors = ledger.bytes_per_edge / 8 / ROUNDS  # numbers of 8 bytes
    rows = [
        ["SFO calls per node (one call: one sample's gradients in x and y)", f"{ledger.sfo / ROUNDS:,.1f}"],
        ["exchanges with the neighbours", f"{ledger.exchanges / ROUNDS:.2f}"],
        ["exact means over all nodes (by a server or an all-reduce)", f"{ledger.all_reduces / ROUNDS:.2f}"],
        ["numbers over each directed edge, where x has 6 and y has 4", f"{vectors:.1f}"],
    ]
    settings = ", ".join(f"{key} = {value}" for key, value in trainer.settings().items() if not key.startswith("eta"))
    return (
        f"Measured: the mean over the start and {ROUNDS} rounds on {NODES} nodes with {SAMPLES:,} samples each"
        f"{f'; {settings}' if settings else ''}.\n\n" + table(["in a round", ""], rows)
    )


@functools.cache
def _tables() -> list[tuple[Path, pd.DataFrame]]:
    """The committed tables."""
    wanted = {"method", "attack", "dataset", "eps", "mean"}
    return [
        (path, pd.read_csv(path, usecols=lambda column: column in wanted))
        for path in sorted((ROOT / "tables").glob("*.csv"))
        if not path.stem.endswith("-tune") and not path.stem.startswith("diagnostics")
    ]


def _stands(kind: str, name: str) -> Iterator[str]:
    """The committed tables that have it, with its numbers where they are few."""
    column = {"trainer": "method", "attack": "attack"}[kind]
    for path, frame in _tables():
        if column not in frame or name not in set(frame[column]):
            continue
        line = f"[{path.stem}](../../../tables/{path.name})"
        if {"dataset", "attack", "eps", "mean"} <= set(frame.columns) and kind == "trainer":
            shown = frame[(frame[column] == name)]
            cells = (f"{row.dataset} {row.attack} {row.eps:g}: {100 * row.mean:.1f}" for row in shown.itertuples())
            line += " (accuracy in percent): " + ", ".join(cells)
        yield line


# The command line


def command_line() -> str:
    root: Any = typer.main.get_command(app)
    parts = ["# The command line", "Made from the code. Every command also has `--help`; `--traceback` works anywhere."]
    for path, command in _commands("robustbench-dec", root):
        parts += [f"## {path}", _plain(inspect.cleandoc(command.help or ""))]
        rows = []
        for each in command.params:
            flag = getattr(each, "is_flag", False)
            words = ", ".join(f"`{word}`" for word in (*each.opts, *each.secondary_opts))
            kind = "" if flag else f" {_type(each.type_descriptor.annotation).lower()}"
            default = "" if flag or callable(each.default) or each.default in (None, []) else f"`{each.default}`"
            default = "must be given" if each.required else default
            rows.append([words + kind.replace("|", "or"), _plain(each.help or ""), default])
        if rows:
            parts.append(table(["option", "what it does", "default"], rows))
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Help as Markdown: <id> is no tag, and | ends no cell."""
    return text.replace("<", "&lt;").replace("|", "or").replace("*", "\\*")


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, each in sorted(getattr(command, "commands", {}).items()):
        if hasattr(each, "commands"):
            yield from _commands(f"{path} {name}", each)
        else:
            yield f"{path} {name}", each


# Python


def python_functions() -> str:
    parts = ["# Python's functions", "Made from the code: `from robustbench_dec import ...`."]
    for name in robustbench_dec.__all__:
        function = getattr(robustbench_dec, name)
        parts += [f"## {name}", f"```python\n{name}{_signature(function)}\n```"]
        parts.append(_prose(inspect.getdoc(function) or ""))
    return "\n\n".join(parts) + "\n"


def _signature(function: Any) -> str:
    """One argument a line, as it is written."""
    if not callable(function) or inspect.isclass(function):
        return ""
    signature = inspect.signature(function)
    kinds = [each.kind for each in signature.parameters.values()]
    lines = [str(each).replace("robustbench_dec.", "") for each in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        lines.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    back = inspect.formatannotation(signature.return_annotation)
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f") -> {back.replace('robustbench_dec.', '')}"


# The rooms


def layers() -> list[list[str]]:
    """The rooms from top to bottom, as import-linter holds them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (contract for contract in contracts if contract["type"] == "layers")
    return [[name.strip() for name in layer.split(":")] for layer in rooms["layers"]]


def rooms() -> str:
    """The layers as an SVG: what stands higher may import what stands lower, never the other way."""
    width, height, gap, y = 960, 34, 10, 20
    shapes = []
    for layer in layers():
        lines = [layer[i : i + 7] for i in range(0, len(layer), 7)]
        box = len(lines) * height + 12
        shapes.append(f'<rect x="20" y="{y}" width="{width - 40}" height="{box}" rx="8" class="layer"/>')
        for row, names in enumerate(lines):
            each = (width - 60) / len(names)
            for column, name in enumerate(names):
                x = 30 + each * column
                top = y + 6 + row * height
                folder = (ROOT / "robustbench_dec" / name).is_dir()
                shapes.append(
                    f'<rect x="{x + 3:.0f}" y="{top + 3}" width="{each - 6:.0f}" height="{height - 6}" rx="5" '
                    f'class="{"room" if folder else "file"}"/>'
                    f'<text x="{x + each / 2:.0f}" y="{top + height / 2 + 5:.0f}">{escape(name)}{"/" * folder}</text>'
                )
        y += box + gap
    style = (
        "text{font:14px sans-serif;text-anchor:middle;fill:#14213d}.layer{fill:#eef2f7;stroke:#c5cedb}"
        ".room{fill:#cfe3f7;stroke:#7fa8d1}.file{fill:#fff;stroke:#c5cedb}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 10}" role="img">'
        f"<title>The rooms of robustbench_dec: each imports only what stands below it</title>"
        f"<style>{style}</style><rect width='{width}' height='{y + 10}' fill='#fff'/>{''.join(shapes)}</svg>\n"
    )


def pages() -> dict[str, str]:
    """Every page by its place."""
    made = {"commands.md": command_line(), "functions.md": python_functions(), "../rooms.svg": rooms()}
    contents = []
    for kind, contract in (("trainer", Trainer), ("attack", Attack)):
        contents += [f"## {kind.capitalize()}s", ""]
        names = []
        for name, cls in shelf.usable(kind, contract).items():  # type: ignore[type-abstract]
            made[f"{kind}s/{name}.md"] = method(kind, name, cls)
            names.append(f"{kind}s/{name}")
        contents += ["```{toctree}\n:maxdepth: 1\n", *names, "```\n"]
    names = []
    for entry in zoo.entries():
        text = model_cards.card(entry, model_cards.cells(entry, Results(ROOT / "results")))
        made[f"zoo/{entry.name}.md"] = text.split("---\n", 2)[2].lstrip()  # without the head for machines
        names.append(entry.name)
    listed = "\n".join(names)
    made["zoo/index.md"] = (
        "# The zoo\n\nTrained networks that come along, each as its model card has it (`robustbench-dec zoo cards` "
        f"writes them for Hugging Face).\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )
    for path in sorted((ROOT / "tables").glob("*.md")):  # as pages, so that links to them lead somewhere
        text = path.read_text()
        made[f"tables/{path.name}"] = f"# {path.stem}\n\n" + re.sub(r"^##+ ", "## ", text, flags=re.MULTILINE)
    made["tables/index.md"] = "# Tables\n\nAs they are committed.\n\n```{toctree}\n:maxdepth: 1\n:glob:\n\n*\n```\n"
    made["methods.md"] = "# Every method\n\nOne page for each, made from its file.\n\n" + "\n".join(contents)
    return made


if __name__ == "__main__":
    home = Path(sys.argv[1])
    for place, text in pages().items():
        files.write_text(home / place, text)

"""What there is: `data`, `list`, and the leaderboard as a `page` or as an `export`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec.commands.options import Results, grouped, page_home
from robustbench_dec.errors import BadInput


def data(
    names: Annotated[list[str], typer.Argument(help="Data sets, for example: mnist cifar10.")],
    folder: Annotated[Path | None, typer.Option(help="Where to keep them (default ./data).")] = None,
    mirror: Annotated[Path | None, typer.Option(help="An offline copy (default $ROBUSTBENCH_DEC_MIRROR).")] = None,
) -> None:
    """Fetch data sets and verify every byte; files that are there and whole are left alone."""
    from robustbench_dec import data as sets

    for name in names:
        paths = sets.fetch(name, folder=folder, mirror=mirror)
        typer.echo(
            f"{name}: " + (f"{len(paths)} files verified in {paths[0].parent}" if paths else "bundled, verified")
        )


def list_parts() -> None:
    """What there is: trainers, attacks, data sets, graphs."""
    from robustbench_dec import data as sets
    from robustbench_dec import shelf
    from robustbench_dec.networks import topology

    for kind in ("trainer", "attack"):
        more = " (and torchattacks:NAME, path/to/mine.py:Mine, y.safetensors)" if kind == "attack" else ""
        reasons = shelf.broken(kind)
        typer.echo(f"{kind}s: {', '.join(name for name in shelf.names(kind) if name not in reasons)}{more}")
        for reason in reasons.values():
            typer.echo(f"BROKEN: {reason}")
    typer.echo(f"data sets: {', '.join(sets.names())}")
    typer.echo(f"graphs: {', '.join(topology.GRAPHS)}")
    typer.echo(f"weights: {', '.join(topology.WEIGHTS)}")


def page(
    results: Results = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: index.html in tables/ beside results/).")
    ] = None,
) -> None:
    """Write the leaderboard as one self-contained web page: open it in a browser, no network needed."""
    from robustbench_dec import page as pages
    from robustbench_dec.store.results import Results as Store

    typer.echo(f"wrote {pages.write(Store(results), out or page_home(results) / 'index.html')}")


@dataclass(frozen=True)
class Chosen:
    """Which rows of the leaderboard."""

    dataset: Annotated[list[str], typer.Option(help="Only these data sets; may be given several times.")] = field(
        default_factory=list
    )
    method: Annotated[list[str], typer.Option(help="Only these methods.")] = field(default_factory=list)
    attack: Annotated[list[str], typer.Option(help="Only these attacks.")] = field(default_factory=list)
    eps: Annotated[list[str], typer.Option(help="Only these radii, for example 0.1 or 8/255.")] = field(
        default_factory=list
    )
    norm: Annotated[list[str], typer.Option(help="Only radii in these norms, for example Linf.")] = field(
        default_factory=list
    )
    table: Annotated[list[str], typer.Option(help="Only networks of these tables, for example table2.")] = field(
        default_factory=list
    )


@grouped
def export(
    chosen: Chosen,
    form: Annotated[str, typer.Option("--format", help="csv, latex, json (RobustBench's keys) or bibtex.")] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="A file (default: print); with json, a folder gets a file per model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    results: Results = Path("results"),
) -> None:
    """Print or write a part of the leaderboard for a paper, a spreadsheet or another benchmark."""
    from robustbench_dec import files
    from robustbench_dec.leaderboard import view
    from robustbench_dec.rendering import export as exports
    from robustbench_dec.store.results import Results as Store

    rows = view.select(
        view.read(Store(results)),
        chosen.dataset,
        chosen.method,
        chosen.attack,
        chosen.eps,
        chosen.norm,
        chosen.table,
    )
    if out is None:
        typer.echo(exports.text(rows, form), nl=False)
        return
    if out.is_file() and not force:
        raise BadInput(f"{out} is there already; --force replaces it, and another name leaves it alone")
    if form == "json" and (out.is_dir() or not out.suffix):
        written = exports.write_documents(exports.robustbench(rows), out)
    else:
        files.write_text(out, exports.text(rows, form))
        written = [out]
    for path in written:
        typer.echo(f"wrote {path}")

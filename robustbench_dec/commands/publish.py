"""`publish` and `withdraw`: the only commands that change what the tracked leaderboard shows."""

import contextlib
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec.commands import tables
from robustbench_dec.commands.options import Part, folder, page_home
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.specs.table import Spec
    from robustbench_dec.store.records import PublishedRecord
    from robustbench_dec.store.results import Results as Store

Attacks = Annotated[list[str], typer.Option(help="Only cells of this attack; may be given several times.")]
Zoo = Annotated[
    str | None, typer.Option(help="Put the network of the one run that is named into the zoo too, as DATA_SET/NAME.")
]
To = Annotated[Path, typer.Option(parser=folder, help="The results folder of a checkout, with its published.json.")]
MOST_NAMED = 60
"""Files that one printed command names; of a large table there are more than a shell may take."""


def publish(
    sources: Annotated[
        list[Path], typer.Argument(help="A folder of results (out), a run's folder, a cell's .json, a table's .toml.")
    ],
    attack: Attacks = [],  # noqa: B006 (typer's way)
    zoo: Zoo = None,
    to: To = Path("results"),
) -> None:
    """Put your own cells, networks or a table on the tracked leaderboard and its page, and say what to add to git.

    Rows are marked as a user's. "withdraw" with the same words takes them back.
    """
    from robustbench_dec.leaderboard.audit import FLAGS
    from robustbench_dec.store import publishing
    from robustbench_dec.store import zoo as zoos
    from robustbench_dec.store.results import Results as Store

    results, written = Store(to), list[Path]()
    toml = [source for source in sources if source.suffix == ".toml"]
    homes = [source for source in sources if source.suffix != ".toml"]
    if zoo is not None and (len(homes) != 1 or toml):
        raise BadInput("--zoo names the network of one run; give that run's folder alone, out/runs/<id>")
    cells, wanted = publishing.selected(homes, attack), [_table(specification) for specification in toml]
    for cell in cells:
        if unknown := set(cell.record.flags) - set(FLAGS):
            raise BadInput(f"{cell.stem} has the flag {min(unknown)!r}, which the suite does not know; attack again")
    publishing.check(results)
    with contextlib.ExitStack() as stack:  # a failure leaves the checkout as it was
        if zoo is not None:
            stack.enter_context(publishing.undone(lambda: zoos.files_of(str(zoo), results.zoo)))
            entry = zoos.add(homes[0], zoo, results.zoo)
            written += entry.files
        if cells:
            change = stack.enter_context(publishing.publish(cells, results))
            _show(results, change.record, f"{len(change.cells)} rows more")
            written += change.files
    if zoo is not None:
        typer.echo(f"wrote {entry.checkpoint} and its card")
    for table, stem in wanted:
        written += _publish_table(table, stem, results)
    if not written:
        typer.echo("all of it is on the leaderboard already")
        return
    again = shlex.join(["robustbench-dec", "withdraw", *map(str, sources), *(f"--attack={name}" for name in attack)])
    typer.echo(f"to share it: git add -f {_named([*written, *_shared(results)])}")
    typer.echo(f"to take it back: {again}")


def withdraw(
    sources: Annotated[
        list[Path] | None, typer.Argument(help="What was published, as it was named; only --attack: all of its cells.")
    ] = None,
    attack: Attacks = [],  # noqa: B006 (typer's way)
    to: To = Path("results"),
) -> None:
    """Take rows or a table off the tracked leaderboard and its page; no file of a run is removed."""
    from robustbench_dec.store import publishing
    from robustbench_dec.store.results import Results as Store

    if not sources and not attack:
        raise BadInput("say what to withdraw: what you have published, or --attack with an attack's name")
    results, unneeded = Store(to), list[Path]()
    named = sources or [to]
    homes = [source for source in named if source.suffix != ".toml"]
    if homes:
        change = publishing.withdraw(publishing.selected(homes, attack), results)
        _show(results, change.record, f"{len(change.cells)} rows fewer")
        unneeded += change.files
    for specification in named:
        if specification.suffix == ".toml":
            _show(results, publishing.without_table(results, specification.stem), f"{specification.stem} is off it")
    rm = f"git rm -q --cached --ignore-unmatch {_words(unneeded)} && " if unneeded else ""
    typer.echo(f"to share that: {rm}git add {_words(_shared(results))}")


def _show(results: "Store", record: "PublishedRecord", what: str) -> None:
    """The list, the leaderboard and the page that follow from it, made whole before the first of them is written."""
    from robustbench_dec import files, page
    from robustbench_dec.leaderboard import gather

    path, then = page_home(results.root) / "index.html", results.listing(record)
    with results.claim_leaderboard():  # the last one who writes it has seen all cells
        rows = gather.gather(then)
        contents = {results.publication: record.content(), results.leaderboard: gather.content(rows)}
        if not rows.empty:
            contents[path] = page.render(then, rows, folder=path.parent).encode()
        files.write_all(contents)
        if rows.empty:  # there is nothing to show
            files.remove(path)
    typer.echo(f"{results.leaderboard}: {what}, {len(rows)} in all")
    if not rows.empty:
        typer.echo(f"wrote {path}")


def _table(specification: Path) -> "tuple[Spec, str]":
    """A table that can be published, and its stem."""
    from robustbench_dec.rendering import report

    wanted, stem = tables.chosen(specification, Part())
    report.blocks(wanted)  # refuses what is no table of attacks
    return wanted, stem


def _publish_table(wanted: "Spec", stem: str, results: "Store") -> list[Path]:
    """A table whose runs are there: its rows, its files and its place on the page."""
    from robustbench_dec.running import suite
    from robustbench_dec.store import publishing

    work, record = suite.listed(wanted), publishing.with_table(results, stem)
    tables.write(wanted, work, stem, results.root, page_home(results.root), listed=record)
    runs = [results.run(item.run.id) for item in work]
    cells = [results.run(item.run.id).cell(request.key) for item in work for request in item.cells]
    return [*(path for run in runs for path in run.record_files), *(path for cell in cells for path in cell.files)]


def _shared(results: "Store") -> list[Path]:
    return [results.publication, results.leaderboard, page_home(results.root) / "index.html"]


def _named(paths: Iterable[Path]) -> str:
    """Files as words of a command; more than a screen holds go into a list that git reads."""
    from robustbench_dec import files

    names = list(dict.fromkeys(str(path) for path in paths))
    if len(names) <= MOST_NAMED:
        return shlex.join(names)
    listed = Path("out") / "to-share.txt"
    files.write_text(listed, "".join(f"{name}\n" for name in names))
    return f"--pathspec-from-file={listed}    # {len(names):,} files"


def _words(paths: Iterable[Path]) -> str:
    return shlex.join(dict.fromkeys(str(path) for path in paths))

"""`zoo add` and `zoo list`: the trained networks that come with the suite."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec.commands.options import Results

if TYPE_CHECKING:
    pass

app = typer.Typer(no_args_is_help=True, help="The trained networks that come with the suite.")


@app.command()
def add(
    folder: Annotated[Path, typer.Argument(help="A finished run with its checkpoint, results/runs/<id>.")],
    name: Annotated[str, typer.Argument(help="DATA_SET/NAME, for example mnist/dec_fedtrack.")],
    results: Results = Path("results"),
) -> None:
    """Make an entry of the zoo from a finished run: its average network and y, and a card."""
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    entry = zoo.add(folder, name, Store(results).zoo)
    size = entry.checkpoint.stat().st_size / 1000
    typer.echo(f"wrote {entry.checkpoint} ({size:.0f} kB, sha256 {entry.sha256[:12]}) and its card")


@app.command("list")
def list_entries(
    results: Annotated[Path | None, typer.Option(help="A zoo of one's own in these results.")] = None,
) -> None:
    """The networks of the zoo."""
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    for entry in zoo.entries(folder=None if results is None else Store(results).zoo):
        classifier, problem = entry.record.classifier, entry.record.settings.problem
        assert classifier is not None  # zoo.add takes no others
        radius = f"trained at eps {problem['eps']:g}" if "eps" in problem else "trained without y"
        typer.echo(f"{entry.name}: {classifier.architecture.name}, {classifier.clean.mean_model:.2%} clean, {radius}")

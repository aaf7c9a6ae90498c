"""`zoo add` and `zoo list`: the trained networks that come with the suite."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec.commands.options import Results

if TYPE_CHECKING:
    from robustbench_dec.store.zoo import Entry

app = typer.Typer(no_args_is_help=True, help="The trained networks that come with the suite.")


@app.command()
def add(
    folder: Annotated[Path, typer.Argument(help="A finished run with its checkpoint, results/runs/<id>.")],
    name: Annotated[str, typer.Argument(help="DATA_SET/NAME, for example mnist/dec_fedtrack.")],
    results: Results = Path("results"),
) -> None:
    """Make an entry of the zoo from a finished run: its average network and y, and a card."""
    from robustbench_dec.store import zoo

    entry = zoo.add(folder, name, results / "zoo")
    size = entry.checkpoint.stat().st_size / 1000
    typer.echo(f"wrote {entry.checkpoint} ({size:.0f} kB, sha256 {entry.sha256[:12]}) and its card")


@app.command("list")
def list_entries() -> None:
    """The networks of the zoo."""
    from robustbench_dec.store import zoo

    for entry in zoo.entries():
        clean, problem = entry.record["clean"]["mean_model"], entry.record["settings"]["problem"]
        radius = f"trained at eps {problem['eps']:g}" if "eps" in problem else "trained without y"
        typer.echo(f"{entry.name}: {entry.record['architecture']}, {clean:.2%} clean, {radius}")


def chosen(pattern: str, results: Path) -> "list[Entry]":
    """Entries of the zoo, or the network that a path leads to."""
    from robustbench_dec.store import zoo

    path = Path(pattern)
    if path.exists() or path.suffix in (".safetensors", ".pt", ".pth", ".pkl"):
        return [zoo.from_path(path)]
    return zoo.entries(pattern, results / "zoo" if any((results / "zoo").glob("*/*.json")) else None)

"""`zoo add` and `zoo list`: the trained networks that come with the suite."""

from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec.commands.options import Results
from robustbench_dec.commands.telling import Json, tell

app = typer.Typer(no_args_is_help=True, help="The trained networks that come with the suite.")


@app.command()
def add(
    folder: Annotated[Path, typer.Argument(help="A finished run with its checkpoint, results/runs/<id>.")],
    name: Annotated[str, typer.Argument(help="DATA_SET/NAME, for example mnist/dec_fedtrack.")],
    results: Results = Path("out"),
) -> None:
    """Make an entry of your own zoo, out/zoo, from a finished run: its average network and y, and a card.

    "robustbench-dec publish RUN --zoo NAME" puts it into the zoo that comes with the suite.
    """
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    entry = zoo.add(folder, name, Store(results).zoo)
    size = entry.checkpoint.stat().st_size / 1000
    beside = " and ".join(["its card", *(["its source"] if len(entry.files) > 2 else [])])
    typer.echo(f"wrote {entry.checkpoint} ({size:.0f} kB, sha256 {entry.sha256[:12]}) with {beside}")


@app.command("list")
def list_entries(results: Results = Path("out"), as_json: Json = False) -> None:
    """The networks of the zoo that comes with the suite, and of your own."""
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    entries = zoo.entries("*", Store(results).zoo, zoo.home())
    if as_json:
        fields = {"id", "dataset", "method", "seed", "settings", "parameters", "classifier"}
        tell([], [{"name": e.name} | e.record.model_dump(mode="json", include=fields) for e in entries], as_json)
        return
    for entry in entries:
        classifier, problem = entry.record.classifier, entry.record.settings.problem
        assert classifier is not None  # zoo.add takes no others
        radius = f"trained at eps {problem['eps']:g}" if "eps" in problem else "trained without y"
        typer.echo(f"{entry.name}: {classifier.architecture.name}, {classifier.clean.mean_model:.2%} clean, {radius}")


@app.command()
def cards(
    pattern: Annotated[str, typer.Argument(help="Which networks, for example mnist/*.")] = "*",
    out: Annotated[Path, typer.Option(help="Folder of the cards.")] = Path("out/cards"),
) -> None:
    """Write the networks' model cards in Hugging Face's format, from their records and stored cells."""
    from robustbench_dec import files, shipped
    from robustbench_dec.rendering import model_cards
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    stored = Store(shipped.results())
    for entry in zoo.entries(pattern):
        text = model_cards.card(entry, model_cards.cells(entry, stored))
        files.write_text(out / entry.name / "README.md", text)
        typer.echo(f"wrote {out / entry.name / 'README.md'}")

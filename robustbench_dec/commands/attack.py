"""`attack` one run, `compare` a new attack with the stored ones, `audit` what is stored."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec import shipped
from robustbench_dec.commands.options import (
    Device,
    Limiting,
    Results,
    Settings,
    Stores,
    checked,
    grouped,
    page_home,
    parse_settings,
    radii,
)
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.store.records import CellRecord


@grouped
def attack(
    folder: Annotated[Path, typer.Argument(help="A finished run, results/runs/<id>.")],
    *,
    attack: Annotated[str, typer.Option(help="An attack's name, or path/to/mine.py:Mine.")] = "pgd",
    eps: Annotated[str, typer.Option(help="Radii, for example 0.05,0.1 or 8/255.")] = "0.1",
    n_examples: Annotated[int | None, typer.Option(min=1, help="First so many test images (default: all).")] = None,
    settings: Settings = [],  # noqa: B006 (typer's way)
    limits: Limiting,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Attack a trained model over a grid of radii; cells that exist are not computed again."""
    from robustbench_dec import shelf
    from robustbench_dec.attacking.find_attack import attack_named
    from robustbench_dec.running import cells
    from robustbench_dec.store import zoo
    from robustbench_dec.store.problems import problem_of
    from robustbench_dec.store.results import run_at

    run = run_at(folder)
    problem = problem_of(run.record)
    cls, strengths = attack_named(attack), parse_settings(settings)
    if "eps" in strengths:
        raise BadInput("the radius of an attack is given by --eps, not by --set eps=...")
    attacks = [(attack, shelf.make(cls, {"eps": radius, **strengths})) for radius in radii(eps)]
    count = cells.at_most(n_examples, problem)
    wanted = cells.requests(attacks, run.record.seed, n_examples=count, limits=limits.read())
    checked(device)
    missing = any(run.cell(request.key).usable() is None for request in wanted)
    model = zoo.of_run(run).model(device) if missing else None  # a checkpoint may be elsewhere, cells need none
    made = cells.attack(run, wanted, problem=problem, device=device, model=model)
    tell(map(_line, made), [cell.model_dump(mode="json", exclude={"bits"}) for cell in made], as_json)


def _line(cell: "CellRecord") -> str:
    """A cell on one line."""
    flags = f"  flags: {', '.join(cell.flags)}" if cell.flags else ""
    accuracies = f"{cell.clean_acc:.2%} clean, {cell.robust_acc:.2%} robust"
    limit = "" if cell.max_passes is None else f", at most {cell.max_passes} passes"
    return f"{cell.attack} {cell.norm} {cell.eps:g}{limit}: {accuracies}{flags}"


@dataclass(frozen=True)
class Images:
    """On what a new attack is tried."""

    model: Annotated[
        list[str], typer.Option(help="A pattern of the zoo (mnist/*), a run's folder or a .safetensors file.")
    ] = field(default_factory=lambda: ["*"])
    eps: Annotated[str | None, typer.Option(help="Radii, for example 0.05,0.1 (default: those of stored attacks).")] = (
        None
    )
    n_examples: Annotated[int, typer.Option(min=1, help="First so many test images.")] = 1000
    batch_size: Annotated[int, typer.Option(min=1, help="Images that are attacked at once.")] = 500


@dataclass(frozen=True)
class Folders(Stores):
    """Also where the page is written."""

    tables: Annotated[
        Path | None, typer.Option(help="Folder of the page (default: tables/ beside results/, else the results').")
    ] = None


@grouped
def compare(
    *,
    attack: Annotated[
        str, typer.Option(help="path/to/mine.py:Mine, torchattacks:MIFGSM, y.safetensors, or a name of `list`.")
    ],
    images: Images,
    settings: Settings = [],  # noqa: B006 (typer's way)
    folders: Folders,
    table: Annotated[
        str | None, typer.Option(help="On the networks of this table, for example table2, beside its means over seeds.")
    ] = None,
    limits: Limiting,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Compare your attack with the stored ones on the networks of the zoo; its cells and a page are written to out/.

    The tracked leaderboard stays as it is; "robustbench-dec publish out" adds to it, and says what to add to git.
    """
    from robustbench_dec import api
    from robustbench_dec.leaderboard import against_table
    from robustbench_dec.leaderboard import audit as audits
    from robustbench_dec.leaderboard import compare as comparison
    from robustbench_dec.store.results import Results as Store

    if table is not None and images.model != ["*"]:
        raise BadInput(f"--table {table} says which networks are attacked, so --model cannot; leave one of them out")
    store = Store(folders.results)
    wanted = None if table is None else against_table.find(table, Store(folders.stored or shipped.results()))
    compared = api.compare(
        attack,
        images.model if wanted is None else wanted.entries,
        radii(images.eps) if images.eps else None,
        settings=parse_settings(settings),
        n_examples=images.n_examples,
        batch_size=images.batch_size,
        results=folders.results,
        stored=folders.stored,
        page=(folders.tables or page_home(folders.results)) / "index.html",
        device=checked(device),
        limits=limits.read(),
    )
    if as_json:
        tell([], comparison.document(compared.rows), as_json)
        return
    typer.echo(comparison.text(compared.rows))
    if wanted is not None:
        typer.echo(f"\n{against_table.text(compared.rows, wanted)}")
        if absent := against_table.missing(wanted):
            typer.echo(f"\n{absent}")
        typer.echo("")
    own = compared.own
    for flag in sorted({flag for flags in own["reliability_flags"] for flag in flags.split(";") if flag}):
        typer.echo(f"flag {flag}: {audits.FLAGS.get(flag, flag)}; `robustbench-dec flags` tells more")
    rows = f"{len(compared.leaderboard)} rows, {len(own)} of them of {compared.attack}"
    typer.echo(f"{store.leaderboard}: {rows}")
    typer.echo(f"wrote {compared.page}")
    if store.published() is not None:
        publish = f"robustbench-dec publish {folders.results} --attack {compared.attack}"
        typer.echo(f"your cells are kept; `{publish}` shows them there")


def audit(
    specification: Annotated[
        Path | None,
        typer.Argument(parser=shipped.specification, help="A specification with a paper's numbers (default: table2)."),
    ] = None,
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """Tell which stored numbers, and which of the paper's, a sound attack does not give."""
    from robustbench_dec.leaderboard import audit as audits
    from robustbench_dec.rendering import against_paper, report
    from robustbench_dec.rendering.blocks import audit as audited
    from robustbench_dec.running import suite, under_protocol
    from robustbench_dec.specs import table as specs
    from robustbench_dec.store.results import Results as Store

    if not results.is_dir():
        raise BadInput(f"no folder {results}; --results is the folder where runs and cells are, results/ as it comes")
    path = specification or shipped.specification("table2")
    wanted = specs.read(path)
    blocks = report.blocks(wanted)  # what is no table of attacks is refused here
    points = [audits.of_cell(cell.run.record, cell.record) for cell in Store(results).cells()]
    found = [f"{finding.flag}: {audits.sentence(finding)}" for finding in audits.findings(points)]
    printed = audited(blocks, against_paper.percent_of(wanted.paper))
    lines = [f"{len(points)} cells in {results}: {len(found)} findings", *found]
    lines += [f"the paper's numbers in {path}: {len(printed)} findings", *printed]
    against = under_protocol.findings(wanted, path, suite.listed(wanted), Store(results))
    if wanted.protocol is not None:
        rules = " and ".join([wanted.protocol, *sorted({*wanted.redefined.values()})])
        lines += [f"{path} under {rules}: {len(against)} findings", *against]
    facts = {"cells": len(points), "findings": found, "findings_in_the_paper": printed, "findings_by_protocol": against}
    tell(lines, facts, as_json)

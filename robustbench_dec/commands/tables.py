"""`table` makes what a specification asks for, `render` writes its files again, `tune` tries its grids."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec import shipped
from robustbench_dec.commands.options import (
    Device,
    Jobs,
    Part,
    Place,
    Results,
    Specification,
    Tables,
    Work,
    checked,
    grouped,
    workers,
)
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.running import suite
    from robustbench_dec.specs.table import Spec
    from robustbench_dec.store.records import PublishedRecord

Datasets = Annotated[list[str], typer.Option(help="Only the blocks of this data set; may be given several times.")]


@grouped
def table(
    specification: Specification,
    part: Part,
    place: Place,
    work: Work,
    dataset: Datasets = [],  # noqa: B006 (typer's way)
) -> None:
    """Make a table or figures: train and attack what is missing, then render. Interrupted, it goes on where it was."""
    from robustbench_dec import files
    from robustbench_dec.rendering import figures, report
    from robustbench_dec.running import suite
    from robustbench_dec.store.results import Results

    home = place.home(specification)
    if _is_claims(specification):
        _table_of_claims(specification, part, place, checked(work.device))
        return
    wanted, stem = chosen(specification, part, dataset)
    report.check(wanted)
    device = checked(work.device)
    if wanted.layout == "figures":
        wanted, reasons = figures.available(wanted)
        for reason in reasons:
            typer.echo(reason, err=True)
    files.sweep(home)
    asked = suite.listed(wanted)
    runs = suite.make(
        asked, Results(place.results), work.habits(device), title=wanted.title, jobs=workers(work.jobs, device)
    )
    typer.echo(f"{len(runs)} runs complete in {place.results}")
    write(wanted, asked, stem, place.results, home)


@grouped
def reproduce(
    specification: Specification,
    part: Part,
    place: Place,
    work: Work,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 if more numbers are outside than chance gives.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a published table, make it anew in a folder of its own, and hold the two against each other."""
    import pandas as pd

    from robustbench_dec.rendering import against_published, methods_table, report
    from robustbench_dec.running import suite
    from robustbench_dec.store.results import Results

    published, home = specification.with_suffix(".csv"), place.home(specification)
    if not published.is_file():
        raise BadInput(f"no published table {published} to compare with; `robustbench-dec table` makes a table anew")
    if home.resolve() == specification.parent.resolve():
        raise BadInput("a table is reproduced in a folder of its own; give one by --results, such as --results out")
    wanted, stem = chosen(specification, part)
    report.check(wanted)
    device = checked(work.device)
    asked, store = suite.listed(wanted), Results(place.results)
    before = [
        specification.with_suffix(".md").read_text(encoding="utf-8"),
        f"{len(asked)} runs are made in {place.results}; interrupted, the same command goes on where it was",
    ]
    if not as_json:
        tell(before, None, as_json)

    def rendered() -> bool:
        there = any(store.run(item.run.id).exists for item in asked)  # not if the first ones diverged
        if there:
            write(wanted, asked, stem, place.results, home, quiet=True)
        return there

    suite.make(
        asked,
        store,
        work.habits(device),
        title=wanted.title,
        jobs=workers(work.jobs, device),
        after_each=rendered,
    )
    if not rendered():
        broken = methods_table.divergences(asked, store)
        tell([*broken, "No run finished, so there is nothing to compare"], {"diverged": broken}, as_json)
        raise typer.Exit(1 if strict else 0)
    lines, made = [(home / f"{stem}.md").read_text(encoding="utf-8")], pd.read_csv(home / f"{stem}.csv")
    facts: dict[str, object] = {"table": made.to_dict("records"), "verdict": None}
    if part.profile:
        lines.append(f"This was the profile '{part.profile}': it shows that all works here, and no result; no verdict")
        tell(lines, facts, as_json)
        return
    verdict = against_published.compared(pd.read_csv(published), made)
    facts["verdict"] = verdict._asdict() | {"as_published": verdict.as_published}
    tell([*lines, *verdict.lines], facts, as_json)
    if strict and not verdict.as_published:
        raise typer.Exit(1)


@grouped
def render(
    specification: Specification,
    part: Part,
    place: Place,
    dataset: Datasets = [],  # noqa: B006 (typer's way)
) -> None:
    """Write the files of a table or of figures again from the results on disk, without training or attacking."""
    from robustbench_dec.running import suite

    if _is_claims(specification):
        _table_of_claims(specification, part, place, None)
    else:
        wanted, stem = chosen(specification, part, dataset)
        write(wanted, suite.listed(wanted), stem, place.results, place.home(specification))


def tune(
    specification: Specification,
    results: Results = Path("results/tune"),
    tables: Tables = None,
    jobs: Jobs = None,
    device: Device = "cpu",
) -> None:
    """Try the step sizes of a specification's tune part in short runs, judged on held-out images, or by Phi."""
    from robustbench_dec.running import steps
    from robustbench_dec.running import tune as tuning
    from robustbench_dec.running.train import Habits
    from robustbench_dec.specs import claims as claim_specs
    from robustbench_dec.specs import table as specs
    from robustbench_dec.store.results import Results
    from robustbench_dec.theory import claims

    home, stem = tables or shipped.written(specification), specification.stem
    if _is_claims(specification):
        asked = claim_specs.read(specification)
        path = claims.tune(asked, stem, Results(results).claims(stem), home, device=checked(device))
    elif (wanted := specs.read(specification)).steps is not None:
        for path in steps.tune(wanted, stem, home, device=checked(device)):
            typer.echo(f"wrote {path}")
        return
    else:
        side_by_side = workers(jobs, checked(device))
        path = tuning.tune(wanted, stem, Results(results), home, Habits(device), jobs=side_by_side)
    typer.echo(f"wrote {path}")


def chosen(path: Path, part: Part, datasets: list[str] | None = None) -> "tuple[Spec, str]":
    """The specification that is asked for, and the stem of its files: never the full table's for a part of it."""
    from robustbench_dec.running import steps
    from robustbench_dec.running import tune as tuning
    from robustbench_dec.specs import table as specs

    wanted, stem = specs.read(path), path.stem
    if wanted.tune is not None and wanted.tune.seed is not None:  # tuned under a rule, not by hand
        wanted, edges = tuning.taken(wanted, _tuned(path))
        for sentence in edges:
            typer.echo(sentence, err=True)
    if part.profile:
        wanted, stem = wanted.with_profile(part.profile), f"{stem}-{part.profile}"
    if wanted.steps is not None:  # likewise
        if wanted.layout != "figures":
            raise BadInput(
                f"{path}: [steps] are for figures, not for layout '{wanted.layout}'; layout 'figures' would do"
            )
        wanted, edges = steps.taken(wanted, _tuned(path).with_name(path.stem))
        for sentence in edges:
            typer.echo(sentence, err=True)
    if part.seeds is not None and part.seeds < len(wanted.seeds):
        wanted, stem = wanted.model_copy(update={"seeds": wanted.seeds[: part.seeds]}), f"{stem}-seeds{part.seeds}"
    if datasets:
        names = [str(block.problem.get("dataset", block.title)) for block in wanted.blocks]
        for name in datasets:
            if name not in names:
                raise BadInput(f"no data set '{name}' in {path}; there are: {', '.join(dict.fromkeys(names))}")
        blocks = [
            block for name in datasets for block, there in zip(wanted.blocks, names, strict=True) if there == name
        ]
        wanted = wanted.model_copy(update={"blocks": blocks})
        stem = "-".join([stem, *(re.sub(r"\W+", "-", name) for name in datasets)])
    return wanted, stem


def _tuned(path: Path) -> Path:
    """What the tuning of a specification gave: the user's own, else what lies beside it."""
    own = shipped.written(path) / f"{path.stem}-tune.csv"
    return own if own.is_file() else path.with_name(own.name)


def write(
    wanted: "Spec",
    work: "Sequence[suite.Work]",
    stem: str,
    results: Path,
    home: Path,
    quiet: bool = False,
    listed: "PublishedRecord | None" = None,
) -> None:
    """A table's files and, since it costs a second, the page of all that is there; made whole before it is written.

    `listed`: what the leaderboard shows from now on, where that changes.
    """
    from robustbench_dec import files, page
    from robustbench_dec.rendering import report
    from robustbench_dec.store.results import Results

    report.check(wanted)
    store = Results(results) if listed is None else Results(results).listing(listed)
    with store.claim_leaderboard():  # the last one who writes it has seen all cells
        ready = report.prepare(wanted, work, stem, store, home)
        contents = dict(ready.contents) | ({} if listed is None else {store.publication: listed.content()})
        if ready.leaderboard is not None and ready.asked is not None:
            asked = {stem: ready.asked}
            contents[home / "index.html"] = page.render(store, ready.leaderboard, also=asked, folder=home).encode()
        elif wanted.layout != "figures":
            typer.echo(
                f"{store.publication} does not list {stem}, so the leaderboard and its page stay as they are", err=True
            )
        for path in files.write_all(contents):
            if not quiet:
                typer.echo(f"wrote {path}")


# Tables of claims (Table 1), which have methods and a bench instead of blocks


def _is_claims(specification: Path) -> bool:
    from robustbench_dec.specs import table as specs

    return specs.layout(specification) == "claims"


def _table_of_claims(specification: Path, part: Part, place: Place, device: str | None) -> None:
    """Measure what is missing, or without a device refuse where something is, and write the files."""
    from robustbench_dec import files
    from robustbench_dec.specs import claims as specs
    from robustbench_dec.store.results import Results
    from robustbench_dec.theory import claims, claims_report

    wanted, stem, home = specs.read(specification), specification.stem, place.home(specification)
    if part.profile:
        raise BadInput(f"{specification} is a table of claims, which has no profiles; --seeds 1 makes it smaller")
    tuned = home / f"{stem}-tune.csv"
    choice = claims.chosen(wanted, tuned if tuned.is_file() else specification.with_name(tuned.name))
    runs = Results(place.results).claims(stem)
    if part.seeds is not None and part.seeds < len(wanted.seeds):
        wanted, stem = wanted.model_copy(update={"seeds": wanted.seeds[: part.seeds]}), f"{stem}-seeds{part.seeds}"
    missing = claims.missing(wanted, choice, runs)
    if missing and device is None:
        raise BadInput(
            f"{missing} runs of {specification} are not in {place.results}; "
            f"`robustbench-dec table {specification}` measures them"
        )
    rows = claims.make(wanted, choice, runs, device=device or "cpu")
    for path in files.write_all(claims_report.report(wanted, rows, home / stem)):
        typer.echo(f"wrote {path}")

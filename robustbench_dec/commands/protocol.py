"""`trials` tries the settings of a protocol; `verify` scores a table's networks again."""

from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec import shipped
from robustbench_dec.commands.options import Device, Jobs, Results, checked, workers
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput

ProtocolFile = Annotated[
    Path, typer.Argument(parser=shipped.specification, help="A protocol such as tables/protocol.toml.")
]


def trials(
    protocol: ProtocolFile,
    results: Results = Path("results/tune"),
    jobs: Jobs = None,
    device: Device = "cpu",
    list_only: Annotated[bool, typer.Option("--list", help="Only say how many trials are done.")] = False,
    as_json: Json = False,
) -> None:
    """Try the settings of a protocol, judged on held-out images; every trial is a row of the CSV beside it."""
    from robustbench_dec import files
    from robustbench_dec.rendering import trials_picture
    from robustbench_dec.running import trials as running
    from robustbench_dec.running.train import Habits
    from robustbench_dec.specs import protocol as protocols
    from robustbench_dec.store.results import Results

    asked = protocols.read(protocol)
    path = shipped.written(protocol) / asked.trials_file
    if list_only:
        standing = running.standing(asked, running.read(path))
        tell([str(each) for each in standing], [each._asdict() for each in standing], as_json)
        return
    done = running.carry_out(asked, path, Results(results), Habits(checked(device)), jobs=workers(jobs, device))
    drawn = files.write_all(trials_picture.picture(asked, done, path.with_suffix("")))
    lines, choices = [f"{len(done)} trials in {path}, drawn in {drawn[0]}"], []
    for (block, method), taken in running.choice(asked, done).items():
        point = ", ".join(f"{name} = {value:g}" for name, value in taken.point.items())
        lines.append(f"{block}, {method}: trial {taken.number}, {taken.candidate.title}: {point}")
        chosen = {"block": block, "method": method, "trial": taken.number, "candidate": taken.candidate.title}
        choices.append(chosen | {"settings": taken.point})
    tell(lines, {"file": str(path), "trials": len(done), "choice": choices}, as_json)


def verify(
    specification: Annotated[
        Path | None, typer.Argument(parser=shipped.specification, help="A table (default: table2).")
    ] = None,
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """Score the published networks under the stored universal perturbations again: forward passes only, bit by bit.

    What attacks on single images returned is not stored; "attack" makes those cells anew.
    """
    from robustbench_dec.running import suite
    from robustbench_dec.running import verify as verifying
    from robustbench_dec.specs import table as specs
    from robustbench_dec.store.results import Results

    store, path = Results(results), specification or shipped.specification("table2")
    runs = [run for item in suite.listed(specs.read(path)) if (run := store.find(item.run.id)) is not None]
    found = []
    for scored in verifying.verify(runs):
        found.append(scored)
        clean = "" if scored.flipped_clean is None else f", {scored.flipped_clean} of the clean ones"
        if not as_json:  # line by line: the whole takes minutes
            typer.echo(f"{scored.run_id} {scored.cell}: {scored.flipped} of {scored.images:,} images differ{clean}")
    if not found:
        raise BadInput(f"no network of {path} with a stored perturbation is in {results}; make the table first")
    failed = [scored for scored in found if not scored.passes]
    bound = f"{verifying.MOST_FLIPS:.1%} of a cell's images may flip on another kind of CPU"
    networks = len({scored.run_id for scored in found})
    differences = sum(scored.flipped + (scored.flipped_clean or 0) for scored in found)
    line = (
        f"{len(found)} universal cells of {networks} networks (of {len(runs)} runs): {differences} differences, "
        f"{len(failed)} cells beyond the bound ({bound})"
    )
    cells = [scored._asdict() | {"passes": scored.passes} for scored in found]
    tell([line], {"runs": len(runs), "differences": differences, "beyond": len(failed), "cells": cells}, as_json)
    if failed:
        raise typer.Exit(1)

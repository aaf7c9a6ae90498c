"""`trials` carries out a protocol: the runs by which the settings of a table are chosen."""

from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec.commands.options import Device, Jobs, Results, checked, workers

ProtocolFile = Annotated[Path, typer.Argument(help="A protocol such as tables/protocol.toml.")]


def trials(
    protocol: ProtocolFile,
    results: Results = Path("results/tune"),
    jobs: Jobs = None,
    device: Device = "cpu",
    list_only: Annotated[bool, typer.Option("--list", help="Only say how many trials are done.")] = False,
) -> None:
    """Try the settings of a protocol, judged on held-out images; every trial is a row of the CSV beside it."""
    from robustbench_dec.running import trials as running
    from robustbench_dec.specs import protocol as protocols
    from robustbench_dec.store.results import Results

    asked = protocols.read(protocol)
    path = protocol.with_name(asked.trials_file)
    if list_only:
        for line in running.standing(asked, running.read(path)):
            typer.echo(line)
        return
    done = running.carry_out(asked, path, Results(results), device=checked(device), jobs=workers(jobs, checked(device)))
    typer.echo(f"{len(done)} trials in {path}")
    for (block, method), taken in running.choice(asked, done).items():
        point = ", ".join(f"{name} = {value:g}" for name, value in taken.point.items())
        typer.echo(f"{block}, {method}: trial {taken.number}, {taken.candidate.title}: {point}")

"""`train`: one run, described by its options, or every run of a specification."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec.commands import tables
from robustbench_dec.commands.options import (
    Device,
    Length,
    NetworkChoice,
    Part,
    ProblemChoice,
    Saving,
    TrainerChoice,
    checked,
    folder,
    given,
    grouped,
    parse_settings,
)
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.specs.run import RunSpec
    from robustbench_dec.store.results import Run as Trained


@dataclass(frozen=True)
class Run:
    """One run, as the options describe it."""

    trainer: TrainerChoice
    problem: ProblemChoice
    network: NetworkChoice
    length: Length

    def read(self) -> "RunSpec":
        from robustbench_dec.specs.single import single_run

        return single_run(
            self.problem.read(),
            self.network.read(),
            self.trainer.trainer,
            parse_settings(self.trainer.settings),
            self.length.rounds,
            self.length.seed,
        )


@dataclass(frozen=True)
class Training(Saving):
    """Where and how runs are trained; none of it decides a number."""

    results: Annotated[
        Path | None,
        typer.Option(parser=folder, help="Folder of runs (default: out, and results for a specification)."),
    ] = None
    device: Device = "cpu"
    timeout: Annotated[
        float, typer.Option(min=1, max=86400, help="Seconds until a silent process is given up (torchrun).")
    ] = 600


@grouped
def train(
    context: typer.Context,
    part: Part,
    trainer: TrainerChoice,
    problem: ProblemChoice,
    network: NetworkChoice,
    length: Length,
    training: Training,
    specification: Annotated[
        Path | None, typer.Argument(help="Train every run of a specification such as tables/table2.toml.")
    ] = None,
) -> None:
    """Train one model, or all of a specification; with no arguments, Dec-FedTrack on 8x8 digits in a few seconds.

    Under "torchrun --nproc-per-node R -m robustbench_dec train ..." R processes share the nodes of each run.
    """
    if specification is None:
        if given(context, Part):
            raise BadInput("--profile and --seeds are for a specification; name one, for example tables/table2.toml")
        runs = [Run(trainer, problem, network, length).read()]
    else:
        both = given(context, TrainerChoice, ProblemChoice, NetworkChoice, Length)
        if both:
            raise BadInput(f"{specification} says what to train, so {both[0]} cannot; leave one of them out")
        runs = [run for _, run in tables.chosen(specification, part)[0].runs()]
    _train(runs, training, training.results or Path("out" if specification is None else "results"))


def _train(runs: "Sequence[RunSpec]", how: Training, results: Path) -> None:
    """Train runs one after the other and report each, alone or together with the other processes of torchrun."""
    from robustbench_dec.networks.ranks import Ranks
    from robustbench_dec.running import train as running
    from robustbench_dec.store.results import Results

    train = functools.partial(
        running.train, results=Results(results), save_seconds=how.save_seconds, save_rounds=how.save_rounds
    )
    device = checked(how.device)
    if not Ranks.present():
        for run in runs:
            _report(train(run, device=device))
        return
    ranks = Ranks(device, how.timeout)
    with ranks.leaving_politely():
        for run in runs:
            trained = train(run, device=str(ranks.device), ranks=ranks)
            if ranks.writes:
                _report(trained)


def _report(run: "Trained") -> None:
    """What a finished run reached, and what it cost."""
    record, ledger = run.record, run.record.ledger
    if record.classifier is not None:
        clean = record.classifier.clean
        nodes = f"nodes {clean.node_min:.2%} to {clean.node_max:.2%}"
        typer.echo(f"{run.folder}: clean accuracy {clean.mean_model:.2%} ({nodes})")
    else:
        ends = {name: value for name, value in record.final.items() if isinstance(value, float)}
        typer.echo(f"{run.folder}: " + ", ".join(f"{name} {value:.6g}" for name, value in ends.items()))
    typer.echo(
        f"cost: {ledger.sfo:,} SFO calls per node, {ledger.nodes * ledger.sfo:,} in all "
        f"({ledger.nodes * (ledger.sfo_x + ledger.sfo_y):,} with x and y counted apart), {ledger.rounds:,} rounds, "
        f"{ledger.exchanges:,} exchanges, {ledger.bytes_per_edge / 1e6:,.1f} MB per directed edge; "
        f"spectral rate p = {record.spectral_rate:.4f}"
    )

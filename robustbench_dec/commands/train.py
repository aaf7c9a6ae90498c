"""`train`: one run, described by its options, or every run of a specification."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    between,
    checked,
    folder,
    given,
    grouped,
    parse_settings,
)
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput
from robustbench_dec.shipped import specification as specification_file

if TYPE_CHECKING:
    from robustbench_dec.running.tensorboard import Shown
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
        float,
        typer.Option(
            parser=between("--timeout", "seconds", 1, 86400),
            metavar="SECONDS",
            help="Seconds until a silent process is given up (torchrun).",
        ),
    ] = 600
    log: Annotated[str | None, typer.Option(help="tensorboard: the curve as it grows, in tensorboard/.")] = None
    as_json: Json = False

    def shown(self, results: Path) -> "Shown | None":
        """Who is shown the curves."""
        from robustbench_dec.running.tensorboard import TensorBoard

        if self.log not in (None, "tensorboard"):
            raise BadInput(f"--log takes tensorboard, not '{self.log}'")
        return None if self.log is None else TensorBoard(results / "tensorboard")


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
        Path | None,
        typer.Argument(parser=specification_file, help="Train every run of a specification, for example table2."),
    ] = None,
) -> None:
    """Train one model, or all of a specification; with no arguments, Dec-FedTrack on 8x8 digits in a few seconds.

    Under "torchrun --nproc-per-node R -m robustbench_dec train ..." R processes share the nodes of each run.
    """
    if specification is None:
        if given(context, Part):
            raise BadInput("--profile and --seeds are for a specification; name one, for example table2")
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

    store, shown, device = Results(results), how.shown(results), checked(how.device)
    if not Ranks.present():
        habits = replace(how.habits(device), shown=shown)
        _report((running.train(run, store, habits) for run in runs), how.as_json)
        return
    ranks = Ranks(device, how.timeout)
    habits = replace(how.habits(str(ranks.device)), shown=shown)
    with ranks.leaving_politely():
        trained = (running.train(run, store, habits, ranks=ranks) for run in runs)
        if ranks.writes:
            _report(trained, how.as_json)
        else:
            for _ in trained:
                pass


SHOWN = {"id", "dataset", "method", "seed", "settings", "parameters", "spectral_rate", "ledger", "classifier", "final"}
"""What --json has of a record, beside the run's folder."""


def _report(runs: "Iterable[Trained]", as_json: bool) -> None:
    """What runs reached and cost, each as soon as it is finished."""
    if as_json:
        documents = [{"folder": str(run.folder)} | run.record.model_dump(mode="json", include=SHOWN) for run in runs]
        tell([], documents, as_json)
    else:
        tell((line for run in runs for line in _lines(run)), None, as_json)


def _lines(run: "Trained") -> Iterator[str]:
    record, ledger = run.record, run.record.ledger
    if record.classifier is not None:
        clean = record.classifier.clean
        nodes = f"nodes {clean.node_min:.2%} to {clean.node_max:.2%}"
        yield f"{run.folder}: clean accuracy {clean.mean_model:.2%} ({nodes})"
    else:
        ends = {name: value for name, value in record.final.items() if isinstance(value, float)}
        yield f"{run.folder}: " + ", ".join(f"{name} {value:.6g}" for name, value in ends.items())
    yield (
        f"cost: {ledger.sfo:,} SFO calls per node, {ledger.nodes * ledger.sfo:,} in all "
        f"({ledger.nodes * (ledger.sfo_x + ledger.sfo_y):,} with x and y counted apart), {ledger.rounds:,} rounds, "
        f"{ledger.exchanges:,} exchanges, {ledger.bytes_per_edge / 1e6:,.1f} MB per directed edge; "
        f"spectral rate p = {record.spectral_rate:.4f}"
    )

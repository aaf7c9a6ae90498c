"""`check` the promises of a trainer or an attack, and `diagnose` the theory's quantities."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec.commands.options import (
    Device,
    Graph,
    ProblemSettings,
    Settings,
    TrainerChoice,
    Weights,
    checked,
    grouped,
    parse_settings,
)
from robustbench_dec.commands.telling import Json, tell


def check(
    part: Annotated[str, typer.Argument(help="path/to/mine.py:Mine, or the name of a trainer or an attack.")],
    settings: Settings = [],  # noqa: B006 (typer's way)
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Try on your trainer or attack what every one on the shelf promises; exit 1 if a promise is broken."""
    from robustbench_dec import shelf
    from robustbench_dec.attacking.find_attack import attack_named, in_file
    from robustbench_dec.theory import check as promises
    from robustbench_dec.theory import check_attack
    from robustbench_dec.trainer import Trainer

    given = parse_settings(settings)
    if shelf.kind_of(part) == "trainer":
        trainer = shelf.find("trainer", part, Trainer)  # type: ignore[type-abstract]
        verdicts = promises.verdicts(shelf.make(trainer, given), checked(device))
    else:
        own = shelf.file_of(part) is not None
        cls = in_file(part) if own else attack_named(part)  # here, where all that it does can be seen
        attack = shelf.make(cls, {"eps": check_attack.EPS, **given})
        verdicts = check_attack.verdicts(attack, checked(device))
    seen = []
    for verdict in verdicts:
        seen.append({"promise": verdict.promise, "outcome": verdict.outcome, "seen": verdict.seen})
        if not as_json:
            typer.echo(f"{verdict.outcome:6}  {verdict.promise} ({verdict.seen})")
    if as_json:
        tell([], seen, as_json)
    raise typer.Exit(1 if any(each["outcome"] == "BROKEN" for each in seen) else 0)


@dataclass(frozen=True)
class Bench:
    """A problem whose Phi is known, the network, and how often and how long."""

    problem: Annotated[str, typer.Option(help="quadratic or robust_logistic, where Phi is known.")] = "quadratic"
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 10
    graph: Graph = "ring"
    weights: Weights = "lazy"
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds.")] = 200
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 0.")] = 1


@dataclass(frozen=True)
class Lemmas:
    """Whether the lemmas are tried, and with whose step sizes."""

    with_lemmas: Annotated[bool, typer.Option("--lemmas", help="Both sides of Lemmas A.5 to A.11 in every round.")] = (
        False
    )
    steps: Annotated[
        str | None,
        typer.Option(help="Step sizes: the largest that Lemmas A.5 to A.11 (lemmas) or A.12 too (theorem) allow."),
    ] = None


@grouped
def diagnose(
    trainer: TrainerChoice,
    bench: Bench,
    wanted: Lemmas,
    problem_settings: ProblemSettings = [],  # noqa: B006 (typer's way)
    output: Annotated[Path, typer.Option(help="Stem of the .csv, .json, .png and .pdf.")] = Path("out/diagnostics"),
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Log and plot the theory's quantities by round: variances, drifts, corrections, delta, the Lyapunov function."""
    from robustbench_dec import files, shelf
    from robustbench_dec.problem import Problem
    from robustbench_dec.specs.table import NetworkSpec
    from robustbench_dec.theory import diagnostics, diagnostics_plot, lemmas

    problem_class = shelf.find("problem", bench.problem, Problem)  # type: ignore[type-abstract]
    built = shelf.make(problem_class, parse_settings(problem_settings, "--problem-set"))
    network = NetworkSpec(graph=bench.graph, nodes=bench.nodes, weights=bench.weights)
    share = built.shards(bench.nodes, 0)[0].shape[1]  # no minibatch unless asked for: then nothing is noise
    defaults = {"eta_c": 0.02, "eta_d": 0.08, "eta_x": 0.02, "eta_y": 0.08, "batch": share}
    made = shelf.make(trainer.find(), trainer.read(defaults))
    covered = not diagnostics.uncovered(built, made, network)
    if wanted.steps is not None or (wanted.with_lemmas and covered):
        sizes = diagnostics.inside(wanted.steps or "lemmas", built, made, network)
        made = shelf.make(trainer.find(), trainer.read(defaults | sizes))
    diagnosis = diagnostics.diagnose(built, made, network, bench.rounds, range(bench.seeds), device=checked(device))
    known = diagnosis.constants
    lines = [f"p = {known.p:.4g}, l = {known.l:.4g}, mu = {known.mu:.4g}, kappa = {known.kappa:.4g}, v = {known.v:.4g}"]
    facts = diagnosis.record | {"last": diagnosis.rows.iloc[-1].to_dict()}
    for limit in diagnosis.conditions:
        word = "holds " if limit.holds else "BROKEN"
        lines.append(f"{word}  {limit.lemma}: {limit.text}, {limit.value:.3g} against {limit.limit:.3g}")
    drawn, written = diagnostics_plot.plot(diagnosis, output), diagnostics.write(diagnosis, output)
    if diagnosis.uncovered:
        lines.append(f"no lemma covers this run: {diagnosis.uncovered}")
    else:
        most = ", ".join(f"{name} = {value:.3g}" for name, value in known.admissible().items())
        lines.append(f"admissible: {most}")
        if wanted.with_lemmas:
            sides = lemmas.sides(diagnosis)
            lines += map(str, lemmas.verdicts(sides))
            facts["lemmas"] = [verdict._asdict() for verdict in lemmas.verdicts(sides)]
            written.append(lemmas.write(sides, output))
            drawn |= diagnostics_plot.plot_lemmas(sides, diagnosis, output)
    paths = [*written, *files.write_all(drawn)]
    wrote = [f"wrote {path}" for path in paths]
    tell([*lines, *wrote], facts | {"files": [str(path) for path in paths]}, as_json)

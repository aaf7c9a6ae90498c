"""The command line: `robustbench-dec` or `python -m robustbench_dec`."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from robustbench_dec import data, files, page, shelf
from robustbench_dec.attacking.foreign import attack_named, label
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit as audits
from robustbench_dec.leaderboard import compare as comparison
from robustbench_dec.leaderboard import export, view
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.ledger import Ledger
from robustbench_dec.networks import topology
from robustbench_dec.networks.ranks import Lost, Ranks
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.rendering import attacks_table as table_module
from robustbench_dec.rendering import figures
from robustbench_dec.running import cells, pool, suite
from robustbench_dec.running import train as run
from robustbench_dec.running import tune as tuning
from robustbench_dec.specs import table as spec
from robustbench_dec.store import zoo
from robustbench_dec.theory import check, claims, claims_report, diagnostics, diagnostics_plot, lemmas
from robustbench_dec.trainer import Trainer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="""Adversarial robustness of models that were trained without a server.

    First steps: "robustbench-dec train" trains a small network on 8x8 digits in seconds, and "robustbench-dec table tables/table2.toml --profile quick" makes a small version of the paper's Table 2 on real MNIST and CIFAR-10.""",  # noqa: E501 (wrapped by the terminal)
)

Results = Annotated[Path, typer.Option(help="Folder of runs and the leaderboard.")]
Device = Annotated[str, typer.Option(help="Where to train and attack: cpu, cuda, cuda:1, mps.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Workers side by side (default: one per core, 1 on a GPU).")]
SaveSeconds = Annotated[float, typer.Option(min=0, help="Save where a training stands every so many seconds.")]
SaveRounds = Annotated[int | None, typer.Option(min=1, help="Save it also every so many rounds.")]
Settings = Annotated[list[str], typer.Option("--set", help="A setting as NAME=VALUE; may be given several times.")]
Specification = Annotated[Path, typer.Argument(help="A specification such as tables/table2.toml.")]
Profile = Annotated[str | None, typer.Option(help="A profile of the specification, for example quick.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Only the first so many seeds.")]
Tables = Annotated[Path | None, typer.Option(help="Where to write (default: beside the specification).")]
ProblemSettings = Annotated[list[str], typer.Option("--problem-set", help="A setting of the problem as NAME=VALUE.")]

WITH_SPECIFICATION = {
    "specification",
    "profile",
    "seeds",
    "results",
    "device",
    "save_seconds",
    "save_rounds",
    "timeout",
}
"""What `train` takes beside a specification."""

STARTERS: dict[str, dict[str, Any]] = {
    "universal": {"eta_c": 0.1, "eta_d": 1.0},
    "robust_logistic": {"eta_c": 0.1, "eta_d": 1e-5, "eta_x": 0.1, "eta_y": 1e-5, "K": 1, "batch": 16},
    "quadratic": {"eta_c": 0.02, "eta_d": 0.04, "eta_x": 0.05, "eta_y": 0.1, "batch": 1},
}
"""Settings of a trainer with which `train` does something sensible before anything is tuned."""


@app.command("data")
def fetch_data(
    names: Annotated[list[str], typer.Argument(help="Data sets, for example: mnist cifar10.")],
    folder: Annotated[Path | None, typer.Option(help="Where to keep them (default ./data).")] = None,
    mirror: Annotated[Path | None, typer.Option(help="An offline copy (default $ROBUSTBENCH_DEC_MIRROR).")] = None,
) -> None:
    """Fetch data sets and verify every byte; files that are there and whole are left alone."""
    for name in names:
        paths = data.fetch(name, folder=folder, mirror=mirror)
        typer.echo(
            f"{name}: " + (f"{len(paths)} files verified in {paths[0].parent}" if paths else "bundled, verified")
        )


@app.command("list")
def list_parts() -> None:
    """What there is: trainers, attacks, data sets, graphs."""
    for kind in ("trainer", "attack"):
        more = " (and torchattacks:NAME, path/to/mine.py:Mine, y.safetensors)" if kind == "attack" else ""
        reasons = shelf.broken(kind)
        typer.echo(f"{kind}s: {', '.join(name for name in shelf.names(kind) if name not in reasons)}{more}")
        for reason in reasons.values():
            typer.echo(f"BROKEN: {reason}")
    typer.echo(f"data sets: {', '.join(data.names())}")
    typer.echo(f"graphs: {', '.join(topology.GRAPHS)}")
    typer.echo(f"weights: {', '.join(topology.WEIGHTS)}")


@app.command()
def train(
    context: typer.Context,
    specification: Annotated[
        Path | None, typer.Argument(help="Train every run of a specification such as tables/table2.toml.")
    ] = None,
    profile: Profile = None,
    seeds: Seeds = None,
    trainer: Annotated[str, typer.Option(help="A trainer's name, or path/to/mine.py:Mine.")] = "dec_fedtrack",
    problem: Annotated[str, typer.Option(help="universal (networks), robust_logistic or quadratic.")] = "universal",
    dataset: Annotated[str | None, typer.Option(help="digits, mnist, cifar10, a9a, ...; see `list`.")] = None,
    classes: Annotated[str | None, typer.Option(help="A subset of its classes, for example cat,dog.")] = None,
    eps: Annotated[str | None, typer.Option(help="Radius of the trained perturbation y (default 0.1).")] = None,
    clamp: Annotated[bool, typer.Option(help="Clamp image + y to [0, 1] in training.")] = False,
    split: Annotated[str | None, typer.Option(help="iid (default), dirichlet(0.3) or label.")] = None,
    problem_settings: ProblemSettings = [],  # noqa: B006 (typer's way)
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 5,
    graph: Annotated[str, typer.Option(help="Who talks to whom; see `robustbench-dec list`.")] = "ring",
    weights: Annotated[str, typer.Option(help="Mixing weights: lazy, metropolis or uniform.")] = "lazy",
    matrix: Annotated[Path | None, typer.Option(help="Your own mixing matrix, with --graph file.")] = None,
    loss: Annotated[float, typer.Option(help="Probability that a link loses its messages of a round.")] = 0.0,
    stragglers: Annotated[float, typer.Option(help="Probability that a node comes too late for a round.")] = 0.0,
    varying: Annotated[bool, typer.Option("--varying", help="The nodes take new places every round.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=spec.LARGEST_SEED, help="Seed of everything random.")] = 0,
    settings: Settings = [],  # noqa: B006 (typer's way)
    results: Results = Path("results"),
    device: Device = "cpu",
    save_seconds: SaveSeconds = 20.0,
    save_rounds: SaveRounds = None,
    timeout: Annotated[
        float, typer.Option(min=1, max=86400, help="Seconds until a silent process is given up (torchrun).")
    ] = 600,
) -> None:
    """Train one model, or all of a specification; with no arguments, Dec-FedTrack on 8x8 digits in a few seconds.

    Under "torchrun --nproc-per-node R -m robustbench_dec train ..." R processes share the nodes of each run.
    """
    habits = functools.partial(run.train, results=results, save_seconds=save_seconds, save_rounds=save_rounds)
    if specification is not None:
        both = [name for name in context.params if name not in WITH_SPECIFICATION and _given(context, name)]
        if both:
            raise BadInput(
                f"{specification} says what to train, so --{both[0].replace('_', '-')} cannot; leave one of them out"
            )
        wanted, _ = chosen(specification, profile, seeds)
        _on_ranks(habits, [one for _, one in wanted.runs()], device, timeout)
        return
    if profile or seeds:
        raise BadInput("--profile and --seeds are for a specification; name one, for example tables/table2.toml")
    asked: dict[str, Any] = {
        "dataset": dataset,
        "classes": classes and classes.split(","),
        "clamp": clamp or None,
        "split": split,
    }
    asked |= {"eps": None if eps is None else shelf.number(eps), **parse_settings(problem_settings)}
    about: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    defaults = STARTERS.get(problem, {})
    if problem == "universal":
        about.setdefault("dataset", "digits")
        defaults = defaults | {"batch": 32 if about["dataset"] == "digits" else 128}
    accepted = shelf.find("trainer", trainer, Trainer).__dataclass_fields__  # type: ignore[type-abstract]
    given = {name: value for name, value in defaults.items() if name in accepted} | parse_settings(settings)
    network = spec.NetworkSpec(
        graph=graph, nodes=nodes, weights=weights, matrix=matrix, loss=loss, stragglers=stragglers, varying=varying
    )
    about["name"] = problem
    one = spec.RunSpec(about, network, trainer, given, rounds, seed, curve=[], curve_points=10, curve_examples=1000)
    _on_ranks(habits, [one], device, timeout)


def _on_ranks(train: Callable[..., Path], runs: list[spec.RunSpec], device: str, timeout: float) -> None:
    """Train runs one after the other and tell of each, alone or together with the other processes of torchrun."""
    if not Ranks.present():
        for one in runs:
            _tell(train(one, device=checked(device)))
        return
    ranks = Ranks(checked(device), timeout)
    with ranks.leaving_politely():
        for one in runs:
            folder = train(one, device=str(ranks.device), ranks=ranks)
            if ranks.writes:
                _tell(folder)


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _tell(folder: Path) -> None:
    record = files.read_sealed(folder / "run.json")
    ledger = Ledger(**record["ledger"])
    if "clean" in record:
        clean = record["clean"]
        nodes_told = f"nodes {clean['node_min']:.2%} to {clean['node_max']:.2%}"
        typer.echo(f"{folder}: clean accuracy {clean['mean_model']:.2%} ({nodes_told})")
    else:
        told = {name: value for name, value in record["final"].items() if isinstance(value, float)}
        typer.echo(f"{folder}: " + ", ".join(f"{name} {value:.6g}" for name, value in told.items()))
    typer.echo(
        f"cost: {ledger.sfo:,} SFO calls per node, {ledger.totals['sfo_total']:,} in all "
        f"({ledger.totals['sfo_split_total']:,} with x and y counted apart), {ledger.rounds:,} rounds, "
        f"{ledger.exchanges:,} exchanges, {ledger.bytes_per_edge / 1e6:,.1f} MB per directed edge; "
        f"spectral rate p = {record['spectral_rate']:.4f}"
    )


@app.command()
def attack(
    folder: Annotated[Path, typer.Argument(help="A finished run, results/runs/<id>.")],
    attack: Annotated[str, typer.Option(help="An attack's name, or path/to/mine.py:Mine.")] = "pgd",
    eps: Annotated[str, typer.Option(help="Radii, for example 0.05,0.1 or 8/255.")] = "0.1",
    n_examples: Annotated[int | None, typer.Option(min=1, help="First so many test images (default: all).")] = None,
    settings: Settings = [],  # noqa: B006 (typer's way)
    device: Device = "cpu",
) -> None:
    """Attack a trained model over a grid of radii; cells that exist are not computed again."""
    if not (folder / "run.json").is_file():
        raise BadInput(f"no finished run in {folder}; `robustbench-dec train` makes one and prints its folder")
    cls, given = attack_named(attack), parse_settings(settings)
    attacks = [(label(attack), shelf.make(cls, {"eps": shelf.number(radius), **given})) for radius in eps.split(",")]
    problem_settings = dict(files.read_sealed(folder / "run.json")["settings"]["problem"])
    name = problem_settings.pop("name")
    problem_class = shelf.find("problem", name, Problem)  # type: ignore[type-abstract]
    if not issubclass(problem_class, Classifier):
        raise BadInput(
            f"{folder} was trained on the problem '{name}', which has no images to attack; take a classifier"
        )
    problem = shelf.make(problem_class, problem_settings)
    for cell in cells.attack(folder, attacks, problem=problem, n_examples=n_examples, device=checked(device)):
        flags = f"  flags: {', '.join(cell['flags'])}" if cell["flags"] else ""
        accuracies = f"{cell['clean_acc']:.2%} clean, {cell['robust_acc']:.2%} robust"
        typer.echo(f"{cell['attack']} eps={cell['eps']:g}: {accuracies}{flags}")


@app.command()
def compare(
    attack: Annotated[
        str, typer.Option(help="path/to/mine.py:Mine, torchattacks:MIFGSM, y.safetensors, or a name of `list`.")
    ],
    model: Annotated[
        list[str], typer.Option(help="A pattern of the zoo (mnist/*), a run's folder or a .safetensors file.")
    ] = ["*"],  # noqa: B006 (typer's way)
    eps: Annotated[
        str | None, typer.Option(help="Radii, for example 0.05,0.1 (default: those of stored attacks).")
    ] = None,
    n_examples: Annotated[int, typer.Option(min=1, help="First so many test images.")] = 1000,
    batch_size: Annotated[int, typer.Option(min=1, help="Images that are attacked at once.")] = cells.BATCH_SIZE,
    settings: Settings = [],  # noqa: B006 (typer's way)
    results: Results = Path("results"),
    tables: Annotated[Path, typer.Option(help="Folder of the specifications.")] = Path("tables"),
    device: Device = "cpu",
) -> None:
    """Compare your attack with the stored ones on the networks of the zoo, and add it to the leaderboard."""
    newcomer = comparison.Newcomer(attack, parse_settings(settings))
    radii = [shelf.number(radius) for radius in eps.split(",")] if eps else None
    newcomer.at(radii[0] if radii else 0.0)  # a wrong name or setting is told before anything is loaded
    entries = [entry for pattern in model for entry in chosen_models(pattern, results)]
    rows = comparison.compare(
        newcomer, entries, results, eps=radii, n_examples=n_examples, batch_size=batch_size, device=checked(device)
    )
    typer.echo(comparison.text(rows))
    everything = suite.rebuild(results, tables)
    own = everything[(everything["submitted"] == "user") & (everything["attack"] == newcomer.label)]
    for flag in sorted({flag for flags in own["reliability_flags"] for flag in flags.split(";") if flag}):
        typer.echo(f"flag {flag}: {audits.FLAGS.get(flag, flag)}; docs/flags.md tells more")
    typer.echo(f"{results / 'leaderboard.csv'}: {len(everything)} rows, {len(own)} of them of {newcomer.label}")
    typer.echo(f"wrote {page.write(results, tables / 'index.html')}")


@app.command()
def audit(
    specification: Annotated[Path, typer.Argument(help="A specification with a paper's numbers.")] = Path(
        "tables/table2.toml"
    ),
    results: Results = Path("results"),
) -> None:
    """Tell which stored numbers, and which of the paper's, a sound attack does not give."""
    if not results.is_dir():
        raise BadInput(f"no folder {results}; --results is the folder where runs and cells are, results/ as it comes")
    points = [audits.of_cell(record, cell) for _, record, cell in leaderboard.cells(results)]
    found = [f"{finding.flag}: {audits.sentence(finding)}" for finding in audits.findings(points)]
    typer.echo("\n".join([f"{len(points)} cells in {results}: {len(found)} findings", *found]))
    if specification.is_file():
        wanted = spec.read(specification)
        found = table_module.audit(suite.blocks(wanted), table_module.paper_percent(wanted.paper))
        typer.echo("\n".join([f"the paper's numbers in {specification}: {len(found)} findings", *found]))


zoo_app = typer.Typer(no_args_is_help=True, help="The trained networks that come with the suite.")
app.add_typer(zoo_app, name="zoo")


@zoo_app.command("add")
def zoo_add(
    folder: Annotated[Path, typer.Argument(help="A finished run with its checkpoint, results/runs/<id>.")],
    name: Annotated[str, typer.Argument(help="DATA_SET/NAME, for example mnist/dec_fedtrack.")],
    results: Results = Path("results"),
) -> None:
    """Make an entry of the zoo from a finished run: its average network and y, and a card."""
    entry = zoo.add(folder, name, results / "zoo")
    size = entry.checkpoint.stat().st_size / 1000
    typer.echo(f"wrote {entry.checkpoint} ({size:.0f} kB, sha256 {entry.sha256[:12]}) and its card")


@zoo_app.command("list")
def zoo_list() -> None:
    """The networks of the zoo."""
    for entry in zoo.entries():
        clean, problem = entry.record["clean"]["mean_model"], entry.record["settings"]["problem"]
        radius = f"trained at eps {problem['eps']:g}" if "eps" in problem else "trained without y"
        typer.echo(f"{entry.name}: {entry.record['architecture']}, {clean:.2%} clean, {radius}")


def chosen_models(pattern: str, results: Path) -> list[zoo.Entry]:
    """Entries of the zoo, or the one network that a path leads to."""
    path = Path(pattern)
    if path.exists() or path.suffix in (".safetensors", ".pt", ".pth", ".pkl"):
        return [zoo.from_path(path)]
    return zoo.entries(pattern, results / "zoo" if any((results / "zoo").glob("*/*.json")) else None)


@app.command()
def table(
    specification: Specification,
    profile: Profile = None,
    seeds: Seeds = None,
    results: Results = Path("results"),
    tables: Tables = None,
    jobs: Jobs = None,
    device: Device = "cpu",
    save_seconds: SaveSeconds = 20.0,
    save_rounds: SaveRounds = None,
) -> None:
    """Make a table: train and attack what is missing, then render. Interrupted, it goes on where it was."""
    wanted, stem = chosen(specification, profile, seeds)
    home = tables or specification.parent
    files.sweep(home)
    saving: dict[str, Any] = {"save_seconds": save_seconds, "save_rounds": save_rounds}
    folders = suite.make(wanted, results, device=checked(device), jobs=workers(jobs, device), **saving)
    typer.echo(f"{len(folders)} runs complete in {results}")
    for path in report(wanted, stem, results, home):
        typer.echo(f"wrote {path}")


@app.command()
def render(
    specification: Specification,
    profile: Profile = None,
    seeds: Seeds = None,
    results: Results = Path("results"),
    tables: Tables = None,
) -> None:
    """Write a table's files and the leaderboard again from the results on disk, without training or attacking."""
    wanted, stem = chosen(specification, profile, seeds)
    for path in report(wanted, stem, results, tables or specification.parent):
        typer.echo(f"wrote {path}")


@app.command("figures")
def make_figures(
    specification: Specification = Path("tables/figures.toml"),
    profile: Profile = None,
    seeds: Seeds = None,
    dataset: Annotated[list[str], typer.Option(help="Only this data set; may be given several times.")] = [],  # noqa: B006
    results: Results = Path("results"),
    tables: Tables = None,
    jobs: Jobs = None,
    device: Device = "cpu",
    save_seconds: SaveSeconds = 20.0,
    save_rounds: SaveRounds = None,
) -> None:
    """Draw Phi and accuracy against oracle calls and communication, after training what is missing."""
    wanted, stem = chosen(specification, profile, seeds)
    device = checked(device)
    if dataset:
        known = {block.title: block for block in wanted.blocks}
        for name in dataset:
            if name not in known:
                raise BadInput(f"no data set '{name}' in {specification}; there are: {', '.join(known)}")
        wanted = wanted.model_copy(update={"blocks": [known[name] for name in dataset]})
        stem = "-".join([stem, *dataset])
    wanted, reasons = figures.available(wanted)
    for reason in reasons:
        typer.echo(reason, err=True)
    home = tables or specification.parent
    files.sweep(home)
    saving: dict[str, Any] = {"save_seconds": save_seconds, "save_rounds": save_rounds}
    suite.make(wanted, results, device=device, jobs=workers(jobs, device), **saving)
    for path in figures.report(wanted, stem, results, home):
        typer.echo(f"wrote {path}")


@app.command()
def tune(
    specification: Specification,
    results: Results = Path("results/tune"),
    tables: Tables = None,
    jobs: Jobs = None,
    device: Device = "cpu",
) -> None:
    """Try the step sizes of a specification's tune part in short runs, judged on held-out images, or by Phi."""
    wanted, jobs = spec.read(specification), workers(jobs, checked(device))
    tables = tables or specification.parent
    path = tuning.tune(wanted, specification.stem, results, tables, device=device, jobs=jobs)
    typer.echo(f"wrote {path}")


@app.command("check")
def check_trainer(
    trainer: Annotated[str, typer.Argument(help="path/to/mine.py:Mine, or a trainer's name.")],
    settings: Settings = [],  # noqa: B006 (typer's way)
    device: Device = "cpu",
) -> None:
    """Try on your trainer what every trainer promises, from metered costs to a solution found; exit 1 if one breaks."""
    cls = shelf.find("trainer", trainer, Trainer)  # type: ignore[type-abstract]
    kept = True
    for verdict in check.verdicts(shelf.make(cls, parse_settings(settings)), checked(device)):
        typer.echo(f"{'kept  ' if verdict.kept else 'BROKEN'}  {verdict.promise} ({verdict.seen})")
        kept &= verdict.kept
    raise typer.Exit(0 if kept else 1)


@app.command()
def table1(
    specification: Annotated[Path, typer.Argument(help="A specification like tables/table1.toml.")] = Path(
        "tables/table1.toml"
    ),
    tune: Annotated[bool, typer.Option("--tune", help="Try the grid of step sizes first.")] = False,
    results: Results = Path("results"),
    tables: Tables = None,
    device: Device = "cpu",
) -> None:
    """Make Table 1: the paper's ticks beside what each method pays on a quadratic; runs that exist are not repeated."""
    wanted, stem, home = claims.read(specification), specification.stem, tables or specification.parent
    device = checked(device)
    if tune:
        typer.echo(f"wrote {claims.tune(wanted, stem, results / 'tune' / stem, home, device=device)}")
    there = home / f"{stem}-tune.csv"
    choice = claims.chosen(wanted, there if there.is_file() else specification.with_name(f"{stem}-tune.csv"))
    rows = claims.make(wanted, choice, results / stem, device=device)
    for path in claims_report.report(wanted, rows, home / stem):
        typer.echo(f"wrote {path}")


@app.command()
def diagnose(
    trainer: Annotated[
        str, typer.Option(help="A trainer with X, Y, C and D, or path/to/mine.py:Mine.")
    ] = "dec_fedtrack",
    problem: Annotated[str, typer.Option(help="quadratic or robust_logistic, where Phi is known.")] = "quadratic",
    problem_settings: ProblemSettings = [],  # noqa: B006 (typer's way)
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 10,
    graph: Annotated[str, typer.Option(help="Who talks to whom; see `robustbench-dec list`.")] = "ring",
    weights: Annotated[str, typer.Option(help="Mixing weights: lazy, metropolis or uniform.")] = "lazy",
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds.")] = 200,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 0.")] = 1,
    settings: Settings = [],  # noqa: B006 (typer's way)
    with_lemmas: Annotated[
        bool, typer.Option("--lemmas", help="Both sides of Lemmas A.5 to A.11 in every round.")
    ] = False,
    steps: Annotated[
        str | None,
        typer.Option(help="Step sizes: the largest that Lemmas A.5 to A.11 (lemmas) or A.12 too (theorem) allow."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Stem of the .csv, .json, .png and .pdf.")] = Path("out/diagnostics"),
    device: Device = "cpu",
) -> None:
    """Log and plot the theory's quantities by round: variances, drifts, corrections, delta, the Lyapunov function."""
    built = shelf.make(shelf.find("problem", problem, Problem), parse_settings(problem_settings))  # type: ignore[type-abstract]
    cls = shelf.find("trainer", trainer, Trainer)  # type: ignore[type-abstract]
    network = spec.NetworkSpec(graph=graph, nodes=nodes, weights=weights)
    share = built.shards(nodes, 0)[0].shape[1]  # no minibatch unless asked for: then nothing is noise
    defaults = {"eta_c": 0.02, "eta_d": 0.08, "eta_x": 0.02, "eta_y": 0.08, "batch": share}
    accepted = {name: value for name, value in defaults.items() if name in cls.__dataclass_fields__}
    made = shelf.make(cls, accepted | parse_settings(settings))
    covered = not diagnostics.uncovered(built, made, network)
    if steps is not None or (with_lemmas and covered):
        sizes = diagnostics.inside(steps or "lemmas", built, made, network)
        made = shelf.make(cls, accepted | sizes | parse_settings(settings))
    diagnosis = diagnostics.diagnose(built, made, network, rounds, range(seeds), device=checked(device))
    known = diagnosis.constants
    typer.echo(
        f"p = {known.p:.4g}, l = {known.l:.4g}, mu = {known.mu:.4g}, kappa = {known.kappa:.4g}, v = {known.v:.4g}"
    )
    for limit in diagnosis.conditions:
        word = "holds " if limit.holds else "BROKEN"
        typer.echo(f"{word}  {limit.lemma}: {limit.text}, {limit.value:.3g} against {limit.limit:.3g}")
    written = []
    if diagnosis.uncovered:
        typer.echo(f"no lemma covers this run: {diagnosis.uncovered}")
    else:
        most = ", ".join(f"{name} = {value:.3g}" for name, value in known.admissible().items())
        typer.echo(f"admissible: {most}")
        if with_lemmas:
            sides = lemmas.sides(diagnosis)
            for verdict in lemmas.verdicts(sides):
                typer.echo(str(verdict))
            written = [lemmas.write(sides, output), *diagnostics_plot.plot_lemmas(sides, diagnosis, output)]
    for path in [*diagnostics.write(diagnosis, output), *diagnostics_plot.plot(diagnosis, output), *written]:
        typer.echo(f"wrote {path}")


@app.command("page")
def write_page(
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("tables/index.html"),
) -> None:
    """Write the leaderboard as one self-contained web page: open it in a browser, no network needed."""
    typer.echo(f"wrote {page.write(results, out)}")


@app.command("export")
def export_view(
    form: Annotated[str, typer.Option("--format", help="csv, latex, json (RobustBench's keys) or bibtex.")] = "csv",
    dataset: Annotated[list[str], typer.Option(help="Only these data sets; may be given several times.")] = [],  # noqa: B006
    method: Annotated[list[str], typer.Option(help="Only these methods.")] = [],  # noqa: B006
    attack: Annotated[list[str], typer.Option(help="Only these attacks.")] = [],  # noqa: B006
    eps: Annotated[list[str], typer.Option(help="Only these radii, for example 0.1 or 8/255.")] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="A file (default: print); with json, a folder gets a file per model.")
    ] = None,
    results: Results = Path("results"),
) -> None:
    """Print or write a part of the leaderboard for a paper, a spreadsheet or another benchmark."""
    rows = view.select(view.read(results), dataset, method, attack, eps)
    if out is None:
        typer.echo(export.text(rows, form), nl=False)
        return
    if form == "json" and (out.is_dir() or not out.suffix):
        written = export.write_documents(export.robustbench(rows), out)
    else:
        files.write_text(out, export.text(rows, form))
        written = [out]
    for path in written:
        typer.echo(f"wrote {path}")


def report(wanted: spec.Spec, stem: str, results: Path, tables: Path) -> list[Path]:
    """A table's files and, since it costs a second, the page of all that is there."""
    written = suite.report(wanted, stem, results, tables)
    return [*written, page.write(results, tables / "index.html")]


def chosen(path: Path, profile: str | None, seeds: int | None) -> tuple[spec.Spec, str]:
    """The specification that is asked for, and the stem of its files: never the full table's for a part of it."""
    wanted, stem = spec.read(path), path.stem
    if profile:
        wanted, stem = wanted.with_profile(profile), f"{stem}-{profile}"
    if seeds is not None and seeds < len(wanted.seeds):
        wanted, stem = wanted.model_copy(update={"seeds": wanted.seeds[:seeds]}), f"{stem}-seeds{seeds}"
    return wanted, stem


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """NAME=VALUE pairs; the values become numbers where the part's types say so."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--set takes NAME=VALUE, for example --set steps=40, not '{pair}'")
        settings[name] = value
    return settings


def workers(jobs: int | None, device: str) -> int:
    """How many runs are worked on side by side."""
    return jobs or (pool.cores() if device == "cpu" else 1)


def checked(device: str) -> str:
    """The device, if torch has it."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"this torch cannot use the device '{device}'; 'cpu' always works") from error
    return device


def main() -> None:
    """Run a command; a BadInput is one sentence on standard error and exit code 2, Ctrl-C loses nothing."""
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:  # words that make no command
        if type(error).__name__ != "NoArgsIsHelpError":  # which has shown the help
            told = " ".join(error.format_message().split()).rstrip(".")
            print(f"robustbench-dec: {told}; the same command with --help tells what there is", file=sys.stderr)
        sys.exit(2)
    except BadInput as error:
        sentence = " ".join(str(error).split())  # what it quotes may have several lines
        if Ranks.present() and not isinstance(error, Lost):
            sentence = f"rank {os.environ['RANK']}: {sentence}"
        print(f"robustbench-dec: {sentence}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 130:  # 130 is how typer passes Ctrl-C on
            raise
        print("robustbench-dec: stopped; the same command goes on where this one was", file=sys.stderr)
        sys.exit(130)

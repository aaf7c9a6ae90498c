"""Options that commands share. A group of options is a frozen dataclass, and `grouped` spreads it over a command."""

import copy
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeGuard, get_args

import typer

from robustbench_dec.errors import BadInput
from robustbench_dec.shipped import own, specification
from robustbench_dec.specs.limits import LARGEST_SEED

if TYPE_CHECKING:
    from robustbench_dec.attacking.evaluate import Limits
    from robustbench_dec.running.train import Habits
    from robustbench_dec.specs.table import NetworkSpec
    from robustbench_dec.trainer import Trainer


def folder(text: str | Path) -> Path:
    """A folder by its name; an empty name would stand for the current one."""
    if not str(text):
        raise BadInput("--results is the name of a folder, such as out; an empty one names none")
    return Path(text)


def between(option: str, what: str, least: float, most: float) -> Callable[[str | float], float]:
    """A reader of an option's number, which is in a range: NaN is in none."""

    def number(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise BadInput(f"{option} is a number of {what} from {least:g} to {most:g}, not {text}")
        return value

    return number


Results = Annotated[Path, typer.Option(parser=folder, help="Folder of runs and the leaderboard.")]
Stored = Annotated[
    Path | None, typer.Option(help="Results whose cells are only read (default: results, or what comes along).")
]
Device = Annotated[str, typer.Option(help="Where to train and attack: cpu, cuda, cuda:1, mps.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Workers side by side (default: one per core, 1 on a GPU).")]
Settings = Annotated[list[str], typer.Option("--set", help="A setting as NAME=VALUE; may be given several times.")]
ProblemSettings = Annotated[list[str], typer.Option("--problem-set", help="A setting of the problem as NAME=VALUE.")]
Specification = Annotated[
    Path, typer.Argument(parser=specification, help="A specification: a file, or the name of one that comes along.")
]
Tables = Annotated[
    Path | None, typer.Option(help="Where to write (default: beside the specification, or in a --results elsewhere).")
]
Graph = Annotated[str, typer.Option(help="Who talks to whom; see `robustbench-dec list`.")]
Weights = Annotated[str, typer.Option(help="Mixing weights: lazy, metropolis or uniform.")]
Rounds = Annotated[int, typer.Option(min=1, help="Communication rounds.")]

Command = Callable[..., None]


def grouped(command: Command) -> Command:
    """The command as typer reads it: a parameter whose type is a group of options becomes the group's fields."""
    parameters = inspect.signature(command).parameters.values()
    groups = {each.name: each.annotation for each in parameters if _is_group(each.annotation)}

    def spread() -> Iterator[inspect.Parameter]:
        for each in parameters:
            if each.name in groups:
                yield from _parameters(groups[each.name])
            else:
                yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(command)
    def flat(**words: object) -> None:
        read = {
            name: group(**{each.name: words.pop(each.name) for each in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**words, **read)

    signature = inspect.Signature(list(spread()))
    flat.__signature__ = signature  # type: ignore[attr-defined]
    flat.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return flat


def _is_group(annotation: object) -> TypeGuard[type]:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    for each in dataclasses.fields(group):
        default: object = inspect.Parameter.empty
        if each.default_factory is not dataclasses.MISSING:
            default = each.default_factory()
        elif each.default is not dataclasses.MISSING:
            default = each.default
        annotation = _under(getattr(group, "panel", None), each.type)
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _under(panel: str | None, annotation: object) -> object:
    """An annotated option as it stands in the help under a heading."""
    kind, option = get_args(annotation)
    option = copy.copy(option)  # several groups may share it
    option.rich_help_panel = panel
    return Annotated[kind, option]


def given(context: typer.Context, *groups: type) -> list[str]:
    """The options of these groups that stand on the command line, as they are typed there."""
    names = {each.name for group in groups for each in dataclasses.fields(group)}
    typed = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            typed.append(parameter.opts[0])
    return typed


@dataclass(frozen=True)
class Part:
    """Which part of a specification, and of how many seeds."""

    panel: ClassVar = "A part of a specification"

    profile: Annotated[str | None, typer.Option(help="A profile of the specification, for example quick.")] = None
    seeds: Annotated[int | None, typer.Option(min=1, help="Only the first so many seeds.")] = None


@dataclass(frozen=True)
class Saving:
    """How often an unfinished training is saved."""

    save_seconds: Annotated[
        float,
        typer.Option(
            parser=between("--save-seconds", "seconds", 0, 1e9),
            metavar="SECONDS",
            help="Save where a training stands every so many seconds.",
        ),
    ] = 20.0
    save_rounds: Annotated[int | None, typer.Option(min=1, help="Save it also every so many rounds.")] = None

    def habits(self, device: str) -> "Habits":
        from robustbench_dec.running.train import Habits

        return Habits(device, save_seconds=self.save_seconds, save_rounds=self.save_rounds)


@dataclass(frozen=True)
class Work(Saving):
    """Who does the work: how many processes, on what, saved how often."""

    jobs: Jobs = None
    device: Device = "cpu"


@dataclass(frozen=True)
class Limiting:
    """What an attack may use."""

    max_passes: Annotated[
        int | None, typer.Option(min=1, help="Images through the network per image, forward and back together.")
    ] = None
    max_seconds: Annotated[
        float,
        typer.Option(
            parser=between("--max-seconds", "seconds", 1, 1e9),
            metavar="SECONDS",
            help="For a batch or a fit of an attack in a file.",
        ),
    ] = 3600.0
    max_memory: Annotated[
        float,
        typer.Option(
            parser=between("--max-memory", "GB", 0.5, 1e6), metavar="GB", help="Memory of an attack in a file."
        ),
    ] = 16.0

    def read(self) -> "Limits":
        from robustbench_dec.attacking.evaluate import Limits

        return Limits(self.max_passes, self.max_seconds, self.max_memory)


@dataclass(frozen=True)
class Place:
    """Where results are, and where tables go."""

    results: Results = Path("results")
    tables: Tables = None

    def home(self, specification: Path) -> Path:
        """The folder of a table's files.

        Results and specifications that belong together are results/ and tables/ in one folder, or results/ beside the
        file itself; results elsewhere get their tables beside them, so that no table is replaced by numbers that are
        not its own. What a specification of the suite makes elsewhere, by its name, goes to tables/ beside results/.
        """
        folder = specification.resolve().parent
        together = (folder / "results", folder.parent / "results")
        if self.tables or self.results.resolve() in together:
            return self.tables or specification.parent
        return page_home(self.results) if own(specification) else self.results


@dataclass(frozen=True)
class Stores:
    """Where new cells are written, and where others are only read."""

    results: Results = Path("out")
    stored: Stored = None


def page_home(results: Path) -> Path:
    """The folder of the page of these results: tables/ beside results/, or the results' own folder."""
    return results.parent / "tables" if results.name == "results" else results


@dataclass(frozen=True)
class TrainerChoice:
    """A trainer and its settings."""

    panel: ClassVar = "The trainer"

    trainer: Annotated[str, typer.Option(help="A trainer's name, or path/to/mine.py:Mine.")] = "dec_fedtrack"
    settings: Settings = field(default_factory=list)

    def read(self, defaults: Mapping[str, object]) -> dict[str, object]:
        """Its settings: what was given, and those of the defaults that it has."""
        accepted = self.find().__dataclass_fields__
        return {name: value for name, value in defaults.items() if name in accepted} | parse_settings(self.settings)

    def find(self) -> "type[Trainer]":
        from robustbench_dec import shelf
        from robustbench_dec.trainer import Trainer

        return shelf.find("trainer", self.trainer, Trainer)  # type: ignore[type-abstract]


@dataclass(frozen=True)
class ProblemChoice:
    """What is trained: a problem, its data and its settings."""

    panel: ClassVar = "The problem"

    problem: Annotated[str, typer.Option(help="universal, adversarial (networks), robust_logistic, quadratic.")] = (
        "universal"
    )
    dataset: Annotated[str | None, typer.Option(help="mnist, a9a, ...; see `list`; or path/to/images.npz.")] = None
    model: Annotated[str | None, typer.Option(help="cnn2, resnet8, ...; see `list`; or path/to/net.py:Net.")] = None
    classes: Annotated[str | None, typer.Option(help="A subset of its classes, for example cat,dog.")] = None
    eps: Annotated[str | None, typer.Option(help="Radius of the trained perturbation y (default 0.1).")] = None
    clamp: Annotated[bool, typer.Option(help="Clamp image + y to [0, 1] in training.")] = False
    split: Annotated[str | None, typer.Option(help="iid (default), dirichlet(0.3), classes(2) or label.")] = None
    problem_settings: ProblemSettings = field(default_factory=list)

    def read(self) -> dict[str, object]:
        """The settings that were given, and the problem's name."""
        from robustbench_dec import shelf

        asked: dict[str, object] = {
            "dataset": self.dataset,
            "model": self.model,
            "classes": self.classes and self.classes.split(","),
            "clamp": self.clamp or None,
            "split": self.split,
            "eps": None if self.eps is None else shelf.number(self.eps),
        }
        more = parse_settings(self.problem_settings, "--problem-set")
        about = {name: value for name, value in asked.items() if value is not None}
        twice = sorted(about.keys() & more.keys())
        if twice:
            raise BadInput(f"{twice[0]} is given twice, by --{twice[0]} and by --problem-set; leave one of them out")
        return about | more | {"name": self.problem}


@dataclass(frozen=True)
class NetworkChoice:
    """Who talks to whom, and what gets lost on the way."""

    panel: ClassVar = "The network"

    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 5
    graph: Graph = "ring"
    weights: Weights = "lazy"
    matrix: Annotated[Path | None, typer.Option(help="Your own mixing matrix, with --graph file.")] = None
    loss: Annotated[float, typer.Option(help="Probability that a link loses its messages of a round.")] = 0.0
    stragglers: Annotated[float, typer.Option(help="Probability that a node comes too late for a round.")] = 0.0
    varying: Annotated[bool, typer.Option("--varying", help="The nodes take new places every round.")] = False

    def read(self) -> "NetworkSpec":
        from robustbench_dec.specs.table import NetworkSpec

        return NetworkSpec(**dataclasses.asdict(self))


@dataclass(frozen=True)
class Length:
    """How long a run is, and what its randomness comes from."""

    rounds: Rounds = 100
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")] = 0


def parse_settings(pairs: list[str], option: str = "--set") -> dict[str, str]:
    """NAME=VALUE pairs; the values become numbers where the part's types say so."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} takes NAME=VALUE, for example {option} steps=40, not '{pair}'")
        if name in settings:
            raise BadInput(f"{option} {name} is given twice, as {settings[name]} and as {value}; leave one of them out")
        settings[name] = value
    return settings


def radii(text: str) -> list[float]:
    """Radii such as 0.05,8/255, each once."""
    from robustbench_dec import shelf

    return list(dict.fromkeys(shelf.number(radius) for radius in text.split(",")))


def checked(device: str) -> str:
    """The device, if torch has it."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"this torch cannot use the device '{device}'; 'cpu' always works") from error
    return device


def workers(jobs: int | None, device: str) -> int:
    """How many runs are worked on side by side."""
    from robustbench_dec.running import pool

    return jobs or (pool.cores() if device == "cpu" else 1)

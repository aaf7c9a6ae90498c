"""What a table asks for: a TOML file, validated; unknown keys are refused by name."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.foreign import attack_named
from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.faults import RELIABLE, Faults
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.problem import Problem
from robustbench_dec.specs.budget import Budget
from robustbench_dec.specs.limits import LARGEST_SEED
from robustbench_dec.trainer import Trainer

SCHEMA = 1
"""Raised when a change of the code changes numbers: every id changes with it."""

Model = TypeVar("Model", bound=BaseModel)
Number = Annotated[float, BeforeValidator(lambda value: shelf.number(value) if isinstance(value, str) else value)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkSpec(_Strict):
    """Who talks to whom, the settings of `topology.build`, and what gets lost on the way, those of `Faults`."""

    graph: str = "ring"
    nodes: int = 5
    weights: str = "lazy"
    pi: Number = 1 / 3
    probability: Number = 0.5
    seed: int = 0
    matrix: Path | None = None
    loss: Number = 0.0
    stragglers: Number = 0.0
    varying: bool = False

    def build(self) -> Any:
        """W (n, n)."""
        return topology.build(
            self.graph,
            self.nodes,
            self.weights,
            self.pi,
            probability=self.probability,
            seed=self.seed,
            matrix=self.matrix,
        )

    @property
    def faults(self) -> Faults:
        """What goes wrong in every round."""
        return Faults(self.loss, self.stragglers, self.varying)

    def connect(self, seed: int, join: Callable[[Any, Faults, tuple[int, int]], Network] = SimulatedNetwork) -> Network:
        """The network of one run; its faults are a function of the run's seed, the network's seed and the round.

        `join` makes it: the simulator, or a crew's `connect`.
        """
        return join(self.build(), self.faults, (seed, self.seed))

    def settings(self) -> dict[str, Any]:
        """Every setting; a matrix file also by its bytes, because its path does not tell what is in it.

        Faults that do not occur are left out: a reliable network's run has the id it had before there were any.
        """
        reliable = {name for name, value in asdict(RELIABLE).items() if getattr(self, name) == value}
        told: dict[str, Any] = self.model_dump(mode="json", exclude_none=True, exclude=reliable)
        if self.matrix is not None and self.matrix.is_file():
            told["matrix_sha256"] = files.sha256(self.matrix)
        return told


class AttackSpec(_Strict):
    """One attack over a grid of radii; everything but `name` and `eps` is a setting of that attack."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    eps: list[Number] = Field(min_length=1)

    def build(self) -> list[Attack]:
        """The attack at each radius."""
        cls = attack_named(self.name)
        return [shelf.make(cls, {"eps": eps, **(self.model_extra or {})}) for eps in self.eps]


def _once_each(seeds: list[int]) -> list[int]:
    if len({*seeds}) < len(seeds):
        raise ValueError(f"every seed should come once, not as in {seeds}")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0, le=LARGEST_SEED)]], Field(min_length=1), AfterValidator(_once_each)]


class BlockSpec(_Strict):
    """One block of a table: one problem, several trainers, several attacks; `network` changes what it names."""

    title: str
    problem: dict[str, Any]
    network: NetworkSpec | None = None
    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    trainers: dict[str, dict[str, Any]]
    attacks: list[AttackSpec] = []
    curve: list[AttackSpec] = []


class Profile(_Strict):
    """What a quicker version of a table changes."""

    seeds: Seeds | None = None
    blocks: list[BlockSpec] | None = None
    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    n_examples: int | None = Field(default=None, ge=1)
    curve_points: int | None = Field(default=None, ge=1)
    attacks: dict[str, dict[str, Any]] = {}


class TuneSpec(_Strict):
    """Short runs on a grid, judged on the validation part: settings of a trainer, or `problem.NAME` of its problem."""

    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    grids: dict[str, dict[str, dict[str, list[Any]]]]
    attacks: dict[str, list[AttackSpec]] = {}


class Spec(_Strict):
    """A whole table."""

    title: str
    caption: str = ""
    layout: Literal["attacks", "networks", "figures"] = "attacks"
    seeds: Seeds = [0]
    n_examples: int | None = Field(default=None, ge=1)
    curve_points: int = Field(default=12, ge=1)
    curve_examples: int = Field(default=1000, ge=1)
    network: NetworkSpec = NetworkSpec()
    blocks: list[BlockSpec] = Field(min_length=1)
    profiles: dict[str, Profile] = {}
    tune: TuneSpec | None = None
    paper: dict[str, dict[str, dict[str, float]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _fill_blocks(cls, content: Any) -> Any:
        """What stands under [defaults] stands in every block that does not say otherwise."""
        if not isinstance(content, dict) or not isinstance(content.get("blocks"), list):
            return content
        rest = {name: value for name, value in content.items() if name != "defaults"}
        return rest | {"blocks": [_over(content.get("defaults"), block) for block in content["blocks"]]}

    def with_profile(self, name: str) -> "Spec":
        """This table with the changes of a profile."""
        if name not in self.profiles:
            raise BadInput(f"no profile '{name}'; there are: {', '.join(self.profiles) or 'none'}")
        profile = self.profiles[name]
        shorter = profile.model_dump(include={"rounds", "sfo", "exchanges"}, exclude_none=True)
        blocks = []
        for block in profile.blocks or self.blocks:
            lighter = [attack.model_copy(update=profile.attacks.get(attack.name, {})) for attack in block.attacks]
            blocks.append(block.model_copy(update={**shorter, "attacks": lighter}))
        return self.model_copy(
            update={
                "seeds": profile.seeds or self.seeds,
                "n_examples": profile.n_examples or self.n_examples,
                "curve_points": profile.curve_points or self.curve_points,
                "blocks": blocks,
            }
        )

    def runs(self) -> Iterator[tuple[BlockSpec, "RunSpec"]]:
        """Every run of the table, seed by seed, so that an interrupted table has whole seeds."""
        for seed in self.seeds:
            for block in self.blocks:
                for name in block.trainers:
                    yield block, self.run(block, name, seed)

    def network_of(self, block: BlockSpec) -> NetworkSpec:
        """The table's network with the changes of a block."""
        changes = block.network
        if changes is None:
            return self.network
        return self.network.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})

    def run(self, block: BlockSpec, trainer: str, seed: int, **changes: Any) -> "RunSpec":
        """One run of a block; `changes` replace its fields."""
        fields: dict[str, Any] = {
            "problem": block.problem,
            "network": self.network_of(block),
            "trainer": trainer,
            "trainer_settings": block.trainers[trainer],
            "rounds": block.rounds,
            "seed": seed,
            "curve": block.curve,
            "curve_points": self.curve_points,
            "curve_examples": self.curve_examples,
            "sfo": block.sfo,
            "exchanges": block.exchanges,
        }
        return RunSpec(**(fields | changes))


def _over(defaults: Any, said: Any) -> Any:
    """`said`, and what it leaves out of `defaults`, table by table."""
    if not isinstance(defaults, dict) or not isinstance(said, dict):
        return said
    return defaults | {name: _over(defaults.get(name), value) for name, value in said.items()}


@dataclass(frozen=True)
class RunSpec:
    """One training run, and its id: a digest of all that decides its numbers."""

    problem: dict[str, Any]
    network: NetworkSpec
    trainer: str
    trainer_settings: dict[str, Any]
    rounds: int | None
    seed: int
    curve: list[AttackSpec]
    curve_points: int
    curve_examples: int
    sfo: int | None = None
    exchanges: int | None = None

    @property
    def budget(self) -> Budget:
        """When the run ends."""
        return Budget(self.rounds, self.sfo, self.exchanges)

    @property
    def data_set(self) -> str:
        """The data set's name, or the problem's where it makes its own data."""
        return str(self.build_problem().settings().get("dataset", self.problem.get("name")))

    def build_problem(self) -> Problem:
        """The problem, with every setting checked."""
        settings = dict(self.problem)
        cls = shelf.find("problem", str(settings.pop("name", "universal")), Problem)  # type: ignore[type-abstract]
        if "nodes" in cls.__dataclass_fields__:  # a problem's own count is the network's
            settings.setdefault("nodes", self.network.nodes)
        return shelf.make(cls, settings)

    def build_trainer(self) -> Trainer:
        """The trainer, with every setting checked."""
        return shelf.make(shelf.find("trainer", self.trainer, Trainer), self.trainer_settings)  # type: ignore[type-abstract]

    def settings(self) -> dict[str, Any]:
        """Every setting, resolved: what run.json tells and what the id is a digest of."""
        trainer = self.build_trainer()
        problem = self.build_problem()
        problem_settings = {"name": self.problem.get("name", "universal"), **problem.settings()}
        if not trainer.has_dual:  # f(., 0) does not depend on the feasible set of y
            for name in problem.dual_settings:
                problem_settings.pop(name, None)
        return {
            "problem": problem_settings,
            "network": self.network.settings(),
            "trainer": {**trainer.source.identity(), **trainer.settings()},
            **self.budget.named,
            "seed": self.seed,
            "curve": {
                "attacks": [attack.model_dump(mode="json") for attack in self.curve],
                "points": self.curve_points,
                "examples": self.curve_examples,
            },
        }

    @property
    def id(self) -> str:
        """Readable, and different for different numbers."""
        name = Path(self.trainer.partition(":")[0]).stem
        return f"{self.data_set}-{name}-s{self.seed}-{files.digest([SCHEMA, self.settings()])[:10]}"


Layout = Literal["attacks", "networks", "figures", "claims"]
"""What kind of table a specification asks for; the last kind is read by theory/claims.py."""


def layout(path: Path) -> Layout:
    """The kind of a specification, told before any work; one that does not say is a table of attacks."""
    named = content(path).get("layout", "attacks")
    for known in get_args(Layout):
        if named == known:
            return cast(Layout, known)
    raise BadInput(f"{path}: no layout '{named}'; there are: {', '.join(get_args(Layout))}")


def read(path: Path) -> Spec:
    """A specification from a TOML file."""
    if layout(path) == "claims":
        raise BadInput(f"{path} is a table of claims, which has no models; `robustbench-dec table {path}` makes it")
    return validated(Spec, path, "tables/table2.toml")


def validated(model: type[Model], path: Path, example: str) -> Model:
    """A TOML file as a specification of some kind; the first thing that is wrong with it is a BadInput."""
    try:
        return model.model_validate(content(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].lower()
        if first["type"] == "extra_forbidden":
            what = f"no such setting; there are: {', '.join(_known(model, first['loc'][:-1]))}"
        raise BadInput(f"{path}: '{where}': {what}; see {example} for a complete example") from error


def _known(model: Any, place: tuple[int | str, ...]) -> list[str]:
    """The settings that there are at a place of a specification."""
    for part in place:
        if isinstance(part, str) and part in getattr(model, "model_fields", {}):
            model = model.model_fields[part].annotation
        else:
            model = get_args(model)[-1]  # an item of a list or a table
        while get_origin(model) in (Union, UnionType, Annotated):
            model = get_args(model)[0]
    return list(model.model_fields)


def content(path: Path) -> dict[str, Any]:
    """What stands in a TOML file."""
    try:
        with path.open("rb") as handle:
            return tomllib.load(handle)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(
            f"no specification {path} ({reason}); the ones that come with the suite are in tables/"
        ) from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise BadInput(f"{path} is not valid TOML: {error}") from error

"""A table of claims as it is asked for, such as tables/table1.toml: what is said of methods, and how it is measured."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, PositiveFloat

from robustbench_dec import files, shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.specs.run import NetworkSpec
from robustbench_dec.specs.toml import Number, Strict, validated
from robustbench_dec.store.records import SCHEMA, ClaimSettings
from robustbench_dec.trainer import Trainer

EXAMPLE = "tables/table1.toml"

EXPLOSION = 1e4
"""A norm so many times the first one will not come back."""


@dataclass(frozen=True)
class Task:
    """One run: a trainer by name with its settings, the bench's settings, a seed, and when to stop; resolved once."""

    trainer: str
    trainer_settings: Settings
    bench: Settings
    network: NetworkSpec
    seed: int
    goals: tuple[float, ...]
    budget: int
    window: int = 1
    """Rounds whose median norm is judged."""
    schema: int = SCHEMA
    settings: ClaimSettings = field(init=False)
    id: str = field(init=False)
    _trainer: Trainer = field(init=False, repr=False, compare=False)
    _problem: Quadratic = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for goal in self.goals:
            if not 0 < goal < math.inf:
                raise BadInput(f"a goal for ||grad Phi|| must be a positive number such as 1e-2, not {goal}")
        if self.budget < 1:
            raise BadInput(f"a budget must be at least 1 SFO call per node, not {self.budget}")
        trainer = shelf.make(shelf.find("trainer", self.trainer, Trainer), self.trainer_settings)  # type: ignore[type-abstract]
        # For a method without y, a coercive bench, because without y an indefinite one has no minimum.
        problem = shelf.make(Quadratic, {"coercive": not trainer.has_dual, **self.bench})
        settings = ClaimSettings(
            bench=problem.settings(),
            network=self.network.settings(),
            trainer=trainer.source.identity() | trainer.settings(),
            goals=self.goals,
            budget=self.budget,
            seed=self.seed,
            window=self.window,
        )
        digest = files.digest([self.schema, EXPLOSION, settings.model_dump(mode="json")])[:12]
        resolved = {"settings": settings, "id": f"{trainer.source.name}-s{self.seed}-{digest}"}
        for name, value in (resolved | {"_trainer": trainer, "_problem": problem}).items():
            object.__setattr__(self, name, value)

    @property
    def method(self) -> str:
        """How results call the trainer."""
        return self._trainer.source.name

    def build_trainer(self) -> Trainer:
        """The trainer."""
        return self._trainer

    def build_problem(self) -> Quadratic:
        """The bench."""
        return self._problem


class MethodSpec(Strict):
    """A method: the paper's columns (formulas in LaTeX), and the settings of each variant that is measured."""

    name: str
    in_paper: bool = True
    sfo: str | None = None
    communication: str | None = None
    decentralized: bool
    objective: str
    LU: bool
    HR: bool
    AR: bool
    variants: dict[str, Settings] = Field(min_length=1)
    note: str | None = None

    @property
    def trainer(self) -> type[Trainer]:
        return shelf.find("trainer", self.name, Trainer)  # type: ignore[type-abstract]

    @property
    def title(self) -> str:
        return self.trainer.title


class GridSpec(Strict):
    """The step sizes that are tried, the seed that they are tried on, and the SFO calls that a trial may cost.

    At a side where a best point lies, the grid may grow by `extensions` more values, each twice or half the last one.
    """

    seed: int = Field(ge=0)
    budget: int = Field(ge=1)
    extensions: int = Field(default=0, ge=0)
    eta_y: list[PositiveFloat] = Field(min_length=1)
    ratio: list[PositiveFloat] = Field(min_length=1)


class JudgeSpec(Strict):
    """How a run is judged: to the end of its budget, by a running median, at step sizes that are stable.

    A goal is reached when the median norm of the last `window` rounds is at most the goal (of the last round where the
    gradients are full: nothing is noise there). LU and HR name the variants that the ticks are judged by.
    """

    window: int = Field(ge=1)
    LU: tuple[str, str]
    HR: str


class Spec(Strict):
    """The whole table."""

    title: str
    caption: str
    layout: Literal["claims"]
    schema_version: int = Field(default=SCHEMA, alias="schema", ge=1, le=SCHEMA)
    seeds: list[int] = Field(min_length=1)
    goals: list[PositiveFloat] = Field(min_length=1)
    heterogeneity: list[Number] = Field(min_length=2, max_length=2)
    budget: int = Field(ge=1)
    bench: Settings
    network: NetworkSpec
    server: NetworkSpec
    tune: GridSpec
    judge: JudgeSpec
    methods: list[MethodSpec] = Field(min_length=1)

    def places(self) -> Iterator["Place"]:
        """Every line of the table on each of its two benches."""
        for method in self.methods:
            for variant in method.variants:
                for heterogeneity in self.heterogeneity:
                    yield Place(method.name, variant, heterogeneity)

    def method(self, place: "Place") -> MethodSpec:
        """Of one line."""
        return next(method for method in self.methods if method.name == place.method)

    def task(self, place: "Place", steps: "Steps", seed: int) -> Task:
        """One run."""
        method = self.method(place)
        names = method.trainer.__dataclass_fields__
        x, y = ("eta_c", "eta_d") if "eta_c" in names else ("eta_x", "eta_y")
        sizes = {x: steps.eta_x} | ({y: steps.eta_y} if y in names else {})
        return Task(
            trainer=place.method,
            trainer_settings=method.variants[place.variant] | sizes,
            bench=self.bench | {"heterogeneity": place.heterogeneity},
            network=self.network if method.decentralized else self.server,
            seed=seed,
            goals=tuple(self.goals),
            budget=self.budget,
            window=self._window(method.variants[place.variant]),
            schema=self.schema_version,
        )

    def _window(self, settings: Mapping[str, object]) -> int:
        return self.judge.window if settings.get("batch", self.bench["m"]) < self.bench["m"] else 1


class Place(NamedTuple):
    """A line of the table on one bench."""

    method: str
    variant: str
    heterogeneity: float


class Steps(NamedTuple):
    """Step sizes; eta_y is not used by a method without y."""

    eta_x: float
    eta_y: float


def read(path: Path) -> Spec:
    """A specification from a TOML file, with every method and setting tried, so that no run fails later."""
    specification = validated(Spec, path, EXAMPLE)
    names = [method.name for method in specification.methods]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{path}: the method '{name}' comes twice; give it once, with several variants")
    for place in specification.places():
        specification.task(place, Steps(0.1, 0.1), specification.seeds[0])  # builds trainer and bench
    return specification

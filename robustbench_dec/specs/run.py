"""One run as it is asked for: its network, its parts, its budget and its curve; resolved once, with an id."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.find_attack import attack_named, label
from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.faults import Faults
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.parts import Settings
from robustbench_dec.problem import Problem
from robustbench_dec.specs.budget import Budget
from robustbench_dec.specs.toml import Number, Strict
from robustbench_dec.store.records import SCHEMA, CurveSettings, RunSettings
from robustbench_dec.trainer import Trainer


class NetworkSpec(Strict):
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

    def settings(self) -> Settings:
        """Every setting; a matrix file by its bytes, because its path does not tell what is in it."""
        settings: Settings = self.model_dump(mode="json", exclude={"matrix"})
        known = self.matrix is not None and self.matrix.is_file()
        return settings | {"matrix_sha256": files.sha256(self.matrix) if known and self.matrix else None}


class AttackSpec(Strict):
    """One attack over a grid of radii; everything but `name` and `eps` is a setting of that attack."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    eps: list[Number] = Field(min_length=1)

    @property
    def label(self) -> str:
        """How results call the attack."""
        return label(self.name)

    def build(self) -> list[Attack]:
        """The attack at each radius."""
        cls = attack_named(self.name)
        return [shelf.make(cls, {"eps": eps, **(self.model_extra or {})}) for eps in self.eps]


@dataclass(frozen=True)
class RunSpec:
    """One training run, and its id: a digest of all that decides its numbers.

    Problem, trainer, settings and id are resolved when it is built, and stay: a source file that is edited afterwards
    changes nothing under it. Sent to another process it is resolved again there, and refused if it is another run now.
    """

    problem: Settings
    network: NetworkSpec
    trainer: str
    trainer_settings: Settings
    rounds: int | None
    seed: int
    curve: list[AttackSpec]
    curve_points: int
    curve_examples: int
    sfo: int | None = None
    exchanges: int | None = None
    schema: int = SCHEMA
    protocol_sha256: str | None = None  # of the protocol that asks for it; decides nothing
    blind: bool = False  # whether no test image is looked at, because the run serves to choose settings
    settings: RunSettings = field(init=False)
    curve_attacks: tuple[tuple[str, Attack], ...] = field(init=False, repr=False, compare=False)
    data_set: str = field(init=False)  # its name, or the problem's where it makes its own data
    id: str = field(init=False)
    _problem: Problem = field(init=False, repr=False, compare=False)
    _trainer: Trainer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trainer = shelf.make(shelf.find("trainer", self.trainer, Trainer), self.trainer_settings)  # type: ignore[type-abstract]
        problem = self._resolved_problem()
        if trainer.has_dual and not problem.has_dual:
            raise BadInput(
                f"{problem.source.name} has no y, which {trainer.source.name} trains; a method without y, such as "
                "k_gt, can train on it"
            )
        problem_settings = problem.settings()
        if not trainer.has_dual:  # f(., 0) does not depend on the feasible set of y
            for name in problem.dual_settings:
                problem_settings.pop(name, None)
        attacks = tuple((spec.label, attack) for spec in self.curve for attack in spec.build())
        settings = RunSettings(
            problem=problem.source.identity() | problem_settings,
            network=self.network.settings(),
            trainer=trainer.source.identity() | trainer.settings(),
            **{name: self.budget.named.get(name) for name in ("rounds", "sfo", "exchanges")},
            seed=self.seed,
            curve=CurveSettings(
                attacks=tuple(
                    {"name": label, "source_sha256": attack.source_sha256} | attack.settings()
                    for label, attack in attacks
                ),
                points=self.curve_points,
                examples=self.curve_examples,
            ),
        )
        data_set = str(problem_settings.get("dataset", problem.source.name))
        digest = files.digest([self.schema, settings.model_dump(mode="json")])[:10]
        resolved = {
            "settings": settings,
            "curve_attacks": attacks,
            "data_set": data_set,
            "id": f"{data_set}-{trainer.source.key}-s{self.seed}-{digest}",
            "_problem": problem,
            "_trainer": trainer,
        }
        for name, value in resolved.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        return _again, (given, self.id)

    @property
    def problem_name(self) -> str:
        """The problem as it was asked for: a name on the shelf, or path/to/mine.py:Mine."""
        return str(self.problem.get("name", "universal"))

    @property
    def places(self) -> dict[str, str]:
        """The names or paths by which the problem's data and network were asked for."""
        return {name: str(self.problem[name]) for name in self._problem.places if self.problem.get(name)}

    @property
    def method(self) -> str:
        """How results call the trainer."""
        return self._trainer.source.key

    @property
    def budget(self) -> Budget:
        """When the run ends."""
        return Budget(self.rounds, self.sfo, self.exchanges)

    def build_problem(self) -> Problem:
        """The problem, without the data that another one may have loaded."""
        problem = copy.copy(self._problem)
        problem.release()
        return problem

    def build_trainer(self) -> Trainer:
        """The trainer."""
        return self._trainer

    def _resolved_problem(self) -> Problem:
        settings = {name: value for name, value in self.problem.items() if name != "name"}
        cls = shelf.find("problem", self.problem_name, Problem)  # type: ignore[type-abstract]
        if "nodes" in cls.__dataclass_fields__:  # a problem's own count is the network's
            settings.setdefault("nodes", self.network.nodes)
        return shelf.make(cls, settings)


def _again(given: dict[str, Any], run_id: str) -> RunSpec:
    run = RunSpec(**given)
    if run.id != run_id:
        raise BadInput(f"a source file of {run_id} was edited while a worker started; the same command starts anew")
    return run

"""A protocol: how the settings of a table are chosen, fixed before the first run. tables/protocol.md says it in words.

candidate   the baseline on each way to handle the data, a few short runs each; the most accurate one is taken
short       every method at `trials` points of one quasi-random sequence, for a share of the rounds
full        the `best` points of each method, from the start, for all rounds
"""

import hashlib
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from scipy.stats import qmc

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.specs.run import AttackSpec, NetworkSpec, RunSpec
from robustbench_dec.specs.table import Seeds
from robustbench_dec.specs.toml import Number, Strict, validated
from robustbench_dec.trainer import Trainer

Count = Annotated[int, Field(ge=1)]
RADIUS = "radius"
"""The coordinate of the training radius, a setting of the problem; the others are the trainer's."""


class TuningAttack(AttackSpec):
    """An attack on the first held-out images, over a grid of radii."""

    images: Count


class Candidate(Strict):
    """One way to handle the data."""

    title: str
    problem: Settings


class Block(Strict):
    """One data set: what is fixed, what is to be chosen for the baseline, the rounds, and the attacks."""

    title: str
    rounds: Count
    near: Annotated[float, Field(ge=0, description="accuracies that are as good as the best one")]
    radii: list[Number] = Field(min_length=1)
    problem: Settings
    candidates: list[Candidate] = Field(min_length=1)
    attacks: list[AttackSpec]
    tuning: list[TuningAttack]


class Protocol(Strict):
    """The whole of it."""

    layout: Literal["protocol"]
    text: str
    trials_file: str
    seed: int = Field(ge=0)
    table_seeds: Seeds
    radius_seeds: Seeds
    baseline: str
    candidate_trials: Count
    trials: Count
    sequence_seed: int
    digits: Count
    short: float = Field(gt=0, le=1)
    best: Count
    clean_within: float = Field(ge=0)
    box: dict[str, tuple[Number, Number]]
    network: NetworkSpec
    methods: dict[str, Settings]
    blocks: list[Block]
    sha256: str = Field(default="", exclude=True, description="of the text; not in the file")

    def points(self, block: Block, method: str, count: int) -> list[dict[str, float]]:
        """The first points of the sequence, as far as the method has the settings."""
        names = [*self.box, RADIUS]
        sequence = qmc.Sobol(len(names), scramble=True, rng=self.sequence_seed).random_base2(
            max(1, math.ceil(math.log2(self.trials)))
        )
        trainer = shelf.find("trainer", method, Trainer)  # type: ignore[type-abstract]
        has = {name for name in self.box if name in trainer.__dataclass_fields__}
        has |= {RADIUS} if trainer.has_dual else set()
        points = []
        for row in sequence[:count]:
            point: dict[str, float] = {}
            for name, u in zip(names, row.tolist(), strict=True):
                if name == RADIUS:
                    value = block.radii[min(int(u * len(block.radii)), len(block.radii) - 1)]
                else:
                    low, high = self.box[name]
                    value = float(f"{math.exp(math.log(low) + u * math.log(high / low)):.{self.digits}g}")
                if name in has:
                    point[name] = value
            points.append(point)
        return points

    def rounds(self, block: Block, full: bool) -> int:
        """Of a trial."""
        return block.rounds if full else max(1, round(block.rounds * self.short))

    def trial(self, block: Block, candidate: Candidate, method: str, point: dict[str, float], full: bool) -> RunSpec:
        """The run of one trial: blind, and without a curve."""
        return self.run(block, candidate, method, point, self.seed, self.rounds(block, full), blind=True)

    def run(
        self,
        block: Block,
        candidate: Candidate,
        method: str,
        point: dict[str, float],
        seed: int,
        rounds: int,
        **more: object,
    ) -> RunSpec:
        """One run under the protocol."""
        radius = {"eps": point[RADIUS]} if RADIUS in point else {}
        steps = {name: value for name, value in point.items() if name != RADIUS}
        common: dict[str, Any] = {"curve": [], "curve_points": 1, "curve_examples": 1000}
        return RunSpec(
            problem={**block.problem, **candidate.problem, **radius},
            network=self.network,
            trainer=method,
            trainer_settings={**self.methods[method], **steps},
            rounds=rounds,
            seed=seed,
            protocol_sha256=self.sha256,
            **(common | more),
        )


def read(path: Path) -> Protocol:
    """A protocol from a TOML file, with the sha256 of its text beside it."""
    protocol = validated(Protocol, path, "tables/protocol.toml")
    text = path.with_name(protocol.text)
    if not text.is_file():
        raise BadInput(f"{path} speaks of {text}, which is not there")
    if protocol.baseline not in protocol.methods:
        raise BadInput(f"{path}: the baseline '{protocol.baseline}' is none of: {', '.join(protocol.methods)}")
    digest = hashlib.sha256(text.read_bytes()).hexdigest()
    return protocol.model_copy(update={"sha256": digest})

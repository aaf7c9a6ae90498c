"""What a table asks for: a TOML file, validated; unknown keys are refused by name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, model_validator

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.specs.limits import LARGEST_SEED
from robustbench_dec.specs.run import AttackSpec, NetworkSpec, RunSpec
from robustbench_dec.specs.toml import Number, Strict, content, validated
from robustbench_dec.store.records import SCHEMA


def _once_each(seeds: list[int]) -> list[int]:
    if len({*seeds}) < len(seeds):
        raise ValueError(f"every seed should come once, not as in {seeds}")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0, le=LARGEST_SEED)]], Field(min_length=1), AfterValidator(_once_each)]


class BlockSpec(Strict):
    """One block of a table: one problem, several trainers, several attacks; `network` changes what it names.

    `titles` has names for its trained networks, by trainer, where the method's and the block's title do not say enough.
    """

    title: str
    titles: dict[str, str] = {}
    problem: Settings
    network: NetworkSpec | None = None
    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    seeds: Seeds | None = Field(default=None, description="those of the table's that it has, where not all")
    trainers: dict[str, Settings]
    problems: dict[str, Settings] = Field(default={}, description="what an entry's problem has otherwise")
    attacks: list[AttackSpec] = []
    curve: list[AttackSpec] = []


class Profile(Strict):
    """What a quicker version of a table changes."""

    seeds: Seeds | None = None
    blocks: list[BlockSpec] | None = None
    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    n_examples: int | None = Field(default=None, ge=1)
    curve_points: int | None = Field(default=None, ge=1)
    trainers: dict[str, Settings] = {}
    attacks: dict[str, Settings] = {}


class DrawnSpec(Strict):
    """Equal trials for every method, drawn once: `trials` points of a box, tried on one block for all of them.

    The box says log-uniform ranges for the step sizes in x and in y, whatever a method calls them. Taken is the point
    with the highest mean accuracy under the tuning attacks, on `images` held-out images.
    """

    block: str
    trials: int = Field(ge=1)
    box: dict[Literal["x", "y"], tuple[Number, Number]]
    sequence_seed: int = 2405
    digits: int = Field(default=3, ge=1)
    images: int | None = Field(default=None, ge=1)


class StepsSpec(Strict):
    """The box of step sizes that figures try for every entry, on a seed that they do not report; eta_y is over N.

    `extensions`: how often the box may grow at each end of eta_x, and of eta_y. `known` is what tuning has written of
    each data set (the best known Phi, the share of the larger class), read together with the step sizes.
    """

    seed: int = Field(ge=0)
    eta_x: list[PositiveFloat] = Field(min_length=2)
    eta_y: list[PositiveFloat] = Field(min_length=2)
    extensions: tuple[NonNegativeInt, NonNegativeInt] = (0, 0)
    known: dict[str, dict[str, Any]] = {}


class TuneSpec(Strict):
    """Short runs on a grid, judged on the validation part: settings of a trainer, or `problem.NAME` of its problem."""

    seed: int | None = Field(
        default=None, ge=0, description="the table's first unless given; one that it does not report"
    )
    rounds: int | None = Field(default=None, ge=1)
    sfo: int | None = Field(default=None, ge=1)
    exchanges: int | None = Field(default=None, ge=1)
    grids: dict[str, dict[str, dict[str, list[Any]]]] = {}
    attacks: dict[str, list[AttackSpec]] = {}
    drawn: "DrawnSpec | None" = None


class Spec(Strict):
    """A whole table."""

    title: str
    caption: str = ""
    layout: Literal["attacks", "networks", "figures", "methods", "radius"] = "attacks"
    schema_version: int = Field(
        default=SCHEMA, alias="schema", ge=1, le=SCHEMA, description="an earlier one where no run was made anew since"
    )
    seeds: Seeds = [0]
    n_examples: int | None = Field(default=None, ge=1)
    curve_points: int = Field(default=12, ge=1)
    curve_examples: int = Field(default=1000, ge=1)
    axes: list[Literal["sfo", "exchanges", "bytes_per_edge", "round"]] = Field(["sfo", "exchanges"], min_length=1)
    network: NetworkSpec = NetworkSpec()
    blocks: list[BlockSpec] = Field(min_length=1)
    profiles: dict[str, Profile] = {}
    tune: TuneSpec | None = None
    protocol: str | None = Field(default=None, description="the rules that governed its runs, such as protocol.md")
    protocol_sha256: str | None = Field(default=None, exclude=True, description="of these rules; not in the file")
    redefined: dict[str, str] = Field(
        default={}, description="attack -> the later rules that define it, such as protocol-uap.md"
    )
    redefined_sha256: dict[str, str] = Field(default={}, exclude=True, description="of these rules; not in the file")
    steps: StepsSpec | None = None
    paper: dict[str, dict[str, dict[str, float]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _fill_blocks(cls, content: object) -> Any:
        """What stands under [defaults] stands in every block that does not say otherwise."""
        if not isinstance(content, dict) or not isinstance(content.get("blocks"), list):
            return content
        rest = {name: value for name, value in content.items() if name != "defaults"}
        return rest | {"blocks": [_over(content.get("defaults"), block) for block in content["blocks"]]}

    def with_profile(self, name: str) -> "Spec":
        """This table with the changes of a profile. It says so, and stands under no protocol and beside no paper."""
        if name not in self.profiles:
            raise BadInput(f"no profile '{name}'; there are: {', '.join(self.profiles) or 'none'}")
        profile = self.profiles[name]
        shorter = profile.model_dump(include={"rounds", "sfo", "exchanges"}, exclude_none=True)
        blocks = []
        for block in profile.blocks or self.blocks:
            lighter = [attack.model_copy(update=profile.attacks.get(attack.name, {})) for attack in block.attacks]
            trainers = {name: {**given, **profile.trainers.get(name, {})} for name, given in block.trainers.items()}
            blocks.append(block.model_copy(update={**shorter, "trainers": trainers, "attacks": lighter}))
        words = f"Profile '{name}', a smoke test: it shows that all works here, and is no result. {self.caption}"
        return self.model_copy(
            update={
                "caption": words.rstrip(),
                "paper": {},
                "protocol": None,
                "protocol_sha256": None,
                "redefined": {},
                "redefined_sha256": {},
                "seeds": profile.seeds or self.seeds,
                "n_examples": profile.n_examples or self.n_examples,
                "curve_points": profile.curve_points or self.curve_points,
                "blocks": blocks,
                "steps": None if profile.blocks else self.steps,
            }
        )

    def runs(self) -> Iterator[tuple[BlockSpec, RunSpec]]:
        """Every run of the table, seed by seed, so that an interrupted table has whole seeds."""
        for seed in self.seeds:
            for block in self.blocks:
                for name in block.trainers if block.seeds is None or seed in block.seeds else ():
                    yield block, self.run(block, name, seed)

    def network_of(self, block: BlockSpec) -> NetworkSpec:
        """The table's network with the changes of a block."""
        changes = block.network
        if changes is None:
            return self.network
        return self.network.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})

    def run(self, block: BlockSpec, entry: str, seed: int, **changes: object) -> RunSpec:
        """One run of a block; `changes` replace its fields. "gt_gda cta" is the trainer gt_gda, entered once more."""
        fields: dict[str, Any] = {
            "problem": block.problem | block.problems.get(entry, {}),
            "network": self.network_of(block),
            "trainer": entry.partition(" ")[0] if ".py" not in entry else entry,
            "trainer_settings": block.trainers[entry],
            "rounds": block.rounds,
            "seed": seed,
            "curve": block.curve,
            "curve_points": self.curve_points,
            "curve_examples": self.curve_examples,
            "sfo": block.sfo,
            "exchanges": block.exchanges,
            "schema": self.schema_version,
            "protocol_sha256": self.protocol_sha256,
        }
        return RunSpec(**(fields | changes))


def _over(defaults: object, said: object) -> Any:
    """`said`, and what it leaves out of `defaults`, table by table."""
    if not isinstance(defaults, dict) or not isinstance(said, dict):
        return said
    return defaults | {name: _over(defaults.get(name), value) for name, value in said.items()}


Layout = Literal["attacks", "networks", "figures", "methods", "radius", "claims", "protocol"]
"""What a specification asks for; claims are read by specs/claims.py, protocols by specs/protocol.py."""


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
    if layout(path) == "protocol":
        raise BadInput(f"{path} is a protocol, not a table; `robustbench-dec trials {path}` carries it out")
    asked = validated(Spec, path, "tables/table2.toml")
    if asked.protocol is None and asked.redefined:
        raise BadInput(f"{path}: `redefined` changes attacks of a protocol, and it names none; add `protocol`")
    known = {attack.name for block in asked.blocks for attack in block.attacks}
    if unknown := asked.redefined.keys() - known:
        raise BadInput(f"{path}: `redefined` has {sorted(unknown)}, its blocks have the attacks {sorted(known)}")
    digests = {}
    for name in (asked.protocol, *asked.redefined.values()):
        if name is None:
            continue
        rules = path.with_name(name)
        if not rules.is_file():
            raise BadInput(f"{path} was made under {rules}, which is not there")
        digests[name] = files.sha256(rules)
    by_attack = {attack: digests[name] for attack, name in asked.redefined.items()}
    return asked.model_copy(
        update={"protocol_sha256": digests.get(asked.protocol or ""), "redefined_sha256": by_attack}
    )

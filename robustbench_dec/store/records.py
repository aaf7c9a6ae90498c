"""Records: what the store's files say, typed. A key that is not known is refused, and so is a record that lacks one.

RunRecord    a trained run: what was asked for, what it cost, how good it is, the digests of the files beside it
CellRecord   one attack at one radius on one run: every image's outcome, and all that decided it
ClaimRecord  one run of a table of claims: what a trainer paid on a problem whose solution is known
TableRecord  which runs and cells a rendered table asked for, and how it calls them
PublishedRecord  what of a folder its leaderboard shows, where that is not everything

Records are frozen, and are read and written sealed (see files.py) by the store alone.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from robustbench_dec import files
from robustbench_dec.architecture import Architecture
from robustbench_dec.attack import NORMS
from robustbench_dec.parts import Settings
from robustbench_dec.store.bits import count, unpack

SCHEMA = 2
"""Raised when a change of the code changes numbers: every id changes with it.

1: version 0.1.0. A table that was not made anew since says `schema = 1`, and finds its runs by the ids of that time.
"""


class Record(BaseModel):
    """A sealed JSON file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What a file says; Damaged if its bytes are not those that were written, or if they are no such record."""
        try:
            return cls.model_validate(files.read_sealed(path))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            what = {"missing": f"it lacks '{where}'", "extra_forbidden": f"it knows no '{where}'"}
            said = first["msg"].removeprefix("Value error, ")
            reason = what.get(first["type"], f"'{where}': {said.lower()}" if where else said)
            raise files.Damaged(path, f"is no {cls.__name__} of this version: {reason}") from error

    def write(self, path: Path) -> None:
        """Replace a file by this record."""
        files.write_bytes(path, self.content())

    def content(self) -> bytes:
        """The bytes that `write` writes."""
        return files.sealed(self.model_dump(mode="json"))


class Machine(Record):
    """What worked: its processor, and the instruction sets that PyTorch and oneDNN chose, which decide last bits."""

    cpu: str
    torch_isa: str
    onednn_isa: str
    system: str


class Made(Record):
    """What stands beside every number: versions, machine, threads, seconds, time and commit (see provenance.py)."""

    versions: dict[str, str]
    machine: Machine | None = Field(default=None, description="None where version 0.1.0 did not write it")
    threads: int
    wall_s: float
    created_utc: str
    git_commit: str | None


class CurveSettings(Record):
    """What a curve shows, at how many points, on how many images."""

    attacks: tuple[Settings, ...]
    points: int
    examples: int


class Costs(Record):
    """What a run has cost, as its ledger counts it (see ledger.py)."""

    nodes: int
    directed_edges: int
    sfo: int
    sfo_x: int
    sfo_y: int
    rounds: int
    exchanges: int
    messages: int
    bytes_per_edge: int
    all_reduces: int
    server_bytes: int | None = Field(description="None where they were not counted")

    @property
    def bytes_payload(self) -> int:
        """All bytes of all nodes, to neighbours and to and from a server."""
        return self.bytes_per_edge * self.directed_edges + (self.server_bytes or 0) * self.nodes


class RunSettings(Record):
    """All that decides a run's numbers, and what its id is a digest of.

    A part's settings stand beside its `name` on the shelf, or file.py:Class and the `source_sha256` of a user's file.
    """

    problem: Settings
    network: Settings
    trainer: Settings
    rounds: int | None
    sfo: int | None
    exchanges: int | None
    seed: int
    curve: CurveSettings


class Named(Record):
    """The names or paths by which the parts were asked for; they decide nothing, and lead back to a user's own file."""

    problem: str
    trainer: str
    model: str | None = None
    dataset: str | None = None


class Clean(Record):
    """Accuracies without attack: of x-bar and of the nodes on the images of a part, of x-bar on the held-out ones.

    The part is the test images; of a run that only serves to choose settings, the held-out ones.
    """

    part: Literal["test", "validation"] = "test"
    mean_model: float
    node_min: float
    node_mean: float
    node_max: float
    n_examples: int
    validation: float | None


class ClassifierRecord(Record):
    """What a run of a classifier says beside the costs: its data, its network, its accuracies."""

    classes: tuple[str, ...]
    data_digest: str
    architecture: Architecture
    clean: Clean
    consensus: float | None = Field(description="mean_i ||x_i - x-bar|| / ||x-bar||; None where it was not measured")
    holdings: tuple[tuple[int, ...], ...] | None = Field(
        default=None, description="node by node, its samples of each class; None where they were not counted"
    )


class RunRecord(Made):
    """A finished run."""

    schema_version: int
    id: str
    dataset: str
    method: str
    seed: int
    named: Named
    settings: RunSettings
    protocol_sha256: str | None = Field(default=None, description="of the protocol that asked for it, if one did")
    parameters: int
    spectral_rate: float
    ledger: Costs
    classifier: ClassifierRecord | None
    final: dict[str, int | float] = Field(description="the last row of the curve")
    checkpoint_sha256: str
    curve_sha256: str
    perturbation_sha256: str | None
    threads_used: tuple[int, ...]
    processes_used: tuple[int, ...]
    wire_bytes: int | None = Field(description="None on a simulated network, which has no wire")
    handed_bytes: int | None


class CellRecord(Made):
    """One attack at one radius on one run."""

    schema_version: int
    run_id: str
    dataset: str
    method: str
    seed: int
    attack: str
    submitted: Literal["", "user", "reference"]
    source_sha256: str | None
    settings: Settings
    norm: str
    eps: float
    universal: bool
    part: Literal["test", "validation"]
    n_examples: int
    batch_size: int
    max_passes: int | None = Field(default=None, description="images through the network per image, if limited")
    n_correct: int
    rarest_class: float
    clean_acc: float
    robust_acc: float
    bits: str
    clean_bits: str = Field(default="", description="as `bits`, without attack; empty in cells of version 0.1.0")
    attack_seed: int
    forwards: int
    backwards: int
    zero_gradients: float | None = Field(description="their share; None where no gradient was asked for or counted")
    flags: tuple[str, ...]
    trace: tuple[str, ...] = Field(default=(), description="ascent|step|loss|accuracy|images, see attacking/ways.py")
    answered: tuple[int, ...] = Field(default=(), description="images taken for each class under a universal y")
    protocol_sha256: str | None = Field(default=None, description="of the protocol that asked for it, if one did")
    checkpoint_sha256: str
    perturbation_sha256: str | None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        """What is counted twice is counted alike: a file can be sealed by anybody."""
        if self.norm not in NORMS or not self.eps >= 0 or self.n_examples < 1:
            raise ValueError(f"no attack has norm {self.norm}, eps {self.eps:g} and {self.n_examples} images")
        right = count(self.bits, self.n_examples)
        if self.n_correct != right or not _is_share(self.robust_acc, right, self.n_examples):
            raise ValueError(f"its accuracy is not that of its outcomes, {right} of {self.n_examples}")
        before = count(self.clean_bits, self.n_examples) if self.clean_bits else None
        if before is not None and not _is_share(self.clean_acc, before, self.n_examples):
            raise ValueError(f"its clean accuracy is not that of its outcomes, {before} of {self.n_examples}")
        return self

    @property
    def class_hit(self) -> tuple[int, float] | None:
        """The class that most images are taken for under a universal y, with their share."""
        most = max(self.answered, default=0)
        return (self.answered.index(most), most / self.n_examples) if most else None

    @property
    def right(self) -> Tensor:
        """Which images are right under the attack: (n_examples,) bool."""
        return unpack(self.bits, self.n_examples)

    @property
    def right_before(self) -> Tensor | None:
        """Which images are right without attack: (n_examples,) bool."""
        return unpack(self.clean_bits, self.n_examples) if self.clean_bits else None


def _is_share(accuracy: float, part: int, whole: int) -> bool:
    return abs(accuracy - part / whole) < 1e-6


class DivergedRecord(Record):
    """A run that left the finite numbers: when, and with which step sizes."""

    id: str
    sentence: str


class ClaimSettings(Record):
    """All that decides the numbers of a table of claims' run, and what its id is a digest of."""

    bench: Settings
    network: Settings
    trainer: Settings
    goals: tuple[float, ...]
    budget: int
    seed: int
    window: int = 1


class ClaimRecord(Made):
    """What a trainer paid until it reached each goal, None where it did not, and where it stayed."""

    schema_version: int
    id: str
    method: str
    seed: int
    settings: ClaimSettings
    measure: str
    l: float  # noqa: E741 (the paper's letter)
    mu: float
    kappa: float
    spectral_rate: float
    ended: str
    reached: dict[str, dict[str, int] | None]
    floor: float | None
    ledger: Costs
    curve_columns: tuple[str, ...]
    curve: tuple[tuple[int, int, float | None], ...]


class TableRecord(Record):
    """A rendered table: its title, the runs that it asked for with its name for each, and the paper's numbers."""

    title: str
    caption: str
    networks: dict[str, str] = Field(description="run id -> what the table calls the network")
    cells: dict[str, tuple[str, ...]] = Field(default={}, description="run id -> the cells that it asked for")
    paper: dict[str, dict[str, dict[str, float]]] = Field(description="data set -> method -> fgsm@0.1 -> percent")


class PublishedRecord(Record):
    """What a leaderboard shows of the cells beside it: those of some tables, and single ones, run id -> cells."""

    tables: tuple[str, ...] = Field(default=(), description="stems")
    own: dict[str, tuple[str, ...]] = Field(default={}, description="the suite's, which no table asks for")
    users: dict[str, tuple[str, ...]] = Field(default={}, description="what users brought")


class Card(Record):
    """A network of the zoo: its name, the sha256 of its file, and the run that it is the average of."""

    name: str
    network_sha256: str
    run: RunRecord

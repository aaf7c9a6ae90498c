"""Attack a finished run: one cell per attack and radius, computed where it is missing or damaged."""

import functools
import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from torch import nn

from robustbench_dec import bars as progress_bars
from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack, Shift
from robustbench_dec.attacking import ways
from robustbench_dec.attacking.evaluate import Limits, attacked
from robustbench_dec.attacking.find_attack import attack_named, label
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.problem import Classifier
from robustbench_dec.running.attack_journal import Kept
from robustbench_dec.store import locks, provenance
from robustbench_dec.store.bits import pack
from robustbench_dec.store.checkpoint import perturbation_bytes
from robustbench_dec.store.records import SCHEMA, CellRecord
from robustbench_dec.store.results import Cell, CellKey, Run

BATCH_SIZE = 500
"""Images that are attacked at once; every batch has a random state of its own, so this decides numbers a little."""


@dataclass(frozen=True)
class Request:
    """One cell that is wanted of a run: an attack, by the name that it was asked for, on some images.

    `submitted` tells on whose wish the cell is made, where that is not a table's. Its key is computed once; sent to
    another process, the attack is built again there, and refused if it is another one now.
    """

    name: str
    attack: Attack
    seed: int
    n_examples: int | None = None
    part: Literal["test", "validation"] = "test"
    batch_size: int = BATCH_SIZE
    submitted: Literal["", "user", "reference"] = ""
    schema: int = SCHEMA
    protocol_sha256: str | None = None
    limits: Limits = field(default_factory=Limits)
    key: CellKey = field(init=False)

    def __post_init__(self) -> None:
        for name, value in self.attack.settings().items():
            if not files.can_hold({name: value}):
                raise BadInput(
                    f"{self.label} has the setting {name} = {value!s:.60}, which no cell can hold; finite numbers, "
                    "text in UTF-8 and lists of them would do"
                )
        what = [self.schema, self.label, self.attack.source_sha256, self.attack.settings()]
        images = [self.n_examples, self.seed, self.part, self.batch_size]
        limit = [] if self.limits.passes is None else [{"max_passes": self.limits.passes}]
        object.__setattr__(self, "key", CellKey.of(self.label, self.attack.eps, [*what, *images, *limit]))

    @property
    def label(self) -> str:
        """How results call the attack: never by the path of a file."""
        return label(self.name)

    def groundwork(self) -> "Request | None":
        """The cell from whose perturbation this one starts."""
        ground = self.attack.groundwork()
        return None if ground is None else replace(self, attack=ground)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.attack.recipe()
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.init and part.name != "attack"}
        return _again, (given, settings, self.key)


def _again(given: dict[str, Any], settings: Settings, key: CellKey) -> Request:
    request = Request(attack=shelf.make(attack_named(given["name"]), settings), **given)
    if request.key != key:
        raise BadInput(f"the attack '{request.name}' was edited while a worker started; the same command starts anew")
    return request


def requests(attacks: Iterable[tuple[str, Attack]], seed: int, **common: Any) -> list[Request]:
    """A cell for each of some named attacks, on the same images."""
    return [Request(name, attack, seed, **common) for name, attack in attacks]


def at_most(n_examples: int | None, problem: Classifier) -> int | None:
    """So many test images as were asked for, or all that there are: the same images are the same cell."""
    return None if n_examples is None else min(n_examples, len(problem.images.test_labels))


def attack(
    run: Run,
    wanted: Sequence[Request],
    *,
    problem: Classifier,
    device: str = "cpu",
    model: nn.Module | None = None,
    progress: bool = True,
    wait: bool = True,
) -> list[CellRecord]:
    """The cells of a finished run that are wanted, computed where they are missing or damaged.

    `model` is its average network where the checkpoint lies elsewhere. Batches that are done when an attack raises are
    kept, and are not attacked again. Cells that other processes compute are waited for; or else they are left to them,
    the others are computed, and the whole is Busy.
    """
    records, busy, scenes = [], None, _Scenes(problem)
    below = functools.partial(attack, run, problem=problem, device=device, progress=progress, wait=wait)
    for request in progress_bars.bar(wanted, desc=f"attacks on {run.id}", unit="cell", show=progress):
        cell = run.cell(request.key)
        record = cell.usable()
        if record is None:
            try:
                with cell.claim(wait=wait):
                    record = cell.usable(announce=True)
                    if record is None:
                        model = model or run.model(device)
                        ground = request.groundwork()
                        start = None
                        if ground is not None:  # a cell of its own, which other radii start from too
                            below([ground], model=model)
                            start = _start(run.cell(ground.key))
                        record = _computed(cell, request, scenes, model, progress, start)
            except locks.Busy as error:
                busy = error
                continue
        records.append(record)
    run.tidy()
    if busy is not None:
        raise busy
    return records


def _start(ground: Cell) -> Shift:
    """What the groundwork of an attack found."""
    y = ground.perturbation()
    assert y is not None  # a groundwork is universal
    return Shift(y, eps=ground.record.eps)


class _Scenes:
    """The scene of the last request, kept for as long as the next ones ask for the same images."""

    def __init__(self, problem: Classifier) -> None:
        self.problem = problem
        self._last: tuple[tuple[object, ...], Scene] | None = None

    def of(self, request: Request, model: nn.Module) -> Scene:
        key = request.part, request.n_examples, request.seed, request.batch_size
        if self._last is None or self._last[0] != key:
            images = getattr(self.problem.images, f"{request.part}_images")[: request.n_examples]
            labels = getattr(self.problem.images, f"{request.part}_labels")[: request.n_examples]
            self._last = key, Scene(model, images, labels, seed=request.seed, batch_size=request.batch_size)
        return self._last[1]


def _computed(
    cell: Cell, request: Request, scenes: _Scenes, model: nn.Module, progress: bool, start: Shift | None
) -> CellRecord:
    """Attack, and write all that decides the number; a universal perturbation is kept beside the cell."""
    began = time.perf_counter()
    run, attack = cell.run.record, request.attack
    if run.classifier is None:
        raise BadInput(f"{run.id} has no images to attack; take a run of a classifier")
    scene, images = scenes.of(request, model), scenes.problem.images
    labels = scene.labels
    outcome = attacked(
        attack,
        scene,
        train=(images.train_images, images.train_labels),
        progress=cell.stem if progress else None,
        parts=Kept(cell.batches, [run.checkpoint_sha256, len(labels)]),
        limits=request.limits,
        start=start,
    )
    y = None if outcome.perturbation is None else perturbation_bytes(outcome.perturbation)
    record = CellRecord(
        schema_version=SCHEMA,
        run_id=run.id,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        attack=request.label,
        submitted=request.submitted,
        source_sha256=attack.source_sha256,
        settings=attack.settings(),
        norm=outcome.ball.norm,
        eps=outcome.ball.eps,
        universal=attack.universal,
        part=request.part,
        n_examples=len(labels),
        batch_size=request.batch_size,
        max_passes=request.limits.passes,
        n_correct=int(outcome.robust.sum()),
        rarest_class=labels.bincount(minlength=len(run.classifier.classes)).min().item() / len(labels),
        clean_acc=outcome.clean_accuracy,
        robust_acc=outcome.robust_accuracy,
        bits=pack(outcome.robust),
        clean_bits=pack(outcome.clean),
        attack_seed=request.seed,
        forwards=outcome.forwards,
        backwards=outcome.backwards,
        zero_gradients=outcome.zero_gradients,
        flags=tuple(outcome.flags),
        trace=ways.written(outcome.trace),
        answered=outcome.answered,
        protocol_sha256=request.protocol_sha256,
        checkpoint_sha256=run.checkpoint_sha256,
        perturbation_sha256=None if y is None else hashlib.sha256(y).hexdigest(),
        **provenance.stamp(time.perf_counter() - began),
    )
    cell.write(record, y)
    return record

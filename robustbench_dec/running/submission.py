"""Submission: what somebody sends is measured here, held against their claim, and only then added to results.

    images    one forward pass, budget and box checked; nothing of theirs is executed
    attack    run anew on the network of the zoo, in a process of its own
    network   its clean accuracy by a forward pass; its source, if it has one, is executed to build it

Everything is measured in a folder that is thrown away; a claim that does not hold leaves no trace.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from robustbench_dec import files, shelf
from robustbench_dec.attacking.evaluate import Limits
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.errors import BadInput
from robustbench_dec.running import cells
from robustbench_dec.running.scoring import Images, score
from robustbench_dec.running.verify import MOST_FLIPS
from robustbench_dec.specs.submission import Submission
from robustbench_dec.store import zoo
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Cell, Results

SLACK = {"images": MOST_FLIPS, "attack": 0.005, "network": MOST_FLIPS}
"""By how much a claimed accuracy may differ: another kind of CPU flips an image here and there, and an attack that
takes many steps goes a slightly other way there."""


class Added(NamedTuple):
    """What was measured and added: a cell of a network, or a network."""

    entry: zoo.Entry
    accuracy: float
    images: int
    record: CellRecord | None
    written: list[Path]


def add(
    submission: Submission,
    results: Results,
    stored: Results,
    *,
    device: str = "cpu",
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> Added:
    """Measure it, hold its claim against that, and add it to `results`; networks are looked for in both."""
    said = results.submission(submission.folder.resolve().name, submission.said)
    if submission.claim.kind == "network":
        added = _network(submission, results, stored, device)
    else:
        # By its name: a path could lead to a network of the submission's own, whose card says that it is this one.
        entries = zoo.entries(str(submission.claim.model), results.zoo, stored.zoo, zoo.home())
        if len(entries) != 1:
            raise BadInput(
                f"a submission is about one network, but '{submission.claim.model}' names {len(entries)}; name one"
            )
        (entry,) = entries
        with tempfile.TemporaryDirectory(prefix="robustbench-dec-") as scratch:
            cell = _cell(submission, entry, Results(Path(scratch)), device, limits)
            record = cell.record
            hold(submission, record.robust_acc, record.n_examples)
            home = results.run(entry.record.id)
            there = home.cell(cell.stem).usable() if home.exists else None
            if there is not None and there.bits != record.bits:
                raise BadInput(f"{home.folder} has other outcomes in its cell {cell.stem}; both cannot stand there")
            cell.copy_to(home)
        added = Added(entry, record.robust_acc, record.n_examples, record, home.cell(cell.stem).files)
    return added._replace(written=[*added.written, *files.write_all(said)])


def _cell(submission: Submission, entry: zoo.Entry, scratch: Results, device: str, limits: Limits) -> Cell:
    """The cell of images or of an attack, measured in a home of its own."""
    claim, home = submission.claim, scratch.run(entry.record.id)
    assert claim.eps is not None  # a claim of these kinds has one
    if claim.kind == "images":
        score(Images(submission.path, str(claim.norm), claim.eps, claim.n_examples), entry, scratch, device=device)
    else:
        made = shelf.make(attack_named(submission.part), {"eps": claim.eps, **(claim.settings or {})})
        home.adopt(entry.record)
        problem = entry.problem()
        count = cells.at_most(claim.n_examples, problem)
        request = cells.Request(submission.part, made, entry.record.seed, count, submitted="user", limits=limits)
        cells.attack(home, [request], problem=problem, device=device, model=entry.model(device))
    (cell,) = home.cells()
    return cell


def _network(submission: Submission, results: Results, stored: Results, device: str) -> Added:
    claim, entry = submission.claim, zoo.from_path(submission.path)
    if entry.record.classifier is None:
        raise BadInput(f"{submission.path} is no classifier of images; take a run of one")
    images = entry.problem().images
    count = min(claim.n_examples, len(images.test_labels))
    scene = Scene(entry.model(device), images.test_images[:count], images.test_labels[:count])
    right = torch.cat([scene.clean(number).right.cpu() for number in scene.batches])
    accuracy = right.double().mean().item()
    hold(submission, accuracy, count)
    clean = entry.record.classifier.clean
    if clean.part == "test" and clean.n_examples == count and abs(clean.mean_model - accuracy) > MOST_FLIPS + 1e-9:
        raise BadInput(
            f"the card of {submission.path} tells {clean.mean_model:.2%} clean, but the network gets {accuracy:.2%} of "
            f"the {count:,} test images right; nothing was added"
        )
    zoo.check_new(entry, str(claim.name), results, stored)
    added = zoo.copy(entry, str(claim.name), results.zoo)
    return Added(added, accuracy, count, None, added.files)


def hold(submission: Submission, accuracy: float, images: int) -> None:
    """Refuse a claim that is not what was measured."""
    claim = submission.claim
    if abs(accuracy - claim.accuracy) > max(SLACK[claim.kind], 0.5 / images) + 1e-9:  # to the nearest image, at least
        raise BadInput(
            f"{submission.folder} claims an accuracy of {claim.accuracy:.2%}, but {accuracy:.2%} of {images:,} images "
            f"were right here; nothing was added"
        )

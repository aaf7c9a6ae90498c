"""Finish a run: measure what came out, and hand its record and its files to the store."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from robustbench_dec.attack import accuracy
from robustbench_dec.ledger import Ledger
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.specs.table import RunSpec
from robustbench_dec.store import checkpoint
from robustbench_dec.store.provenance import Stamp
from robustbench_dec.store.records import SCHEMA, ClassifierRecord, Clean, Costs, Named, RunRecord
from robustbench_dec.store.results import Run, RunFiles
from robustbench_dec.trainer import Trainer

MOST_SHOWN = 100
"""Nodes whose labels a record tells."""


class Spent(NamedTuple):
    """What a run has cost, and who worked on it."""

    ledger: Ledger
    spectral_rate: float
    threads: tuple[int, ...]  # every number of threads
    processes: tuple[int, ...]  # every number of processes that shared its nodes; 1 is the simulator too
    wire: tuple[int, int] | None  # bytes on the wire and all that were handed over; None in the simulator
    made: Stamp


def finish(
    home: Run,
    run: RunSpec,
    problem: Problem,
    trainer: Trainer,
    stacks: Mapping[str, Tensor],
    curve: Sequence[Mapping[str, int | float]],
    spent: Spent,
    still_here: Callable[[], None],
) -> None:
    """Write a finished run; measuring takes a while, in which others hear that this process is `still_here`."""
    classifier = problem if isinstance(problem, Classifier) else None
    kept = {name: stacks[name] for name in ("X", "Y")[: 1 + trainer.has_dual]}
    y = None
    if classifier is not None and trainer.has_dual:
        y = checkpoint.perturbation_bytes(stacks["Y"].mean(0).view(classifier.images.shape))
    content = RunFiles(
        checkpoint.checkpoint_bytes(kept, None if classifier is None else classifier.architecture),
        _as_csv(curve).encode(),
        y,
    )
    wire_bytes, handed_bytes = spent.wire or (None, None)
    record = RunRecord(
        schema_version=SCHEMA,
        id=run.id,
        dataset=run.data_set,
        method=run.method,
        seed=run.seed,
        named=Named(problem=run.problem_name, trainer=run.trainer, **run.places),
        settings=run.settings,
        protocol_sha256=run.protocol_sha256,
        parameters=stacks["X"].shape[1],
        spectral_rate=spent.spectral_rate,
        ledger=Costs(**spent.ledger.row()),
        classifier=None if classifier is None else _classifier(classifier, stacks["X"], run, still_here),
        final=dict(curve[-1]),
        threads_used=spent.threads,
        processes_used=spent.processes,
        wire_bytes=wire_bytes,
        handed_bytes=handed_bytes,
        **content.digests(),
        **spent.made,
    )
    home.write(record, content)


def _classifier(problem: Classifier, X: Tensor, run: RunSpec, still_here: Callable[[], None]) -> ClassifierRecord:
    """Its data and who held them, its network, the accuracies of x-bar and of the nodes, how far they are from it."""
    images, nodes = problem.images, []
    held_out = images.validation_images, images.validation_labels
    judged = held_out if run.blind else (images.test_images, images.test_labels)
    for x in X:
        nodes.append(accuracy(problem.module(x), *judged))
        still_here()
    x_bar = X.mean(0)
    model = problem.module(x_bar)
    return ClassifierRecord(
        classes=tuple(images.classes),
        data_digest=images.digest,
        architecture=problem.architecture,
        clean=Clean(
            part="validation" if run.blind else "test",
            mean_model=accuracy(model, *judged),
            node_min=min(nodes),
            node_mean=sum(nodes) / len(nodes),
            node_max=max(nodes),
            n_examples=len(judged[1]),
            validation=accuracy(model, *held_out) if len(images.validation_labels) else None,
        ),
        consensus=((X - x_bar).norm(dim=1).mean() / x_bar.norm()).item(),
        holdings=_holdings(problem, len(X), run.seed),
    )


def _holdings(problem: Classifier, nodes: int, seed: int) -> tuple[tuple[int, ...], ...] | None:
    """Node by node, its samples of each class; not of more nodes than a picture can show."""
    if nodes > MOST_SHOWN:
        return None
    *_, labels = problem.shards(nodes, seed)
    return tuple(tuple(row.bincount(minlength=len(problem.images.classes)).tolist()) for row in labels.cpu())


def _as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

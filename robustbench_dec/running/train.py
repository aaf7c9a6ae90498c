"""Train one run and attack it, writing one folder:

results/runs/<id>/checkpoint.safetensors   X (n, d), Y (n, q) if there is one, and the network's card
                  perturbation.safetensors the mean trained y as an image
                  curve.csv                accuracy and costs over the rounds
                  run.json                 settings, ledger, accuracies; written last: a run that has it is done
                  attacks/*.json           one cell per attack and radius
                  resume.safetensors       where an unfinished run stands, and resume-former.safetensors, where it
                                           stood before; both gone when it is done

JSON files are sealed (see files.py) and tell the sha256 of the files beside them, so that a damaged one is found out.
Who trains a run or computes a cell claims it (see locks.py): several processes may work in one folder.
"""

import contextlib
import csv
import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from torch import Tensor

from robustbench_dec import bars, files
from robustbench_dec.attack import accuracy
from robustbench_dec.network import Network
from robustbench_dec.networks.crew import Alone, Crew, OnRanks, Order
from robustbench_dec.networks.ranks import Ranks
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.running.curve import Curve
from robustbench_dec.running.journal import Journal
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs.table import SCHEMA, RunSpec
from robustbench_dec.store import locks, provenance
from robustbench_dec.store import results as store
from robustbench_dec.trainer import Trainer


def train(
    run: RunSpec,
    results: Path,
    *,
    device: str = "cpu",
    save_seconds: float = 20.0,
    save_rounds: int | None = None,
    progress: bool = True,
    checkpoint: bool = False,
    wait: bool = True,
    ranks: Ranks | None = None,
) -> Path:
    """Train a run, or finish it, or find it finished; its folder.

    A finished run whose checkpoint is absent (a fresh clone) is left alone, unless the `checkpoint` is asked for. One
    that another process trains is waited for, or is Busy. The journal is written every `save_seconds`, and every
    `save_rounds` where they are given. With `ranks`, these processes share the nodes; the first alone claims the run,
    measures and writes.
    """
    folder = results / "runs" / run.id
    how = _Habits(device, save_seconds, save_rounds or math.inf, progress)
    crew = Alone() if ranks is None else OnRanks(ranks, run.network.nodes)
    crew.meet(run.id)
    if crew.writes:
        _lead(run, folder, how, crew, checkpoint, wait)
    elif crew.await_order() is Order.TRAIN:
        _train(run, folder, how, crew)
        crew.await_order()  # rank 0 is done
    return folder


def _lead(run: RunSpec, folder: Path, how: "_Habits", crew: Crew, checkpoint: bool, wait: bool) -> None:
    """What the writing process does: claim the run, say what there is to do, do it with the others, tidy up."""
    with contextlib.ExitStack() as held:
        with crew.deciding():
            unfinished = not store.finished(folder, checkpoint)
            if unfinished:
                held.enter_context(_nothing_left_of_failures(folder))
                held.enter_context(locks.claim(folder / "run.json", wait=wait, meanwhile=crew.waiting))
                files.sweep(folder)
                unfinished = not store.finished(folder, checkpoint, announce=True)  # the former holder may have
        crew.order(Order.TRAIN if unfinished else Order.NOTHING)
        if unfinished:
            _train(run, folder, how, crew)
            crew.order(Order.DONE)
    if not unfinished:
        store.tidy(folder)


@contextlib.contextmanager
def _nothing_left_of_failures(folder: Path) -> Iterator[None]:
    """Remove the folder of a run that cannot be, if it is empty."""
    try:
        yield
    except locks.Busy:
        raise
    except Exception:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


class _Habits(NamedTuple):
    """What decides no number."""

    device: str
    save_seconds: float
    save_rounds: float
    progress: bool


def _train(run: RunSpec, folder: Path, how: _Habits, crew: Crew) -> None:
    """Train a run from its journal or from the start, and write its files."""
    began = time.perf_counter()
    problem, trainer = run.build_problem(), run.build_trainer()
    net = run.network.connect(run.seed, crew.connect)
    oracle = Oracle(problem, net.nodes, run.seed, net.ledger, how.device, net.rows)
    journal = Journal(folder / "resume.safetensors", run.id, trainer, oracle, net, crew)
    standing = journal.restore()
    effort = standing.effort.here(crew)
    curve = Curve(run, oracle, crew, standing.curve)
    pulse = _Pulse(oracle, crew, how)
    shown = how.progress and crew.writes
    with bars.bar(total=run.budget.rounds, initial=net.ledger.rounds, desc=run.id, unit="round", show=shown) as bar:
        for at in rounds(trainer, oracle, net, run.budget, Watch(pulse), standing.at):
            bar.update(at.costs["rounds"] - bar.n)
            if not crew.writes:
                problem.release()
            if pulse.save:
                journal.save(at, curve.rows, effort.after(time.perf_counter() - began))
                pulse.saved()
            if curve.due(at):
                measured = {name: f"{value:.3g}" for name, value in curve.add(at).items()}
                bar.set_postfix(loss=f"{at.value:.3f}", done=f"{run.budget.share(at.costs):.0%}", **measured)
    effort = effort.after(time.perf_counter() - began)
    stacks = {name: crew.gather(Z) for name, Z in at.state._asdict().items() if name in ("X", "Y")}
    ends = {"final_train_loss": at.value, **provenance.stamp(effort.seconds), "threads_used": list(effort.threads)}
    if effort.processes != (1,):  # a simulated network has no wire
        ends |= {"processes_used": list(effort.processes), "wire_bytes": crew.total(crew.wire_bytes)}
        ends |= {"handed_bytes": crew.total(crew.handed_bytes)}
    if crew.writes:
        whole = {name: Z for name, Z in stacks.items() if Z is not None}
        _finish(folder, run, problem, trainer, whole, curve.rows, net, ends, crew)
        journal.remove()


class _Pulse:
    """Asked after every round: the mean loss of all nodes, NaN if x is not finite; and whether it is time to save.

    The crew agrees on both at once.
    """

    def __init__(self, oracle: Oracle, crew: Crew, how: _Habits) -> None:
        self._oracle, self._crew, self._how = oracle, crew, how
        self.save = False
        self.saved()

    def saved(self) -> None:
        """The journal was written now."""
        self._saved = time.perf_counter()

    def __call__(self, state: Any) -> float:
        losses, done = self._oracle.losses, self._oracle.ledger.rounds
        if not bool(state.X.isfinite().all()):
            losses = losses * math.nan
        due = time.perf_counter() - self._saved > self._how.save_seconds or done % self._how.save_rounds == 0
        losses, self.save = self._crew.agree(losses, due and done > 0, done)
        return losses.mean().item()


def _finish(
    folder: Path,
    run: RunSpec,
    problem: Problem,
    trainer: Trainer,
    stacks: Mapping[str, Tensor],
    curve: list[dict[str, Any]],
    net: Network,
    told: Mapping[str, Any],
    crew: Crew,
) -> None:
    """Write a finished run's files, run.json last, with what else is to be `told` there."""
    perturbation = folder / "perturbation.safetensors"
    tensors = {name: stacks[name].cpu().contiguous() for name in ("X", "Y")[: 1 + trainer.has_dual]}
    card: dict[str, Any] = {}
    if isinstance(problem, Classifier):
        card = {"architecture": json.dumps(problem.architecture.as_json())}
        if trainer.has_dual:
            y = stacks["Y"].mean(0).cpu().view(problem.images.shape).contiguous()
            files.write_bytes(perturbation, safetensors.torch.save({"y": y}))
    checkpoint = folder / "checkpoint.safetensors"
    files.write_bytes(checkpoint, safetensors.torch.save(tensors, card))
    files.write_text(folder / "curve.csv", _as_csv(curve))
    files.write_sealed(
        folder / "run.json",
        {
            "schema": SCHEMA,
            "id": run.id,
            "dataset": run.data_set,
            "method": Path(run.trainer.partition(":")[0]).stem,
            "seed": run.seed,
            "settings": run.settings(),
            "parameters": stacks["X"].shape[1],
            "spectral_rate": net.spectral_rate,
            "ledger": net.ledger.row(),
            **(
                _classifier_record(problem, stacks["X"], crew.waiting)
                if isinstance(problem, Classifier)
                else {"final": curve[-1]}
            ),
            "checkpoint_sha256": files.sha256(checkpoint),
            "curve_sha256": files.sha256(folder / "curve.csv"),
            "perturbation_sha256": files.sha256(perturbation) if perturbation.is_file() else None,
            **told,
        },
    )


def _classifier_record(problem: Classifier, X: Tensor, still_here: Callable[[], None]) -> dict[str, Any]:
    """What run.json tells of a classifier: its data, its network, the accuracies of x-bar and of the nodes, and
    how far the nodes are from x-bar: consensus = mean_i ||x_i - x-bar|| / ||x-bar||."""
    images = problem.images
    nodes = []
    for x in X:
        nodes.append(accuracy(problem.module(x), images.test_images, images.test_labels))
        still_here()
    x_bar = X.mean(0)
    model = problem.module(x_bar)
    held_out = images.validation_images, images.validation_labels
    return {
        "classes": list(images.classes),
        "data_digest": images.digest,
        "architecture": problem.architecture.name,
        "architecture_card": problem.architecture.as_json(),
        "clean": {
            "mean_model": accuracy(model, images.test_images, images.test_labels),
            "node_min": min(nodes),
            "node_mean": sum(nodes) / len(nodes),
            "node_max": max(nodes),
            "n_examples": len(images.test_labels),
            "validation": accuracy(model, *held_out) if len(images.validation_labels) else None,
        },
        "consensus": ((X - x_bar).norm(dim=1).mean() / x_bar.norm()).item(),
    }


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

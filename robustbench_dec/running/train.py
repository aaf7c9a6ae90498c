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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import accuracy
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.errors import Diverged
from robustbench_dec.network import Network
from robustbench_dec.networks.crew import Alone, Crew, OnRanks, Order
from robustbench_dec.networks.ranks import Ranks
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Batch, Classifier, Problem
from robustbench_dec.specs.table import SCHEMA, RunSpec
from robustbench_dec.store import locks, provenance
from robustbench_dec.store import results as store
from robustbench_dec.trainer import Trainer

EXPLOSION = 50.0
"""A training loss this many times the smallest one will not come back."""


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
    journal = Journal(folder / "resume.safetensors", run, trainer)
    state, loss, smallest, curve, seconds_before, threads, processes = journal.restore(oracle, net, crew)
    threads = sorted({*threads, torch.get_num_threads()})
    processes = sorted({*processes, crew.size})
    measure = _gauge(problem, run, oracle.shards if crew.size == 1 else None) if crew.writes else None
    budget, shown = run.budget, how.progress and crew.writes
    bar = progress_bars.bar(total=budget.rounds, initial=net.ledger.rounds, desc=run.id, unit="round", show=shown)
    saved = time.perf_counter()
    with bar:
        if state is None:
            state = trainer.init(oracle, net)
            loss = crew.agree(oracle.losses, False, 0)[0].mean().item()  # NaN if it starts without a gradient
            smallest = loss
        if not crew.writes:
            problem.release()
        while True:
            costs = net.ledger.row()
            passed = budget.passed(costs, run.curve_points)
            if not curve or passed != budget.passed({"rounds": curve[-1]["round"]} | curve[-1], run.curve_points):
                X = crew.gather(state.X)
                measured = {} if measure is None or X is None else measure(X.mean(0))
                curve.append({"round": costs["rounds"], **_running(costs), "train_loss": loss, **measured})
                told = {name: f"{value:.3g}" for name, value in measured.items()}
                bar.set_postfix(loss=f"{loss:.3f}", done=f"{budget.share(costs):.0%}", **told)
            if budget.spent(costs):
                break
            state = trainer.step(state, oracle, net)
            net.ledger.rounds += 1
            bar.update()
            finite = bool(state.X.isfinite().all())
            due = time.perf_counter() - saved > how.save_seconds or net.ledger.rounds % how.save_rounds == 0
            seen = oracle.losses if finite else oracle.losses * math.nan
            losses, due = crew.agree(seen, due, net.ledger.rounds)
            loss = losses.mean().item()
            smallest = min(smallest, loss) if math.isfinite(smallest) else loss
            if not loss < EXPLOSION * max(smallest, 1.0):
                raise Diverged(
                    f"training diverged in round {net.ledger.rounds} (loss {loss:.3g}) with "
                    f"{_step_sizes(trainer)}; smaller step sizes would do"
                )
            if due:
                seconds = seconds_before + time.perf_counter() - began
                journal.save(Standing(state, loss, smallest, curve, seconds, threads, processes), oracle, net, crew)
                saved = time.perf_counter()
    ends: dict[str, Any] = {"final_train_loss": loss, **provenance.stamp(seconds_before + time.perf_counter() - began)}
    ends |= {"threads_used": threads}
    stacks = {name: crew.gather(Z) for name, Z in state._asdict().items() if name in ("X", "Y")}
    if processes != [1]:  # a simulated network has no wire
        ends |= {"processes_used": processes, "wire_bytes": crew.total(crew.wire_bytes)}
        ends |= {"handed_bytes": crew.total(crew.handed_bytes)}
    if crew.writes:
        _finish(
            folder, run, problem, trainer, {k: Z for k, Z in stacks.items() if Z is not None}, curve, net, ends, crew
        )
        journal.remove()


class Standing(NamedTuple):
    """Where an unfinished run stands; the counters of its oracle and network are set where they belong."""

    state: Any  # as its trainer makes it; None before the start
    loss: float  # of all nodes, at the last gradient
    smallest: float  # loss so far
    curve: list[dict[str, Any]]
    seconds: float
    threads: list[int]  # every number of threads that worked on it
    processes: list[int]  # every number of processes that shared its nodes; 1 is the simulator too


@dataclass(frozen=True)
class Journal:
    """Where an unfinished run stands: the tensors of its state, its counters and its curve, in one atomic sealed file.

    The one before it is kept until the run is done, for the case that the newest is damaged.
    """

    path: Path
    run: RunSpec
    trainer: Trainer

    @property
    def former(self) -> Path:
        return self.path.with_stem(f"{self.path.stem}-former")

    def save(self, standing: Standing, oracle: Oracle, net: Network, crew: Crew) -> None:
        wire_bytes = crew.total(crew.wire_bytes)
        whole = {name: crew.gather(Z) for name, Z in standing.state._asdict().items()}
        if not crew.writes:
            return
        content = {name: value for name, value in standing._asdict().items() if name != "state"}
        content |= {"ledger": net.ledger.row(), "draws": oracle.draws, "id": self.run.id, "wire_bytes": wire_bytes}
        tensors = {name: Z.cpu().contiguous() for name, Z in whole.items() if Z is not None}
        data = safetensors.torch.save(tensors, {"journal": json.dumps(content), "sha256": files.OPEN_SEAL})
        files.write_bytes(self.path, files.seal(data), former=self.former)

    def restore(self, oracle: Oracle, net: Network, crew: Crew) -> Standing:
        """Where the newest whole journal says that the run stands; at the start if there is none."""
        data = self._newest() if crew.writes else None
        content = crew.announce(_metadata(data) if data is not None else None)
        if content is None:
            return Standing(None, math.nan, math.nan, [], 0.0, [], [])
        tensors = safetensors.torch.load(data) if data is not None else {}
        state = self.trainer.init(oracle, net)  # its class and fields; the counters it moved are set right below
        stacks = {
            name: crew.scatter(tensors[name].to(Z.device) if tensors else None, Z)
            for name, Z in state._asdict().items()
        }
        for name, value in content["ledger"].items():
            setattr(net.ledger, name, value)
        crew.wire_bytes = content["wire_bytes"] if crew.writes else 0
        oracle.draws = content["draws"]
        content = {"smallest": content["loss"], "processes": []} | content  # journals did not always tell these
        known = {name: content[name] for name in Standing._fields if name != "state"}
        return Standing(state=type(state)(**stacks), **known)

    def _newest(self) -> bytes | None:
        for path in (self.path, self.former):
            if not path.is_file():
                continue
            try:
                data = files.unseal(path)
                if _metadata(data)["id"] == self.run.id:
                    return data
                fact = f"{path} is of another run"
            except files.Damaged as error:
                fact = error.fact
            progress_bars.say(f"{fact}; the run goes on from where it stood before")
            files.remove(path)  # lest it become the former one in the place of a whole one
        return None

    def remove(self) -> None:
        """The run is done."""
        files.remove(self.path)
        files.remove(self.former)


def _metadata(journal: bytes) -> dict[str, Any]:
    header = json.loads(journal[8 : 8 + int.from_bytes(journal[:8], "little")])
    content: dict[str, Any] = json.loads(header["__metadata__"]["journal"])
    return content


def _gauge(problem: Problem, run: RunSpec, shards: Batch | None) -> Callable[[Tensor], dict[str, float]]:
    """What the curve shows of x-bar; of a classifier, its accuracies on the first test images, clean and attacked.

    `shards` are those of all nodes, where a process has them anyway.
    """
    if not isinstance(problem, Classifier):
        return problem.gauge(problem.shards(run.network.nodes, run.seed) if shards is None else shards)
    images, labels = problem.images.test_images[: run.curve_examples], problem.images.test_labels[: run.curve_examples]
    attacks = [(f"{spec.name}@{one.eps:g}", one) for spec in run.curve for one in spec.build()]

    def measure(x: Tensor) -> dict[str, float]:
        model = problem.module(x)
        told = {"clean_acc": accuracy(model, images, labels)}
        return told | {
            name: evaluate(one, model, images, labels, seed=run.seed).robust_accuracy for name, one in attacks
        }

    return measure


def _running(costs: dict[str, int]) -> dict[str, int]:
    """The costs that grow with the rounds."""
    return {name: count for name, count in costs.items() if name not in ("nodes", "directed_edges", "rounds")}


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


def _step_sizes(trainer: Trainer) -> str:
    sizes = {name: value for name, value in trainer.settings().items() if name.startswith("eta")}
    return ", ".join(f"{name} = {value:g}" for name, value in sizes.items())

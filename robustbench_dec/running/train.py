"""Train one run, from its journal or from the start, and write its files."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from robustbench_dec import bars
from robustbench_dec.networks.crew import Alone, Crew, OnRanks, Order
from robustbench_dec.networks.ranks import Ranks
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Problem
from robustbench_dec.running.curve import Curve
from robustbench_dec.running.finish import Spent, finish
from robustbench_dec.running.journal import Journal
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.running.tensorboard import Shown
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.store import locks, provenance
from robustbench_dec.store.results import Results, Run
from robustbench_dec.trainer import State


@dataclass(frozen=True)
class Habits:
    """How runs are worked on; none of it decides a number."""

    device: str = "cpu"
    progress: bool = True
    save_seconds: float = 20.0
    """The journal is written that often,"""
    save_rounds: int | None = None
    """and every so many rounds."""
    shown: Shown | None = None
    """Who is shown the curve as it grows, or as a whole if the run was finished before."""


def train(
    run: RunSpec,
    results: Results,
    how: Habits = Habits(),
    *,
    checkpoint: bool = False,
    wait: bool = True,
    ranks: Ranks | None = None,
) -> Run:
    """Train a run, or finish it, or find it finished.

    A finished run whose checkpoint is absent (a fresh clone) is left alone, unless the `checkpoint` is asked for. One
    that another process trains is waited for, or is Busy. With `ranks`, these processes share the nodes; the first
    alone claims the run, measures and writes.
    """
    home = results.run(run.id)
    crew = Alone() if ranks is None else OnRanks(ranks, run.network.nodes)
    crew.meet(run.id)
    if crew.writes:
        _lead(run, home, how, crew, checkpoint, wait)
    elif crew.await_order() is Order.TRAIN:
        _train(run, run.build_problem(), home, how, crew)
        crew.await_order()  # rank 0 is done
    if how.shown is not None and crew.writes:
        how.shown(run.id, home.curve().to_dict("records"))
    return home


def _lead(run: RunSpec, home: Run, how: Habits, crew: Crew, checkpoint: bool, wait: bool) -> None:
    """What the writing process does: claim the run, say what there is to do, do it with the others, tidy up."""
    with contextlib.ExitStack() as held:
        with crew.deciding():
            problem, unfinished = run.build_problem(), not home.finished(checkpoint)
            if unfinished:
                problem.check(run.network.nodes)
                held.enter_context(_nothing_left_of_failures(home))
                held.enter_context(home.claim(wait=wait, meanwhile=crew.waiting))
                home.sweep()
                unfinished = not home.finished(checkpoint, announce=True)  # the former holder may have
        crew.order(Order.TRAIN if unfinished else Order.NOTHING)
        if unfinished:
            _train(run, problem, home, how, crew)
            crew.order(Order.DONE)
    if not unfinished:
        home.tidy()


@contextlib.contextmanager
def _nothing_left_of_failures(home: Run) -> Iterator[None]:
    """Remove the folder of a run that cannot be, if it is empty."""
    try:
        yield
    except locks.Busy:
        raise
    except Exception:
        home.abandon()
        raise


def _train(run: RunSpec, problem: Problem, home: Run, how: Habits, crew: Crew) -> None:
    """Train a run from its journal or from the start, and write its files."""
    began = time.perf_counter()
    trainer = run.build_trainer()
    net = run.network.connect(run.seed, crew.connect)
    oracle = Oracle(problem, net.nodes, run.seed, net.ledger, how.device, net.rows)
    journal = Journal(home.journal, run.id, trainer, oracle, net, crew)
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
                if how.shown is not None and crew.writes:
                    how.shown(run.id, curve.rows)
    effort = effort.after(time.perf_counter() - began)
    stacks = {name: crew.gather(Z) for name, Z in at.state._asdict().items() if name in ("X", "Y")}
    wire = None
    if effort.processes != (1,):  # a simulated network has no wire
        wire = crew.total(crew.wire_bytes), crew.total(crew.handed_bytes)
    if crew.writes:
        whole = {name: Z for name, Z in stacks.items() if Z is not None}
        made = provenance.stamp(effort.seconds)
        spent = Spent(net.ledger, net.spectral_rate, effort.threads, effort.processes, wire, made)
        finish(home, run, problem, trainer, whole, curve.rows, spent, crew.waiting)
        journal.remove()


class _Pulse:
    """Asked after every round: the mean loss of all nodes, NaN if x is not finite; and whether it is time to save.

    The crew agrees on both at once.
    """

    def __init__(self, oracle: Oracle, crew: Crew, how: Habits) -> None:
        self._oracle, self._crew, self._how = oracle, crew, how
        self.save = False
        self.saved()

    def saved(self) -> None:
        """The journal was written now."""
        self._saved = time.perf_counter()

    def __call__(self, state: State) -> float:
        losses, done = self._oracle.losses, self._oracle.ledger.rounds
        if not bool(state.X.isfinite().all()):
            losses = losses * math.nan
        late = time.perf_counter() - self._saved > self._how.save_seconds
        due = late or (self._how.save_rounds is not None and done % self._how.save_rounds == 0)
        losses, self.save = self._crew.agree(losses, due and done > 0, done)
        return losses.mean().item()

"""Check: the promises that every trainer on the shelf keeps, tried on anybody's trainer (check_attack.py: an attack).

The bench is the quadratic, whose solution is known, on a ring of 10 very different nodes with weights 1/3.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from robustbench_dec.errors import BadInput, raised
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.trainer import Trainer

NODES, FEW, MANY = 10, 6, 3000
"""Nodes of the ring; rounds that show how a trainer behaves; rounds in which it should have found the solution."""

GOAL = 1e-6
"""The norm of the gradient at the mean of the nodes at which a stationary point counts as found."""

MOST_SAMPLES = 4096

Outcome = Literal["kept", "lacks", "BROKEN"]
"""`lacks`: what many methods do without by design."""

P = TypeVar("P")


@dataclass(frozen=True)
class Verdict:
    """One promise, what became of it, and what was seen."""

    promise: str
    outcome: Outcome
    seen: str


def verdicts(trainer: Trainer, device: str = "cpu") -> Iterator[Verdict]:
    """Every promise in turn; where states have not the form that they should have, nothing more is tried.

    A trainer's own errors count as broken promises, bad settings are raised as BadInput.
    """
    for verdict in tried(PROMISES, trainer, device):
        yield verdict
        if verdict == Verdict(next(iter(PROMISES)), "BROKEN", verdict.seen):
            return


def tried(
    promises: Mapping[str, Callable[[P, str], tuple[Outcome | bool, str]]], part: P, device: str
) -> Iterator[Verdict]:
    """The verdict on each promise of a part, up to the first one at which its code raises an error."""
    for promise, trial in promises.items():
        try:
            outcome, seen = trial(part, device)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            yield Verdict(promise, "BROKEN", f"it raised {raised(error)}")
            return
        if isinstance(outcome, bool):
            outcome = "kept" if outcome else "BROKEN"
        yield Verdict(promise, outcome, seen)


def stage(problem: Quadratic, device: str, seed: int = 0) -> tuple[Oracle, Network]:
    """The problem's oracle and the ring, with one ledger."""
    net = SimulatedNetwork(topology.build("ring", NODES))
    return Oracle(problem, NODES, seed, net.ledger, device), net


def bench(trainer: Trainer, **settings: Any) -> Quadratic:
    """The quadratic, with as many samples per node as the trainer's largest whole number: it may be a batch."""
    whole = [value for value in trainer.settings().values() if isinstance(value, int)]
    m = min(max(8, *whole, 0), MOST_SAMPLES)
    # Without y, an indefinite problem has no minimum.
    return Quadratic(**{"instance": 4, "m": m, "coercive": not trainer.has_dual} | settings)


def walk(trainer: Trainer, problem: Quadratic, device: str, seed: int = 0) -> list[Any]:
    """The first few states."""
    oracle, net = stage(problem, device, seed)
    path = [trainer.init(oracle, net)]
    for _ in range(FEW):
        path.append(trainer.step(path[-1], oracle, net))
    return path


def same(first: Iterable[Tensor], second: Iterable[Tensor]) -> bool:
    """Whether two states have the same bits; a NaN is like another."""
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True))


def has_the_form(trainer: Trainer, device: str) -> tuple[bool, str]:
    names = ("X", "Y") if trainer.has_dual else ("X",)
    oracle, net = stage(bench(trainer, noise=0.3), device)
    state = first = trainer.init(oracle, net)
    for t in range(FEW + 1):
        if type(state) is not type(first):
            return False, f"step returned a {type(state).__name__}, not the {type(first).__name__} of init"
        fields = getattr(state, "_fields", ())
        if not {*names} <= {*fields}:
            what = f"a {type(state).__name__} with the fields {', '.join(fields) or 'none'}"
            return False, f"{'step' if t else 'init'} returned {what}, not one with {' and '.join(names)}"
        for name, value in state._asdict().items():
            if not isinstance(value, Tensor) or value.shape[:1] != (NODES,):
                return False, f"{name} is {value.shape if isinstance(value, Tensor) else type(value).__name__}"
        if t < FEW:
            state = trainer.step(state, oracle, net)
    return True, f"{type(first).__name__}({', '.join(first._fields)})"


def repeats_itself(trainer: Trainer, device: str) -> tuple[bool, str]:
    problem = bench(trainer, noise=0.3)
    if not same(walk(trainer, problem, device)[-1], walk(trainer, problem, device)[-1]):
        return False, f"two runs with seed 0 differ after {FEW} rounds"
    if same(walk(trainer, problem, device)[-1], walk(trainer, problem, device, seed=1)[-1]):
        return False, "seeds 0 and 1 give the same states"
    return True, f"{FEW} rounds, twice"


def keeps_the_past(trainer: Trainer, device: str) -> tuple[bool, str]:
    oracle, net = stage(bench(trainer, noise=0.3), device)
    state = trainer.init(oracle, net)
    for t in range(FEW):
        kept = [value.clone() for value in state]
        after = trainer.step(state, oracle, net)
        trainer.step(after, oracle, net)
        if not same(state, kept):
            changed = [name for name, a, b in zip(state._fields, state, kept, strict=True) if not same([a], [b])]
            return False, f"round {t + 1} wrote into {', '.join(changed)}"
        state = after
    return True, f"{FEW} rounds"


def resumes(trainer: Trainer, device: str) -> tuple[bool, str]:
    problem = bench(trainer, noise=0.3)
    oracle, net = stage(problem, device)
    state = trainer.init(oracle, net)
    for t in range(FEW):
        other_oracle, other_net = stage(problem, device)
        copied = type(state)(*(value.clone() for value in state))
        other_oracle.draws = oracle.draws
        state = trainer.step(state, oracle, net)
        if not same(trainer.step(copied, other_oracle, other_net), state):
            return False, f"round {t + 1} is another one from a copy of the state, so something is kept outside it"
    return True, f"{FEW} rounds"


def stays_feasible(trainer: Trainer, device: str) -> tuple[bool, str]:
    if not trainer.has_dual:
        return True, "it has no y"
    bound = 0.05
    states = walk(trainer, bench(trainer, bound=bound, coercive=True), device)
    largest = max(state.Y.abs().max().item() for state in states)
    return largest <= bound * (1 + 1e-6), f"largest |y| {largest:.3g} in a box of {bound:g}"


def is_metered(trainer: Trainer, device: str) -> tuple[bool, str]:
    oracle, net = stage(bench(trainer, noise=0.3), device)
    state = trainer.init(oracle, net)
    before = net.ledger.row()
    for _ in range(FEW):
        state = trainer.step(state, oracle, net)
    spent = {name: (count - before[name]) / FEW for name, count in net.ledger.row().items()}
    seen = (
        f"per round: SFO calls per node {spent['sfo']:g}, exchanges {spent['exchanges']:g}, all-reduces "
        f"{spent['all_reduces']:g}, bytes per directed edge {spent['bytes_per_edge']:g}; before the first round: "
        f"{before['sfo']}, {before['exchanges']}, {before['all_reduces']}, {before['bytes_per_edge']}"
    )
    return spent["sfo"] > 0 and spent["exchanges"] + spent["all_reduces"] > 0, seen


class Rest(NamedTuple):
    """Where a trainer ended: the norm of the gradient at the mean of the nodes, after so many rounds."""

    norm: float
    rounds: int
    diverged: bool = False

    @property
    def found(self) -> bool:
        return not self.diverged and self.norm <= GOAL


def finds_the_solution(trainer: Trainer, device: str) -> tuple[Outcome, str]:
    what = "||grad Phi||" if trainer.has_dual else "||grad f(., 0)||"
    end = rest(trainer, bench(trainer), device)
    if end.diverged:
        return "BROKEN", f"it diverged in round {end.rounds}; smaller step sizes would do"
    seen = f"{what} = {end.norm:.1e} after {end.rounds} rounds"
    if end.found:
        return "kept", seen
    equal = rest(trainer, bench(trainer, heterogeneity=0.0), device)
    if equal.found:  # a whole class of methods stops elsewhere by design: no fault
        return "lacks", f"{seen}, more than {GOAL:g}: it does on equal nodes, and corrects no difference between nodes"
    return "BROKEN", (
        f"{seen}, and {equal.norm:.1e} on equal nodes, more than {GOAL:g}; other step sizes may do, or its update is "
        "not a descent in x and an ascent in y"
    )


def rest(trainer: Trainer, problem: Quadratic, device: str) -> Rest:
    """Train until the solution is found, or for long, or until nothing moves any more."""
    oracle, net = stage(problem, device)
    exact = problem.exact(oracle.shards)
    gradient = exact.grad_phi if trainer.has_dual else exact.grad_f_at_zero_y
    state = trainer.init(oracle, net)
    end, X_before = Rest(math.inf, 0), state.X
    for t in range(1, MANY + 1):
        state = trainer.step(state, oracle, net)
        if not state.X.isfinite().all():
            return Rest(math.inf, t, diverged=True)
        if t % 25 == 0:
            end = Rest(gradient(state.X.mean(0)).norm().item(), t)
            if end.found or (state.X - X_before).abs().max() < 1e-13:  # in the second case at rest elsewhere
                break
            X_before = state.X
    return end


PROMISES: dict[str, Callable[[Trainer, str], tuple[Outcome | bool, str]]] = {
    "a state is a NamedTuple of tensors with one row per node": has_the_form,
    "same seed, same bits": repeats_itself,
    "later steps leave earlier states alone": keeps_the_past,
    "a state and the count of draws are all that a resumed run needs": resumes,
    "y stays feasible": stays_feasible,
    "gradients and communication are metered": is_metered,
    "it finds the stationary point of a heterogeneous quadratic": finds_the_solution,
}

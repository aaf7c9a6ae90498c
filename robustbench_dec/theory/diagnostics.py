"""Diagnostics: the quantities of the paper's theory, round by round, for a trainer with the states X, Y, C, D.

With bars for means over the nodes, cen(M) = M - Mbar, all norms Frobenius, and the start of round t as the reference:

    Xi_x = ||cen(X)||^2 / n                                         client variance
    E_x = sum_{k<K} ||X^k - xbar||^2 / n                            drift of the local iterates X^0 = X, ..., X^{K-1}
    gamma_x = ||C + cen(Gx(xbar, ybar))||^2 / (n l^2)               quality of the correction; exact local gradients Gx
    Delta_x = ||xbar+ - xbar||^2                                    progress of the mean, to the start of the next round
    delta = ||y_hat(xbar) - ybar||^2,   y_hat(x) = argmax_y f(x, y)
    lag = ||y_hat(xbar) - ybar+||^2                                 with the old maximiser and the new mean
    sigma2 = max E ||g_B - g||^2                                    over the nodes and the points of the round
    H = Phi(xbar) - Phi* + A eta_d K l^2 (Xi_x + Xi_y) + B K^3 l^4 eta_d^3 (gamma_x + gamma_y) + C l / (kappa p) delta
    A = 6 v / p,   B = (72 v^3 + 24 v) / p,   C = p / 24

and the same for y with Y, D, Gy. The paper has C = 1/24, with which its own conditions on the D_j cannot hold; with
C = p/24 and eta_c <= eta_d / (600 kappa^2) they do. v >= 1 is the paper's free constant in eta_s = eta_r = p v.

Where gradients were asked is where the local iterates were: an oracle that looks on sees them, and no trainer changes.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import torch
from torch import Tensor

from robustbench_dec import bars as progress_bars
from robustbench_dec import files, shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.networks.faults import RELIABLE
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Batch, Problem
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.running.loop import Watch, rounds
from robustbench_dec.specs.budget import Budget
from robustbench_dec.specs.table import NetworkSpec
from robustbench_dec.store import provenance
from robustbench_dec.store.records import Made
from robustbench_dec.trainer import Trainer


class Exact(Protocol):
    """What is known in closed form of a problem that all nodes together hold: constants, Phi, the maximiser."""

    @property
    def l(self) -> float: ...  # noqa: E743 (the paper's letter)

    @property
    def mu(self) -> float: ...

    def y_hat(self, x: Tensor) -> Tensor: ...

    def phi(self, x: Tensor) -> Tensor: ...

    def grad_phi(self, x: Tensor) -> Tensor: ...


class Onlooker(Oracle):
    """An oracle that adds up how far from the round's start gradients are asked for, and sees how noisy they are."""

    x_bar: Tensor | None = None
    y_bar: Tensor | None = None
    E_x = E_y = sigma2 = 0.0
    sees_noise = False

    def begin_round(self, x_bar: Tensor, y_bar: Tensor) -> None:
        """Measure drifts and noise from here."""
        self.x_bar, self.y_bar = x_bar, y_bar
        self.E_x = self.E_y = self.sigma2 = 0.0

    def end_round(self, x_new: Tensor, y_new: Tensor, exact: Exact) -> tuple[float, ...]:
        """What was seen in the round that has led to these means, as IN_A_ROUND names it."""
        assert self.x_bar is not None and self.y_bar is not None
        moved = (x_new - self.x_bar, y_new - self.y_bar, exact.y_hat(self.x_bar) - y_new)
        squares = [Z.square().sum().item() for Z in moved]
        return self.E_x, self.E_y, *squares, self.sigma2 if self.sees_noise else math.nan

    def grad(self, X: Tensor, Y: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.x_bar is not None and self.y_bar is not None:
            self.E_x += _spread(X, self.x_bar)
            self.E_y += _spread(Y, self.y_bar)
            if self.sees_noise and batch[0].shape[1] < self.m:
                self.sigma2 = max(self.sigma2, self.variance(X, Y, batch[0].shape[1]))
        return super().grad(X, Y, batch)

    def variance(self, X: Tensor, Y: Tensor, size: int) -> float:
        """The largest node's E ||g_B - g||^2 over minibatches B of `size` samples without repetition, both blocks:
        (m - size) / (size (m - 1)) times the mean over a node's m samples of ||g_s - g||^2."""
        gradients = [
            torch.cat(self.problem.grads(X, Y, tuple(part[:, s : s + 1] for part in self.shards))[:2], 1)
            for s in range(self.m)
        ]
        G = torch.stack(gradients)  # (m, n, d + q)
        scatter = (G - G.mean(0)).square().sum(2).mean(0).max().item()
        return scatter * (self.m - size) / (size * (self.m - 1))


@dataclass(frozen=True)
class Constants:
    """The problem's, the network's and the trainer's numbers that the theory speaks of."""

    l: float  # noqa: E741 (the paper's letter)
    mu: float
    p: float
    K: int
    eta_c: float
    eta_d: float
    eta_s: float = 1.0
    eta_r: float = 1.0

    @property
    def kappa(self) -> float:
        """The condition number."""
        return self.l / self.mu

    @property
    def eta_x(self) -> float:
        """The global step size of x."""
        return self.eta_s * self.eta_c

    @property
    def eta_y(self) -> float:
        """The global step size of y."""
        return self.eta_r * self.eta_d

    @property
    def v(self) -> float:
        """max(eta_s, eta_r) / p, the paper's v, but at least 1."""
        return max(1.0, self.eta_s / self.p, self.eta_r / self.p)

    def lyapunov(self, gap: float, Xi: float, gamma: float, delta: float) -> float:
        """H for Phi(xbar) - Phi*, Xi_x + Xi_y, gamma_x + gamma_y and delta."""
        v, K, l = self.v, self.K, self.l  # noqa: E741
        A, B, C = 6 * v / self.p, (72 * v**3 + 24 * v) / self.p, self.p / 24
        return (
            gap
            + A * self.eta_d * K * l**2 * Xi
            + B * K**3 * l**4 * self.eta_d**3 * gamma
            + C * l / (self.kappa * self.p) * delta
        )

    def conditions(self) -> list["Condition"]:
        """What the lemmas ask of the step sizes."""
        K, l, p, kappa, v = self.K, self.l, self.p, self.kappa, self.v  # noqa: E741
        local, mixing = 1 / (8 * K * l), math.sqrt(p / 24) / (K * l)
        return [
            Condition("Lemma A.5", "eta_c <= 1 / (8 K l)", self.eta_c, local),
            Condition("Lemma A.5", "eta_d <= 1 / (8 K l)", self.eta_d, local),
            Condition("Lemma A.8", "eta_x <= sqrt(p / 24) / (K l)", self.eta_x, mixing),
            Condition("Lemma A.8", "eta_y <= sqrt(p / 24) / (K l)", self.eta_y, mixing),
            Condition("Lemma A.9", "eta_y <= 1 / (K l)", self.eta_y, 1 / (K * l)),
            Condition(
                "Lemma A.10", "eta_x <= eta_y / (4 sqrt(6) kappa^2)", self.eta_x, self.eta_y / (96**0.5 * kappa**2)
            ),
            Condition("Lemma A.11", "eta_x <= 1 / (16 K l kappa)", self.eta_x, 1 / (16 * K * l * kappa)),
            Condition("Lemma A.12", "eta_d <= p / (200 v kappa K l)", self.eta_d, p / (200 * v * kappa * K * l)),
            Condition(
                "Lemma A.12, repaired", "eta_c <= eta_d / (600 kappa^2)", self.eta_c, self.eta_d / (600 * kappa**2)
            ),
        ]

    def admissible(self) -> dict[str, float]:
        """The largest step sizes that fulfil every condition with v = 1, in the order in which they follow."""
        eta_d = self.p / (200 * self.kappa * self.K * self.l)
        return {"eta_s": self.p, "eta_r": self.p, "eta_d": eta_d, "eta_c": eta_d / (600 * self.kappa**2)}

    def widest(self) -> dict[str, float]:
        """The largest step sizes, unrelaxed, that fulfil the conditions of Lemmas A.5 to A.11, but not of A.12."""
        unit = 1 / (self.K * self.l)
        eta_d = min(1 / 8, math.sqrt(self.p / 24)) * unit
        eta_c = min(eta_d / (96**0.5 * self.kappa**2), unit / (16 * self.kappa))
        return {"eta_s": 1.0, "eta_r": 1.0, "eta_d": eta_d, "eta_c": eta_c}


class Condition(NamedTuple):
    """A step size and the limit that a lemma sets it."""

    lemma: str
    text: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit * (1 + 1e-12)  # a limit itself is admissible, however it was rounded


def constants(trainer: Trainer, exact: Exact, net: Network) -> Constants:
    """The numbers of a run; eta_x and eta_y stand for local step sizes where a trainer has no others."""
    settings = trainer.settings()
    eta_c, eta_d = (settings.get(name, settings.get(other)) for name, other in (("eta_c", "eta_x"), ("eta_d", "eta_y")))
    if eta_c is None or eta_d is None:
        raise BadInput(
            f"diagnostics need step sizes eta_c and eta_d, or eta_x and eta_y, which {trainer.title} has not"
        )
    relaxed = {name: settings[name] for name in ("eta_s", "eta_r") if name in settings}
    return Constants(exact.l, exact.mu, net.spectral_rate, settings.get("K", 1), eta_c, eta_d, **relaxed)


def inside(which: str, problem: Problem, trainer: Trainer, network: NetworkSpec) -> dict[str, float]:
    """The largest step sizes inside the conditions of Lemmas A.5 to A.11 ("lemmas"), or of A.12 too ("theorem")."""
    if which not in ("lemmas", "theorem"):
        raise BadInput(f"steps are those of the 'lemmas' (A.5 to A.11) or of the 'theorem' (A.12 too), not '{which}'")
    if reason := uncovered(problem, trainer, network):
        raise BadInput(f"no lemma covers this run, so none sets its step sizes: {reason}")
    net = network.connect(0)
    known = constants(trainer, problem.exact(problem.shards(net.nodes, 0)), net)  # type: ignore[attr-defined]
    return known.widest() if which == "lemmas" else known.admissible()


def quantities(state: Any, problem: Problem, shards: Batch, exact: Exact, l: float) -> dict[str, float]:  # noqa: E741
    """All that can be said at the start of a round; nothing is charged."""
    X, Y, C, D = state.X, state.Y, state.C, state.D
    x_bar, y_bar = X.mean(0), Y.mean(0)
    Gx, Gy, _ = problem.grads(x_bar.expand_as(X).contiguous(), y_bar.expand_as(Y).contiguous(), shards)
    return {
        "phi": exact.phi(x_bar).item(),
        "grad_phi": exact.grad_phi(x_bar).norm().item(),
        "delta": (exact.y_hat(x_bar) - y_bar).square().sum().item(),
        "Xi_x": _spread(X, x_bar),
        "Xi_y": _spread(Y, y_bar),
        "gamma_x": _spread(C + Gx, Gx.mean(0)) / l**2,
        "gamma_y": _spread(D + Gy, Gy.mean(0)) / l**2,
        "mean_C": C.mean(0).norm().item(),
        "mean_D": D.mean(0).norm().item(),
    }


IN_A_ROUND = ("E_x", "E_y", "Delta_x", "Delta_y", "lag", "sigma2")
"""What a round's start does not tell; the last row of a seed has no round."""


class Diagnosis(NamedTuple):
    """One row per seed and round, and what goes with them; why no lemma covers the run, if none does."""

    rows: pd.DataFrame
    constants: Constants
    record: dict[str, Any]
    uncovered: str = ""

    @property
    def conditions(self) -> list[Condition]:
        """What the lemmas ask of the step sizes; nothing where they say nothing."""
        return [] if self.uncovered else self.constants.conditions()


def uncovered(problem: Problem, trainer: Trainer, network: NetworkSpec) -> str:
    """Why the paper's lemmas say nothing about a run; empty if they do."""
    if type(trainer) is not shelf.find("trainer", "dec_fedtrack", Trainer):  # type: ignore[type-abstract]
        return f"they are about Dec-FedTrack, not about {trainer.title}"
    if not isinstance(problem, Quadratic):
        return f"they leave y free, but {type(problem).__name__} constrains it"
    if problem.bound is not None:
        return f"they leave y free, but here it lies in a box of {problem.bound:g}"
    if network.faults != RELIABLE:
        return "they are about one mixing matrix for all rounds, but here messages get lost or nodes are late"
    return ""


def diagnose(
    problem: Problem,
    trainer: Trainer,
    network: NetworkSpec,
    n_rounds: int,
    seeds: Sequence[int],
    *,
    device: str = "cpu",
    progress: bool = True,
) -> Diagnosis:
    """Train and look on. Row t tells of the start of round t and of what happens in it, which the last row cannot."""
    if n_rounds < 1:
        raise BadInput(f"diagnostics need at least 1 round, not {n_rounds}")
    if not hasattr(problem, "exact"):
        raise BadInput(
            f"diagnostics need a problem whose Phi is known, quadratic or robust_logistic, not {type(problem).__name__}"
        )
    began = time.perf_counter()
    rows: list[dict[str, float]] = []
    lowest = math.inf
    unsaid = uncovered(problem, trainer, network)
    for seed in seeds:
        net = network.connect(seed)
        oracle = Onlooker(problem, net.nodes, seed, net.ledger, device)
        oracle.sees_noise = not unsaid  # else nobody asks for it, and it is slow where a node has many samples
        exact = problem.exact(oracle.shards)
        known = constants(trainer, exact, net)
        best = getattr(exact, "x_star", None)
        lowest = min(lowest, exact.phi(best).item()) if best is not None else lowest
        rows += _rows(trainer, oracle, net, exact, Budget(rounds=n_rounds), progress)
    frame = pd.DataFrame(rows)
    phi_star = lowest if math.isfinite(lowest) else float(frame["phi"].min())
    frame["phi_gap"] = gap = frame["phi"] - phi_star
    Xi, gamma = frame["Xi_x"] + frame["Xi_y"], frame["gamma_x"] + frame["gamma_y"]
    frame["H"] = [known.lyapunov(*values) for values in zip(gap, Xi, gamma, frame["delta"], strict=True)]
    frame["H_ratio"] = frame.groupby("seed")["H"].transform(lambda H: H / H.shift())
    record = {
        "settings": {
            "problem": problem.settings(),
            "network": network.settings(),
            "trainer": {"title": trainer.title, **trainer.settings()},
            "rounds": n_rounds,
            "seeds": list(seeds),
        },
        "constants": asdict(known) | {"kappa": known.kappa, "eta_x": known.eta_x, "eta_y": known.eta_y, "v": known.v},
        "phi_star": {"value": phi_star, "exact": math.isfinite(lowest)},
        "uncovered": unsaid,
        "conditions": [] if unsaid else [limit._asdict() | {"holds": limit.holds} for limit in known.conditions()],
        "admissible": None if unsaid else known.admissible(),
        **Made(**provenance.stamp(time.perf_counter() - began)).model_dump(mode="json"),
    }
    return Diagnosis(frame, known, record, unsaid)


def _rows(
    trainer: Trainer, oracle: Onlooker, net: Network, exact: Exact, budget: Budget, progress: bool
) -> list[dict[str, float]]:
    """Train with one seed; what is seen at the start of every round and in it."""
    rows: list[dict[str, float]] = []
    now: dict[str, float] = {}

    def size(state: Any) -> float:
        missing = [name for name in ("X", "Y", "C", "D") if name not in getattr(state, "_fields", ())]
        if missing:
            raise BadInput(
                f"diagnostics need a trainer with the states X, Y, C, D, but {trainer.title} has no "
                f"{' and no '.join(missing)}; dec_fedtrack and lu_gt would do"
            )
        now.update(quantities(state, oracle.problem, oracle.shards, exact, exact.l))
        return sum(map(abs, now.values()))  # finite if all of them are

    watch = Watch(size, "size of all that is measured", explosion=math.inf)
    title = f"diagnose, seed {oracle.seed}"
    with progress_bars.bar(total=budget.rounds, desc=title, unit="round", show=progress) as bar:
        for at in rounds(trainer, oracle, net, budget, watch):
            x_bar, y_bar = (at.state._asdict()[name].mean(0) for name in ("X", "Y"))
            if rows:
                rows[-1] |= dict(zip(IN_A_ROUND, oracle.end_round(x_bar, y_bar, exact), strict=True))
                bar.update()
            costs = {"sfo": at.costs["sfo"], "exchanges": at.costs["exchanges"]}
            unseen = dict.fromkeys(IN_A_ROUND, math.nan)
            rows.append({"seed": oracle.seed, "round": at.costs["rounds"], **costs, **now, **unseen})
            oracle.begin_round(x_bar, y_bar)
    return rows


def write(diagnosis: Diagnosis, stem: Path) -> list[Path]:
    """<stem>.csv and <stem>.json."""
    table, card = stem.with_name(f"{stem.name}.csv"), stem.with_name(f"{stem.name}.json")
    files.write_text(table, diagnosis.rows.to_csv(index=False, lineterminator="\n", float_format="%.10g"))
    files.write_json(card, diagnosis.record)
    return [table, card]


def _spread(Z: Tensor, center: Tensor) -> float:
    """(1/n) sum_i ||z_i - center||^2."""
    return (Z - center).square().sum().item() / len(Z)

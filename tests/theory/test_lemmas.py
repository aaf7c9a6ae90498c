"""Both sides of Lemmas A.5 to A.11: they hold at random states, and fail where a sign or a condition is broken."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.problems.robust_logistic import RobustLogistic
from robustbench_dec.specs.table import NetworkSpec
from robustbench_dec.theory import lemmas
from robustbench_dec.theory.diagnostics import Constants, diagnose, inside, uncovered
from trainers.dec_fedtrack import DecFedTrack
from trainers.gt_gda import GTGDA
from trainers.lu_gt import LUGT

ROOT = Path(__file__).resolve().parents[2]
RING = NetworkSpec(graph="ring", nodes=10)
GRAPHS = {"ring": 7, "complete": 5, "path": 6}
LEMMAS = ["A.5", "A.6", "A.7", "A.8", "A.9", "A.10", "A.11"]


class Broken(NamedTuple):
    """What is done wrong in a round; nothing."""

    descent: float = 1.0
    ascent: float = 1.0
    correction: float = 1.0
    mixes: bool = True
    mean_C: float = 0.0


def spread(Z: Tensor, center: Tensor) -> float:
    return ((Z - center) ** 2).sum().item() / len(Z)


def one_round(
    seed: int,
    sizes: dict[str, float] | None = None,
    wrong: Broken | None = None,
    K: int | None = None,
    scale: float = 1.0,
) -> pd.DataFrame:
    """The sides of all inequalities in one round of Dec-FedTrack, written here anew, from a random state."""
    wrong = wrong or Broken()
    draw = np.random.default_rng(seed)
    graph = list(GRAPHS)[draw.integers(len(GRAPHS))]
    n, K = GRAPHS[graph], K or int(draw.choice([1, 2, 5, 20]))
    W = torch.from_numpy(topology.build(graph, n, "metropolis"))
    problem = Quadratic(heterogeneity=draw.uniform(0.1, 1.0), instance=int(draw.integers(50)))
    A, B, C_, a, c = (part[:, 0] for part in problem.shards(n, 0))
    exact = problem.exact(problem.shards(n, 0))
    known = Constants(exact.l, exact.mu, topology.spectral_rate(W.numpy()), K, 1.0, 1.0)
    allowed: dict[str, Any] = known.widest() if draw.random() < 0.7 else known.admissible()
    known = replace(known, **allowed | (sizes or {}))

    def random(columns: int, wide: float) -> Tensor:
        return torch.from_numpy(draw.standard_normal((n, columns))) * wide

    def gradients(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        Gx = torch.einsum("nij,nj->ni", A, X) + torch.einsum("nij,nj->ni", B, Y) + a
        return Gx, torch.einsum("nji,nj->ni", B, X) + c - torch.einsum("nij,nj->ni", C_, Y)

    wide = 10.0 ** draw.uniform(-3, 1, 4)
    X = random(problem.d, wide[0]) * scale + random(problem.d, 1.0)[0]
    Y = random(problem.q, wide[1]) * scale + random(problem.q, 1.0)[0]
    if draw.random() < 0.5:  # near the best answer, where delta is small
        Y = Y - Y.mean(0) + exact.y_hat(X.mean(0)) + 1e-2 * random(problem.q, 1.0)[0]
    Gx, Gy = gradients(X.mean(0).repeat(n, 1), Y.mean(0).repeat(n, 1))
    C, D = Gx.mean(0) - Gx + random(problem.d, wide[2]), Gy.mean(0) - Gy + random(problem.q, wide[3])
    C, D = C - C.mean(0) + wrong.mean_C, D - D.mean(0)

    def look(X: Tensor, Y: Tensor, C: Tensor, D: Tensor) -> dict[str, float]:
        x, y = X.mean(0), Y.mean(0)
        Gx, Gy = gradients(x.repeat(n, 1), y.repeat(n, 1))
        return {
            "phi": exact.phi(x).item(), "grad_phi": exact.grad_phi(x).norm().item(),
            "delta": ((exact.y_hat(x) - y) ** 2).sum().item(), "Xi_x": spread(X, x), "Xi_y": spread(Y, y),
            "gamma_x": spread(C + Gx, Gx.mean(0)) / exact.l**2, "gamma_y": spread(D + Gy, Gy.mean(0)) / exact.l**2,
            "sigma2": 0.0,
        }  # fmt: skip

    before, x, y = look(X, Y, C, D), X.mean(0), Y.mean(0)
    X0, Y0, E_x, E_y = X, Y, 0.0, 0.0
    for _ in range(K):
        E_x, E_y = E_x + spread(X, x), E_y + spread(Y, y)
        Gx, Gy = gradients(X, Y)
        X = X - wrong.descent * known.eta_c * (Gx + C)
        Y = Y + wrong.ascent * known.eta_d * (Gy + D)
    Z, R = (X0 - X) / (K * known.eta_c), (Y - Y0) / (K * known.eta_d)
    M = W if wrong.mixes else torch.eye(n, dtype=W.dtype)
    C, D = C + wrong.correction * (W @ Z - Z), D + wrong.correction * (W @ R - R)
    X, Y = M @ (X0 - K * known.eta_x * Z), M @ (Y0 + K * known.eta_y * R)
    before |= {"E_x": E_x, "E_y": E_y, "Delta_x": ((X.mean(0) - x) ** 2).sum().item()}
    before |= {"Delta_y": ((Y.mean(0) - y) ** 2).sum().item()}
    before |= {"lag": ((exact.y_hat(x) - Y.mean(0)) ** 2).sum().item()}
    now, after = pd.DataFrame([before]), pd.DataFrame([look(X, Y, C, D)])
    assert exact.x_star is not None
    rows = []
    for lemma, block, left, right in lemmas.inequalities(known, n, exact.phi(exact.x_star).item()):
        rows.append({"lemma": lemma, "block": block, "left": left(now, after)[0], "right": right(now)[0]})
    frame = pd.DataFrame(rows)
    return frame.assign(violated=frame["left"] > frame["right"] * (1 + 1e-9) + 1e-12, seed=seed)


@pytest.mark.slow
def test_every_inequality_holds_at_random_states() -> None:
    frame = pd.concat([one_round(seed) for seed in range(300)])
    assert not frame["violated"].any(), frame[frame["violated"]]
    assert list(dict.fromkeys(frame["lemma"])) == LEMMAS and len(frame) == 3000
    largest = (frame["left"] / frame["right"]).groupby(frame["lemma"]).max()
    assert (largest <= 1 + 1e-9).all() and (largest > 0.05).all()  # none is so loose that the test says nothing


BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "local steps that grow": ("A.5", {"sizes": {"eta_c": 3.0, "eta_d": 1e-9}, "K": 20}),
    "no gossip of the iterates": ("A.6", {"wrong": Broken(mixes=False), "scale": 10.0}),
    "corrections with a mean": ("A.7", {"wrong": Broken(mean_C=300.0), "scale": 1e-3}),
    "corrections with the other sign": ("A.8", {"wrong": Broken(correction=-1.0), "scale": 1e-4}),
    "descent in y": ("A.9", {"wrong": Broken(ascent=-1.0), "scale": 1e-3}),
    "steps in y that overshoot": (
        "A.10",
        {"sizes": {"eta_c": 1e-6, "eta_d": 5.0, "eta_r": 1.0}, "K": 1, "scale": 1e-4},
    ),
    "ascent in x": ("A.11", {"wrong": Broken(descent=-1.0), "scale": 1e-3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_sign_or_condition_is_seen(what: str) -> None:
    lemma, how = BREAKS[what]
    frame = pd.concat([one_round(seed, **how) for seed in range(40)])
    assert frame.loc[frame["lemma"] == lemma, "violated"].any()


def with_sizes(trainer: DecFedTrack, sizes: dict[str, Any]) -> DecFedTrack:
    return replace(trainer, **sizes)


def lemma_table(K: int, network: NetworkSpec, steps: str, rounds: int = 40) -> pd.DataFrame:
    problem, first = Quadratic(), DecFedTrack(eta_c=1.0, eta_d=1.0, K=K, batch=1)
    trainer = with_sizes(first, inside(steps, problem, first, network))
    return lemmas.sides(diagnose(problem, trainer, network, rounds, [0], progress=False))


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["lemmas", "theorem"])
@pytest.mark.parametrize("graph", ["ring", "path"])
@pytest.mark.parametrize("K", [1, 5, 20])
def test_runs_inside_the_conditions_violate_no_lemma(K: int, graph: str, steps: str) -> None:
    network = NetworkSpec(graph=graph, nodes=10, weights="lazy" if graph == "ring" else "metropolis")
    table = lemma_table(K, network, steps)
    verdicts = lemmas.verdicts(table)
    assert [verdict.lemma for verdict in verdicts] == LEMMAS
    assert all(verdict.checked == 40 and verdict.violations == 0 and not verdict.reason for verdict in verdicts)
    assert table["left"].notna().all() and table["right"].ge(0).all()


def test_a_lemma_whose_condition_is_broken_is_not_applied() -> None:
    trainer = DecFedTrack(eta_c=0.0125, eta_d=0.05, K=5, batch=1)
    outcome = diagnose(Quadratic(), trainer, RING, 5, [0], progress=False)
    verdicts = {verdict.lemma: verdict for verdict in lemmas.verdicts(lemmas.sides(outcome))}
    assert {name for name, verdict in verdicts.items() if verdict.reason} == {"A.5", "A.8", "A.10", "A.11"}
    assert verdicts["A.10"].reason == "not applicable: eta_x <= eta_y / (4 sqrt(6) kappa^2) is broken"
    assert verdicts["A.10"].checked == 0 and math.isnan(verdicts["A.10"].largest_ratio)
    fast = diagnose(Quadratic(), replace(trainer, eta_d=0.2), RING, 5, [0], progress=False)
    reasons = {verdict.lemma: verdict.reason for verdict in lemmas.verdicts(lemmas.sides(fast))}
    assert reasons["A.9"] == reasons["A.10"] == "not applicable: eta_y <= 1 / (K l) is broken"


@pytest.mark.slow
def test_with_minibatches_both_sides_are_means_over_seeds() -> None:
    problem, first = Quadratic(m=8, noise=0.3), DecFedTrack(eta_c=1.0, eta_d=1.0, K=5, batch=2)
    trainer = with_sizes(first, inside("lemmas", problem, first, RING))
    outcome = diagnose(problem, trainer, RING, 8, range(6), progress=False)
    table = lemmas.sides(outcome)
    assert set(table["seed"]) == {"mean"} and len(table) == 10 * 8 and not (table["outcome"] == "violated").any()
    drifts = outcome.rows[outcome.rows["round"] == 3]["E_x"]
    here = table[(table["lemma"] == "A.5") & (table["block"] == "x") & (table["round"] == 3)]
    assert here["left"].iloc[0] == pytest.approx(drifts.mean())
    with pytest.raises(BadInput, match="means over at least 5 seeds, not 2; more seeds would do, or full gradients"):
        lemmas.sides(diagnose(problem, trainer, RING, 2, range(2), progress=False))


def test_sigma_is_the_variance_of_the_minibatches() -> None:
    problem, trainer = Quadratic(m=4, noise=0.3), DecFedTrack(eta_c=1e-3, eta_d=1e-3, K=1, batch=2)
    outcome = diagnose(problem, trainer, RING, 1, [0], progress=False)
    X, Y = (z.expand(10, -1) for z in problem.start(0))
    shards = problem.shards(10, 0)
    whole = torch.cat(problem.grads(X, Y, shards)[:2], 1)
    pairs = [(i, j) for i in range(4) for j in range(i)]  # every minibatch of 2
    squares = [
        (torch.cat(problem.grads(X, Y, tuple(p[:, list(pair)] for p in shards))[:2], 1) - whole).square().sum(1)
        for pair in pairs
    ]
    assert outcome.rows["sigma2"][0] == pytest.approx(torch.stack(squares).mean(0).max().item(), rel=1e-10)


def test_where_no_lemma_speaks_the_reason_is_said() -> None:
    trainer = DecFedTrack(eta_c=0.01, eta_d=0.02, K=2, batch=1)
    assert uncovered(Quadratic(), trainer, RING) == ""
    assert uncovered(Quadratic(), LUGT(0.01, 0.02), RING) == "they are about Dec-FedTrack, not about LU-GT"
    assert uncovered(Quadratic(), GTGDA(0.01, 0.02), RING) == "they are about Dec-FedTrack, not about GT-GDA"
    assert uncovered(RobustLogistic(), trainer, RING) == "they leave y free, but RobustLogistic constrains it"
    boxed = Quadratic(bound=0.5, coercive=True)
    assert uncovered(boxed, trainer, RING) == "they leave y free, but here it lies in a box of 0.5"
    assert "one mixing matrix" in uncovered(Quadratic(), trainer, RING.model_copy(update={"loss": 0.1}))
    outcome = diagnose(boxed, trainer, RING, 2, [0], progress=False)
    assert outcome.conditions == [] and outcome.record["conditions"] == [] and outcome.record["admissible"] is None
    with pytest.raises(BadInput, match="no lemma covers this run: they leave y free"):
        lemmas.sides(outcome)
    with pytest.raises(BadInput, match="no lemma covers this run, so none sets its step sizes"):
        inside("lemmas", boxed, trainer, RING)
    with pytest.raises(BadInput, match=r"or of the 'theorem' \(A.12 too\), not 'paper'"):
        inside("paper", Quadratic(), trainer, RING)


@pytest.mark.slow
def test_the_command_says_a_line_for_each_lemma(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["robustbench-dec", "diagnose", "--rounds", "3", "--lemmas", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        assert not stop.value.code
        return capsys.readouterr().out

    out = run("--set", "K=2", "--output", str(tmp_path / "d"))
    lines = [line for line in out.splitlines() if line.startswith("Lemma ")]
    assert len(lines) == 7 and all("3 rounds checked" in line and "0 violations" in line for line in lines)
    assert len(pd.read_csv(tmp_path / "d-lemmas.csv")) == 30
    assert (tmp_path / "d-lemmas.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "d-lemmas.pdf").is_file()
    out = run("--trainer", "lu_gt", "--output", str(tmp_path / "other"))
    assert "no lemma covers this run: they are about Dec-FedTrack, not about LU-GT" in out and "holds" not in out
    assert not (tmp_path / "other-lemmas.csv").exists() and (tmp_path / "other.png").is_file()


def test_the_shipped_example_lies_inside_all_conditions_and_violates_nothing() -> None:
    card = json.loads((ROOT / "tables" / "diagnostics.json").read_text())
    assert len(card["conditions"]) == 9 and all(condition["holds"] for condition in card["conditions"])
    table = pd.read_csv(ROOT / "tables" / "diagnostics-lemmas.csv")
    assert list(dict.fromkeys(table["lemma"])) == LEMMAS and set(table["outcome"]) == {"holds"}
    assert table["round"].nunique() == card["settings"]["rounds"]
    H = pd.read_csv(ROOT / "tables" / "diagnostics.csv")["H"]
    assert (H.diff()[1:] < 0).all()
    said = (ROOT / "docs" / "lemmas.md").read_text()
    assert f"Its {card['settings']['rounds']} rounds" in said
    assert f"in every round, by {100 * (1 - H.iloc[-1] / H.iloc[0]):.2f} % in all" in said

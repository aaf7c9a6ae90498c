"""The theory's quantities are what their definitions say, and do what the lemmas say; bad input is one sentence."""

import json
import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from robustbench_dec.commands import app as cli
from robustbench_dec.data import tabular
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.problems.robust_logistic import RobustLogistic
from robustbench_dec.problems.universal import Universal
from robustbench_dec.specs.table import NetworkSpec
from robustbench_dec.theory.diagnostics import Constants, Onlooker, diagnose, quantities
from robustbench_dec.trainer import Trainer
from tests.support import ROOT
from trainers.dec_fedtrack import DecFedTrack, State
from trainers.gt_gda import GTGDA
from trainers.lu_gt import LUGT

QUIET = Quadratic(instance=4)
NOISY = Quadratic(m=8, noise=0.3)
RING = NetworkSpec(graph="ring", nodes=10)


def dec_fedtrack(K: int = 5, batch: int = 1, **settings: Any) -> DecFedTrack:
    return DecFedTrack(**{"eta_c": 0.1 / K, "eta_d": 0.4 / K, "K": K, "batch": batch} | settings)


def rows(trainer: Trainer, problem: Quadratic = QUIET, rounds: int = 20) -> pd.DataFrame:
    return diagnose(problem, trainer, RING, rounds, [0], progress=False).rows


def walk(trainer: DecFedTrack, problem: Quadratic, rounds: int) -> tuple[list[State], Oracle]:
    net = SimulatedNetwork(topology.build("ring", 10))
    oracle = Oracle(problem, 10, 0, net.ledger)
    path = [trainer.init(oracle, net)]
    for _ in range(rounds):
        path.append(trainer.step(path[-1], oracle, net))
    return path, oracle


def mean_square(Z: torch.Tensor, center: torch.Tensor) -> float:
    """(1/n) sum_i ||z_i - center||^2, node by node."""
    return sum(((z - center) ** 2).sum().item() for z in Z) / len(Z)


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [QUIET, NOISY], ids=["quiet", "noisy"])
def test_with_one_local_step_the_drift_is_the_client_variance(problem: Quadratic) -> None:
    frame = rows(dec_fedtrack(K=1), problem)[:-1]
    assert (frame["E_x"] - frame["Xi_x"]).abs().max() == 0 and (frame["E_y"] - frame["Xi_y"]).abs().max() == 0
    assert frame["Xi_x"].iloc[-1] > 0


def test_drift_is_the_sum_over_the_local_iterates_of_the_distance_from_the_rounds_start() -> None:
    trainer = dec_fedtrack(K=3, batch=2)
    path, _ = walk(trainer, NOISY, 6)
    frame = rows(trainer, NOISY, 6)
    net = SimulatedNetwork(topology.build("ring", 10))
    oracle = Oracle(NOISY, 10, 0, net.ledger)
    trainer.init(oracle, net)
    for t, (X, Y, C, D) in enumerate(path[:-1]):
        x_bar, y_bar = X.mean(0), Y.mean(0)
        E_x = E_y = 0.0
        for _ in range(3):
            E_x, E_y = E_x + mean_square(X, x_bar), E_y + mean_square(Y, y_bar)
            Gx, Gy = oracle.grad(X, Y, oracle.draw(2))
            X, Y = X - trainer.eta_c * (Gx + C), Y + trainer.eta_d * (Gy + D)
        assert frame["E_x"][t] == pytest.approx(E_x, rel=1e-12) and frame["E_y"][t] == pytest.approx(E_y, rel=1e-12)
    assert math.isnan(frame["E_x"].iloc[-1])


def test_looking_on_changes_neither_iterates_nor_costs() -> None:
    trainer = dec_fedtrack(K=3, batch=2)
    path, oracle = walk(trainer, NOISY, 6)
    net = SimulatedNetwork(topology.build("ring", 10))
    onlooker = Onlooker(NOISY, 10, 0, net.ledger)
    state = trainer.init(onlooker, net)
    for _ in range(6):
        onlooker.begin_round(state.X.mean(0), state.Y.mean(0))
        state = trainer.step(state, onlooker, net)
    assert all(torch.equal(a, b) for a, b in zip(state, path[-1], strict=True))
    assert net.ledger.row() == oracle.ledger.row()


def test_perfect_corrections_have_quality_0_and_none_have_the_heterogeneity() -> None:
    (state, *_), oracle = walk(dec_fedtrack(), NOISY, 0)
    exact = NOISY.exact(oracle.shards)
    Gx, Gy, _ = NOISY.grads(state.X, state.Y, oracle.shards)
    perfect = state._replace(C=Gx.mean(0) - Gx, D=Gy.mean(0) - Gy)
    now = quantities(perfect, NOISY, oracle.shards, exact, exact.l)
    assert now["gamma_x"] < 1e-28 and now["gamma_y"] < 1e-28 and now["mean_C"] < 1e-14
    without = quantities(state._replace(C=0 * Gx, D=0 * Gy), NOISY, oracle.shards, exact, exact.l)
    assert without["gamma_x"] == pytest.approx(mean_square(Gx, Gx.mean(0)) / exact.l**2, rel=1e-12)
    assert without["gamma_y"] == pytest.approx(mean_square(Gy, Gy.mean(0)) / exact.l**2, rel=1e-12)


def test_delta_and_the_lyapunov_function_are_their_formulas() -> None:
    trainer = dec_fedtrack(K=3, batch=2, eta_s=0.7, eta_r=0.5)
    path, oracle = walk(trainer, NOISY, 5)
    frame = rows(trainer, NOISY, 5)
    exact = NOISY.exact(oracle.shards)
    W = topology.build("ring", 10)
    p = topology.spectral_rate(W)
    v, K, eta_d, l, kappa = 0.7 / p, 3, trainer.eta_d, exact.l, exact.kappa  # noqa: E741
    assert exact.x_star is not None
    for t, (X, Y, C, D) in enumerate(path):
        x, y = X.mean(0), Y.mean(0)
        delta = ((torch.linalg.solve(exact.C, exact.B.T @ x + exact.c) - y) ** 2).sum().item()
        Xi = mean_square(X, x) + mean_square(Y, y)
        Gx, Gy, _ = NOISY.grads(x.repeat(10, 1), y.repeat(10, 1), oracle.shards)
        gamma = mean_square(C + Gx, Gx.mean(0)) / l**2 + mean_square(D + Gy, Gy.mean(0)) / l**2
        H = (exact.phi(x) - exact.phi(exact.x_star)).item()
        H += 6 * v / p * eta_d * K * l**2 * Xi
        H += (72 * v**3 + 24 * v) / p * K**3 * l**4 * eta_d**3 * gamma
        H += l / (24 * kappa) * delta  # the repaired coefficient, without 1/p
        assert frame["delta"][t] == pytest.approx(delta, rel=1e-9)
        assert frame["H"][t] == pytest.approx(H, rel=1e-9)
    assert frame["H_ratio"][1] == pytest.approx(frame["H"][1] / frame["H"][0])


# --- what the theory says ---------------------------------------------------------------------------------------------


def test_the_lyapunov_function_falls_in_every_round_with_admissible_step_sizes() -> None:
    first = diagnose(QUIET, dec_fedtrack(), RING, 1, [0], progress=False).constants
    settings: dict[str, Any] = first.admissible()
    trainer = dec_fedtrack(**settings)
    outcome = diagnose(QUIET, trainer, RING, 60, [0], progress=False)
    assert all(condition.holds for condition in outcome.constants.conditions())
    assert all(after < before for before, after in pairwise(outcome.rows["H"]))


@pytest.mark.slow
def test_on_a_quiet_quadratic_everything_but_the_means_falls_to_nothing() -> None:
    frame = rows(dec_fedtrack(K=2, eta_c=0.05, eta_d=0.2), rounds=300)
    last = frame.iloc[-2]
    assert last[["delta", "Xi_x", "Xi_y", "E_x", "E_y", "gamma_x", "gamma_y"]].max() < 1e-6 * frame["delta"][0]
    assert frame[["mean_C", "mean_D"]].max().max() < 1e-12  # Lemma A.3


@pytest.mark.slow
def test_with_noise_the_lemmas_zero_means_hold_too() -> None:
    assert rows(dec_fedtrack(batch=2), NOISY)[["mean_C", "mean_D"]].max().max() < 1e-12


def test_conditions_are_those_of_the_lemmas() -> None:
    constants = Constants(l=2.0, mu=0.5, p=0.25, K=3, eta_c=0.01, eta_d=0.02, eta_s=0.5, eta_r=0.25)
    assert (constants.kappa, constants.eta_x, constants.eta_y, constants.v) == (4.0, 0.005, 0.005, 2.0)
    limits = {condition.text: condition.limit for condition in constants.conditions()}
    assert limits["eta_c <= 1 / (8 K l)"] == pytest.approx(1 / 48)
    assert limits["eta_x <= sqrt(p / 24) / (K l)"] == pytest.approx(0.5 / math.sqrt(24) / 6)
    assert limits["eta_y <= 1 / (K l)"] == pytest.approx(1 / 6)
    assert limits["eta_x <= eta_y / (4 sqrt(6) kappa^2)"] == pytest.approx(0.005 / (4 * math.sqrt(6) * 16))
    assert limits["eta_x <= 1 / (16 K l kappa)"] == pytest.approx(1 / 384)
    assert limits["eta_d <= p / (200 v kappa K l)"] == pytest.approx(0.25 / 9600)
    assert limits["eta_c <= eta_d / (600 kappa^2)"] == pytest.approx(0.02 / 9600)
    broken = [condition.text for condition in constants.conditions() if not condition.holds]
    assert broken == [
        "eta_x <= eta_y / (4 sqrt(6) kappa^2)",
        "eta_x <= 1 / (16 K l kappa)",
        "eta_d <= p / (200 v kappa K l)",
        "eta_c <= eta_d / (600 kappa^2)",
    ]


@pytest.mark.parametrize("p", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("K", [1, 20])
def test_admissible_step_sizes_are_admissible(p: float, kappa: float, K: int) -> None:
    constants = Constants(l=3.0, mu=3.0 / kappa, p=p, K=K, eta_c=1.0, eta_d=1.0)
    settings: dict[str, Any] = constants.admissible()
    better = replace(constants, **settings)
    assert all(condition.holds for condition in better.conditions())
    assert not replace(better, eta_d=1.01 * better.eta_d).conditions()[7].holds


def test_lu_gt_is_diagnosed_by_its_own_letters() -> None:
    outcome = diagnose(QUIET, LUGT(eta_x=0.02, eta_y=0.08, K=2), RING, 5, [0, 1], progress=False)
    assert (outcome.constants.eta_c, outcome.constants.eta_d, outcome.constants.eta_s) == (0.02, 0.08, 1.0)
    assert len(outcome.rows) == 2 * 6 and outcome.rows["E_x"].notna().sum() == 2 * 5


def test_robust_logistic_is_diagnosed_with_its_exact_maximiser() -> None:
    problem = RobustLogistic()
    trainer = dec_fedtrack(K=2, eta_c=1e-3, eta_d=1e-5, batch=problem.m)
    outcome = diagnose(problem, trainer, RING, 3, [0], progress=False)
    assert outcome.rows["delta"][0] == pytest.approx(0, abs=1e-20)  # at x = 0 all losses, and so all weights, are equal
    assert outcome.rows["delta"][1] > 0 and outcome.rows["grad_phi"].gt(0).all()
    assert outcome.record["phi_star"] == {"value": outcome.rows["phi"].min(), "exact": False}


# --- files ------------------------------------------------------------------------------------------------------------


def run_cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line."""
    monkeypatch.setattr(sys, "argv", ["robustbench-dec", *words])
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.slow
def test_the_command_writes_rows_card_and_pictures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["diagnose", "--rounds", "4", "--seeds", "2", "--set", "K=2", "--output", str(tmp_path / "here" / "now")]
    code, out, _ = run_cli(capsys, monkeypatch, *words)
    assert code == 0 and "admissible: eta_s = 0.238" in out and "Lemma A.10" in out and "p = 0.2384" in out
    frame = pd.read_csv(tmp_path / "here" / "now.csv")
    assert len(frame) == 2 * 5 and {"Xi_x", "E_y", "gamma_x", "delta", "H", "mean_D"} <= set(frame)
    card = json.loads((tmp_path / "here" / "now.json").read_text())
    assert card["settings"]["trainer"]["K"] == 2 and len(card["conditions"]) == 9 and card["phi_star"]["exact"]
    assert (tmp_path / "here" / "now.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "here" / "now.pdf").read_bytes()[:4] == b"%PDF"


def test_the_committed_example_is_what_its_card_says(tmp_path: Path) -> None:
    stem = ROOT / "tables" / "diagnostics"
    card = json.loads(stem.with_suffix(".json").read_text())
    problem = dict(card["settings"]["problem"])
    problem.pop("dtype")
    trainer = dict(card["settings"]["trainer"])
    assert trainer.pop("title") == "Dec-FedTrack"
    network = NetworkSpec(**card["settings"]["network"])
    outcome = diagnose(Quadratic(**problem), DecFedTrack(**trainer), network, 20, [0], progress=False)
    committed = pd.read_csv(stem.with_suffix(".csv"))
    committed = committed[(committed["seed"] == 0) & (committed["round"] < 20)]
    for name in ("grad_phi", "delta", "Xi_x", "Xi_y", "E_x", "E_y", "gamma_x", "gamma_y", "H"):
        assert committed[name].tolist() == pytest.approx(outcome.rows[name][:20].tolist(), rel=1e-4), name
    assert stem.with_suffix(".png").is_file() and stem.with_suffix(".pdf").is_file()


# --- bad input --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_diagnosed_is_refused() -> None:
    with pytest.raises(BadInput, match=r"need a trainer with the states X, Y, C, D, but GT-GDA has no C and no D"):
        diagnose(QUIET, GTGDA(eta_x=0.1, eta_y=0.2), RING, 2, [0], progress=False)
    with pytest.raises(BadInput, match="a problem whose Phi is known, quadratic or robust_logistic, not Universal"):
        diagnose(Universal(), dec_fedtrack(), RING, 2, [0], progress=False)
    with pytest.raises(BadInput, match="at least 1 round, not 0"):
        diagnose(QUIET, dec_fedtrack(), RING, 0, [0], progress=False)
    with pytest.raises(Diverged, match=r"diverged in round .* smaller step sizes would do"):
        diagnose(QUIET, dec_fedtrack(eta_c=1e150, eta_d=1e150), RING, 9, [0], progress=False)


SENTENCES = {
    "K below 1": (["--set", "K=0"], "DecFedTrack's K must be at least 1 local step, not 0"),
    "batch above a shard": (
        ["--problem-set", "m=8", "--set", "batch=9"],
        "a batch must have 1 to 8 samples, the size of a node's share, not 9",
    ),
    "restart period of 0": (
        ["--trainer", "gt_srvr", "--set", "q=0"],
        "GTSRVR's q, the period of restarts, must be at least 1 step, not 0",
    ),
    "restart period of 0 in DGDA-VR": (
        ["--trainer", "dgda_vr", "--set", "q=0"],
        "DGDAVR's q, the period of restarts, must be at least 1 step, not 0",
    ),
    "unknown trainer": (["--trainer", "adam"], "no trainer 'adam'; there are: "),
    "unknown problem": (["--problem", "cubic"], "no problem 'cubic'; there are: adversarial, quadratic, "),
    "no corrections": (
        ["--trainer", "gt_gda"],
        "diagnostics need a trainer with the states X, Y, C, D, but GT-GDA has no C",
    ),
}


@pytest.mark.parametrize("what", SENTENCES)
def test_bad_input_on_the_command_line_is_one_sentence(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words, sentence = SENTENCES[what]
    code, _, err = run_cli(capsys, monkeypatch, "diagnose", *words, "--output", str(tmp_path / "d"))
    assert code == 2 and err.count("\n") == 1
    assert err.startswith(f"robustbench-dec: {sentence}")
    assert not list(tmp_path.iterdir())


def test_labels_of_three_kinds_are_refused_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    features, labels = sparse.csr_matrix(np.eye(30)), np.arange(30) % 3.0
    monkeypatch.setattr(tabular, "_breast_cancer", lambda: ((features, labels), (features, labels), []))
    words = ["diagnose", "--problem", "robust_logistic", "--output", str(tmp_path / "d")]
    code, _, err = run_cli(capsys, monkeypatch, *words)
    sentence = "breast_cancer should have two kinds of labels, for example -1 and +1, not 3 (0, 1, 2)"
    assert code == 2 and err == f"robustbench-dec: {sentence}\n"


def test_a_y_that_starts_off_the_simplex_is_refused() -> None:
    sentence = (
        "y0 must lie in the simplex, its coordinates 0 or more with the sum 1, not have the sum 1.1 and the smallest "
        "coordinate 0.5"
    )
    with pytest.raises(BadInput) as refusal:
        RobustLogistic(y0=(0.5, 0.6))
    assert str(refusal.value) == sentence


def test_the_device_is_where_it_trains() -> None:
    with pytest.raises(RuntimeError, match="meta"):  # tensors there have no values to tell
        diagnose(QUIET, dec_fedtrack(), RING, 2, [0], device="meta", progress=False)

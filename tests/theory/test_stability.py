"""The linearised round: its spectral radius is what runs do, and is known where the map is known."""

from typing import Any

import numpy as np
import pytest
import torch

from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.specs.table import NetworkSpec
from robustbench_dec.theory.stability import spectral_radius
from robustbench_dec.trainer import Trainer
from tests.support import ROOT
from trainers.dec_fedtrack import DecFedTrack
from trainers.dream import Dream
from trainers.gt_da import GTDA
from trainers.gt_gda import GTGDA
from trainers.gt_srvr import GTSRVR
from trainers.local_sgda import LocalSGDA

RING = NetworkSpec(graph="ring", nodes=10)
BENCH = Quadratic(m=4, noise=0.1, heterogeneity=0.0)


def radius(trainer: Trainer, problem: Quadratic = BENCH, network: NetworkSpec = RING) -> float:
    return spectral_radius(trainer, problem, network.connect(0))


def test_the_radius_of_one_node_is_that_of_gradient_descent_ascent() -> None:
    """[[I - eta_x A, -eta_x B], [eta_y B', I - eta_y C]], whose powers are K local steps."""
    alone = NetworkSpec(graph="complete", nodes=1, weights="uniform")
    exact = Quadratic().exact(Quadratic().shards(1, 0))
    A, B, C = exact.A.numpy(), exact.B.numpy(), exact.C.numpy()
    M = np.block([[np.eye(6) - 0.1 * A, -0.1 * B], [0.2 * B.T, np.eye(4) - 0.2 * C]])
    expected = np.abs(np.linalg.eigvals(M)).max()
    assert radius(LocalSGDA(0.1, 0.2, K=1, batch=1), Quadratic(), alone) == pytest.approx(expected, rel=1e-9)
    assert radius(LocalSGDA(0.1, 0.2, K=3, batch=1), Quadratic(), alone) == pytest.approx(expected**3, rel=1e-9)


@pytest.mark.slow
def test_the_step_size_that_table_1_once_took_diverges() -> None:
    """K = 5 at .1 and .4 on equal nodes: the norm passes 1e-2 early and grows later."""
    assert radius(DecFedTrack(0.1, 0.4, K=5, batch=4)) == pytest.approx(1.008, abs=5e-4)
    assert radius(DecFedTrack(0.1, 0.4, K=1, batch=4)) == pytest.approx(0.972, abs=5e-4)
    assert radius(DecFedTrack(0.05, 0.2, K=5, batch=4)) == pytest.approx(0.988, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trainer",
    [
        GTGDA(0.1, 0.4),
        GTGDA(0.1, 0.4, order="cta"),
        GTDA(0.1, 0.3, period=3),
        GTSRVR(0.1, 0.4, q=1, batch=4),
        DecFedTrack(0.05, 0.2, K=5, batch=4),
        DecFedTrack(0.1, 0.4, K=5, batch=4),
    ],
    ids=lambda trainer: trainer.title,
)
def test_the_radius_is_the_rate_at_which_two_rounds_part_or_meet(trainer: Trainer) -> None:
    """The difference of consecutive states is multiplied by A in every round; nodes start apart."""
    problem = Quadratic(m=4, noise=0.0, heterogeneity=0.0)
    net = RING.connect(0)
    oracle = Oracle(problem, 10, 0, net.ledger)
    state: Any = trainer.init(oracle, net)
    state = state._replace(X=state.X + torch.from_numpy(np.random.default_rng(0).standard_normal(state.X.shape)))
    period = getattr(trainer, "period", 1)
    norms = []
    for t in range(1, 200 * period + 1):
        before, state = state, trainer.step(state, oracle, net)
        if t % period == 0:
            norms.append(float((state.X - before.X).norm() + (state.Y - before.Y).norm()))
    whole = [norm for norm in norms if norm > 1e-11]
    half = len(whole) // 2
    rate = (whole[-1] / whole[half]) ** (1 / (period * (len(whole) - 1 - half)))
    assert rate == pytest.approx(radius(trainer, problem), abs=0.012)


def test_dream_with_one_round_of_fastmix_is_stable_where_gossip_is_halved() -> None:
    assert radius(Dream(0.1, 0.4, K=1, batch=4, big_batch=4)) < 1


def test_a_round_that_is_not_affine_is_refused() -> None:
    with pytest.raises(BadInput, match="a round is affine only where y is free and Phi quadratic"):
        radius(GTGDA(0.1, 0.4), Quadratic(bound=0.5, coercive=True))


def test_numbers_in_the_text_about_agreement_are_computed() -> None:
    said = (ROOT / "docs" / "agreement.md").read_text()
    W = topology.build("ring", 20)
    root = np.sqrt(topology.spectral_rate(W))
    eta = (1 - root) / (1 + root)
    overwritten = np.linalg.matrix_power((1 + eta) * W - eta * np.eye(20), 2)
    assert (
        f"spectral norm {np.linalg.norm(overwritten - 1 / 20, 2):.2f} on the lazy ring of 20 with pi = 1/3 and K = 2"
        in said
    )
    gap = 1 - np.linalg.eigvalsh(topology.build("ring", 8, "lazy", 0.999))[-2]
    assert f"1 - lambda_2 = {gap:.0e}".replace("e-0", "e-") in said
    p = q = 0.5
    assert f"with p = q = {p}, its defaults, theirs multiplies the error's second moment by {grown(p, q):.2f}" in said


def grown(p: float, q: float) -> float:
    """The factor of the mean square of the estimate's error in a step of DREAM's public script, over both coins.

    Without noise and at rest, g_B(z) = g_B(z_old) = z; the old estimate is off by 1.
    """
    z, g_old = 3.0, 4.0
    outcomes = {"afresh": (p, z), "recursive": ((1 - p) * q, z + (g_old - z) / q), "kept": ((1 - p) * (1 - q), g_old)}
    assert sum(chance for chance, _ in outcomes.values()) == 1
    return sum(chance * (estimate - z) ** 2 for chance, estimate in outcomes.values())

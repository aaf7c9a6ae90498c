"""What travels between nodes, what it costs, and which samples they see."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_chebyu
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import LONG, SHORT, Gossip, SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Batch, Problem
from robustbench_dec.problems.quadratic import Quadratic
from tests.support.matrices import DIRECTED, usual_graphs

matrices = st.one_of(
    usual_graphs,
    st.builds(
        topology.build,
        st.just("erdos_renyi"),
        st.integers(2, 9),
        st.just("metropolis"),
        probability=st.floats(0.4, 1),
        seed=st.integers(0, 99),
    ),
    st.just(DIRECTED),
)


def stack(nodes: int, width: int, seed: int) -> Tensor:
    return torch.randn(nodes, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Gossip


@settings(deadline=None, max_examples=40)
@given(W=matrices, width=st.integers(1, 5), seed=st.integers(0, 99))
def test_mixing_is_the_product_with_w_and_keeps_the_mean(W: np.ndarray, width: int, seed: int) -> None:
    Z = stack(len(W), width, seed)
    before = Z.clone()
    mixed = SimulatedNetwork(W).mix(Z)
    assert (mixed - torch.from_numpy(W) @ Z).abs().max() < 1e-12
    assert (mixed.mean(0) - Z.mean(0)).abs().max() < 1e-12
    assert Z.equal(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), (SHORT,), (SHORT // 4 + 1, 5), (LONG,)])
def test_rows_short_and_long_are_mixed_to_the_last_bit_as_by_a_process_that_holds_some_of_them(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    W = topology.build("erdos_renyi", 7, "metropolis", probability=0.4, seed=3)
    Z = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    gossip = Gossip(0, W)
    mixed = gossip(Z)
    assert mixed.dtype == dtype and mixed.shape == Z.shape
    exact = (torch.from_numpy(W) @ Z.double().flatten(1)).view(Z.shape)
    assert (mixed - exact).abs().max() < 20 * torch.finfo(dtype).eps
    known = [3, 4, *(j for j in reversed(range(7)) if j not in (3, 4))]  # its own rows first, as they come
    part = gossip.part(range(3, 5), {j: place for place, j in enumerate(known)})
    assert torch.equal(part(Z[known]), mixed[3:5])


@settings(deadline=None, max_examples=25)
@given(W=matrices, rounds=st.integers(1, 8), seed=st.integers(0, 99))
def test_fast_mixing_keeps_the_mean(W: np.ndarray, rounds: int, seed: int) -> None:
    Z = stack(len(W), 3, seed)
    before = Z.clone()
    try:
        mixed = SimulatedNetwork(W).fastmix(Z, rounds=rounds)
    except BadInput:  # so few rounds would swing
        return
    assert (mixed.mean(0) - Z.mean(0)).abs().max() < 1e-12
    assert Z.equal(before)


@pytest.mark.parametrize("graph, nodes", [("ring", 10), ("star", 6), ("torus", 9)])
@pytest.mark.parametrize("K", [1, 2, 3, 7])
def test_fast_mixing_is_a_chebyshev_polynomial_of_w(graph: str, nodes: int, K: int) -> None:
    """p_K(w) = eta^(K/2) (U_K(w / l) - sqrt(eta) U_{K-1}(w / l)), U of the second kind, on every eigenvalue w of W."""
    W = (np.eye(nodes) + topology.build(graph, nodes, "metropolis")) / 2
    values, vectors = np.linalg.eigh(W)
    largest = max(abs(values[0]), abs(values[-2]))  # below the eigenvalue 1 of the mean
    root = np.sqrt(1 - largest**2)
    eta = (1 - root) / (1 + root)
    polynomial = eta ** (K / 2) * (
        eval_chebyu(K, values / largest) - np.sqrt(eta) * eval_chebyu(K - 1, values / largest)
    )
    expected = vectors @ np.diag(polynomial) @ vectors.T
    np.testing.assert_allclose(
        SimulatedNetwork(W).fastmix(torch.eye(nodes, dtype=torch.float64), rounds=K), expected, atol=1e-12
    )


@pytest.mark.parametrize("K", [2, 3, 5, 10, 20])
def test_fast_mixing_contracts_faster_than_as_many_plain_mixings(K: int) -> None:
    W = topology.build("ring", 10, "uniform")  # weights 1/3
    assert W[0, 0] == W[0, 1] == pytest.approx(1 / 3)
    distance = torch.eye(10, dtype=torch.float64) - 1 / 10
    fast = np.linalg.norm(SimulatedNetwork(W).fastmix(distance, rounds=K), 2)
    plain = np.linalg.norm(np.linalg.matrix_power(W, K) @ distance.numpy(), 2)
    assert fast < plain
    if K == 20:
        assert fast < plain / 50  # a rate of 1 - sqrt(1 - l) and not of l


def test_stacks_of_any_shape_and_precision_mix_row_by_row() -> None:
    net = SimulatedNetwork(topology.build("ring", 5))
    images = torch.rand(5, 2, 3, 3)
    assert net.mix(images.flatten(1)).dtype == torch.float32
    W = torch.from_numpy(net.W).float()
    assert (net.mix(images.flatten(1)) - W @ images.flatten(1)).abs().max() < 1e-6


def test_one_stack_comes_back_bare_and_several_as_they_were_given() -> None:
    net = SimulatedNetwork(topology.build("ring", 5))
    X, Y = stack(5, 3, 0), stack(5, 2, 1)
    for both, alone in (
        (net.mix(X, Y), [net.mix(X), net.mix(Y)]),
        (net.fastmix(X, Y, rounds=3), [net.fastmix(X, rounds=3), net.fastmix(Y, rounds=3)]),
        (net.mean(X, Y), [net.mean(X), net.mean(Y)]),
    ):
        assert isinstance(both, tuple)
        assert all(together.equal(other) for together, other in zip(both, alone, strict=True))


@pytest.mark.parametrize("rounds", [0, -1])
def test_fast_mixing_without_rounds_is_refused(rounds: int) -> None:
    with pytest.raises(BadInput, match=f"at least 1 round of gossip, not {rounds}"):
        SimulatedNetwork(DIRECTED).fastmix(torch.eye(4), rounds=rounds)


def test_a_matrix_that_does_not_mix_makes_no_network() -> None:
    with pytest.raises(BadInput, match="connect all nodes"):
        SimulatedNetwork(np.eye(3))


# Costs


@pytest.mark.parametrize(
    "W, edges",
    [
        (topology.build("ring", 6), 12),
        (topology.build("complete", 4), 12),
        (topology.build("star", 5, "metropolis"), 8),
        (DIRECTED, 4),
        (np.ones((1, 1)), 0),
    ],
    ids=["ring", "complete", "star", "directed", "alone"],
)
def test_messages_and_bytes_follow_the_formulas(W: np.ndarray, edges: int) -> None:
    """One exchange: a message over every directed edge; the payload is one row of each stack."""
    net = SimulatedNetwork(W)
    X, Y = torch.zeros(len(W), 7, dtype=torch.float64), torch.zeros(len(W), 3, dtype=torch.float32)
    row = 7 * 8 + 3 * 4
    net.mix(X, Y)
    assert net.ledger == Ledger(len(W), edges, exchanges=1, messages=edges, bytes_per_edge=row)
    net.fastmix(X, Y, rounds=4)
    assert net.ledger == Ledger(len(W), edges, exchanges=5, messages=5 * edges, bytes_per_edge=5 * row)
    net.mean(X, Y)
    assert net.ledger == Ledger(len(W), edges, exchanges=5, messages=5 * edges, bytes_per_edge=5 * row, all_reduces=1,
                                server_bytes=2 * row)  # fmt: skip


def test_an_exact_mean_is_the_same_in_every_row() -> None:
    Z = stack(5, 3, 0)
    mean = SimulatedNetwork(topology.build("ring", 5)).mean(Z)
    assert mean.shape == Z.shape
    assert (mean - Z.mean(0)).abs().max() == 0


# Samples


@dataclass(frozen=True)
class Numbered(Problem):
    """Node i holds the numbers 100 i, 100 i + 1, ..., so that a draw tells which samples it took."""

    m: int = 20

    def start(self, seed: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(1), torch.zeros(1)

    def loss(self, x: Tensor, y: Tensor | None, batch: Batch) -> Tensor:
        raise AssertionError("no test here differentiates")

    def project(self, Y: Tensor) -> Tensor:
        return Y

    def shards(self, nodes: int, seed: int) -> Batch:
        numbers = 100 * torch.arange(nodes)[:, None] + torch.arange(self.m)
        return numbers, -numbers


def oracle(seed: int = 0, nodes: int = 4, m: int = 20) -> Oracle:
    return Oracle(Numbered(m), nodes, seed, Ledger(nodes, 0))


def drawn(size: int, draws: int = 0, **where: Any) -> Tensor:
    """The samples (n, size) of a fresh oracle at a position, without the nodes' hundreds."""
    fresh = oracle(**where)
    fresh.draws = draws
    return fresh.draw(size)[0] % 100


def test_a_draw_is_a_function_of_seed_node_and_position() -> None:
    undisturbed = oracle(seed=3)
    for k in range(12):
        size = 1 + k % 5
        assert (undisturbed.draw(size)[0] % 100).equal(drawn(size, draws=k, seed=3))
    assert undisturbed.draws == 12


def test_a_nodes_draw_does_not_depend_on_the_nodes_beside_it() -> None:
    assert drawn(5, nodes=2).equal(drawn(5, nodes=7)[:2])


def test_seeds_nodes_and_positions_draw_differently() -> None:
    rows = [tuple(row.tolist()) for seed in range(3) for k in range(5) for row in drawn(8, draws=k, seed=seed)]
    assert len(set(rows)) == len(rows) == 3 * 5 * 4


def test_global_random_states_decide_nothing() -> None:
    before = torch.get_rng_state(), repr(np.random.get_state())
    first = drawn(5)
    assert torch.get_rng_state().equal(before[0]) and repr(np.random.get_state()) == before[1]
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert drawn(5).equal(first)


@settings(deadline=None, max_examples=40)
@given(size=st.integers(1, 20), draws=st.integers(0, 2**40), seed=st.integers(0, 2**32))
def test_a_minibatch_never_repeats_a_sample_and_belongs_to_its_node(size: int, draws: int, seed: int) -> None:
    fresh = oracle(seed)
    fresh.draws = draws
    numbers, negated = fresh.draw(size)
    assert numbers.shape == (4, size)
    assert all(len(set(row)) == size for row in numbers.tolist())
    assert (numbers // 100).equal(torch.arange(4)[:, None].expand(4, size))
    assert negated.equal(-numbers)  # images stay with their labels


def test_a_batch_of_all_samples_is_the_nodes_whole_share() -> None:
    assert drawn(20).equal(torch.arange(20).expand(4, 20))


@pytest.mark.parametrize("size", [0, -1, 21])
def test_a_batch_that_no_node_can_fill_is_refused(size: int) -> None:
    fresh = oracle()
    with pytest.raises(BadInput, match=f"1 to 20 samples, the size of a node's share, not {size}"):
        fresh.draw(size)
    assert fresh.draws == 0


def test_every_sample_is_drawn_equally_often() -> None:
    fresh = oracle(nodes=1, m=5)
    counts = torch.bincount(torch.cat([fresh.draw(2)[0][0] for _ in range(1500)]), minlength=5)
    assert (counts - 600).abs().max() < 5 * (1500 * 0.4 * 0.6) ** 0.5  # five standard deviations


def test_every_node_has_a_fair_coin_of_its_own_that_is_a_function_of_its_position() -> None:
    fresh = oracle(seed=1)
    tosses = torch.cat([fresh.coins(0.3).heads for _ in range(600)], 1)  # (nodes, 600)
    assert fresh.draws == 600
    assert (tosses.sum(1) - 180).abs().max() < 5 * (600 * 0.3 * 0.7) ** 0.5
    both = (tosses[0] & tosses[1]).sum().item()
    assert abs(both - 600 * 0.09) < 5 * (600 * 0.09 * 0.91) ** 0.5  # neither shared nor opposite
    again = oracle(seed=1)
    again.draws = 100
    assert torch.equal(torch.cat([again.coins(0.3).heads for _ in range(20)], 1), tosses[:, 100:120])
    assert oracle().coins(0.0).count == 0 and oracle().coins(1.0).count == fresh.nodes
    first = oracle(seed=1).coins(0.3)
    assert not (oracle(seed=1).coins(1.0, but=first).heads & first.heads).any()


def test_only_the_busy_nodes_are_asked_and_the_ledger_has_the_mean() -> None:
    def oracle(seed: int) -> Oracle:
        return Oracle(Quadratic(m=5, noise=0.3), 7, seed, Ledger(7, 0))

    fresh = oracle(seed=1)
    X, Y = fresh.start()
    toss = fresh.coins(0.5)
    assert 0 < toss.count < fresh.nodes
    Gx, Gy = fresh.some_grad(X, Y, fresh.draw(3, toss), toss)
    again = oracle(seed=1)
    again.coins(0.5)
    all_x, all_y = again.grad(X, Y, again.draw(3))
    assert torch.equal(Gx, all_x[toss.places]) and torch.equal(Gy, all_y[toss.places])
    assert fresh.ledger.sfo == 3 * toss.count // fresh.nodes
    assert fresh.ledger.parts.get("sfo", 0) == 2 * (3 * toss.count % fresh.nodes)


@pytest.mark.parametrize("nodes, rounds, lazy", [(10, 2, False), (10, 1, True), (20, 1, True), (20, 3, False)])
def test_fast_mixing_that_would_swing_mixes_with_half_of_itself(nodes: int, rounds: int, lazy: bool) -> None:
    W = topology.build("ring", nodes)
    M = SimulatedNetwork(W).fastmix(torch.eye(nodes, dtype=torch.float64), rounds=rounds).numpy()
    V = (np.eye(nodes) + W) / 2 if lazy else W
    root = np.sqrt(topology.spectral_rate(V))
    eta = (1 - root) / (1 + root)
    U_prev = U = np.eye(nodes)
    for _ in range(rounds):
        U_prev, U = U, (1 + eta) * V @ U - eta * U_prev
    np.testing.assert_allclose(M, U, atol=1e-12)
    values = np.linalg.eigvalsh(M)
    assert values[0] >= -0.5 and values[-1] == pytest.approx(1) and values[-2] < 1


def test_fast_mixing_that_swings_all_the_same_is_refused() -> None:
    net = SimulatedNetwork(topology.build("ring", 50))
    sentence = r"fastmix with 3 rounds of gossip would turn the nodes' differences around .*; (\d+) rounds would do"
    with pytest.raises(BadInput, match=sentence) as refusal:
        net.fastmix(torch.eye(50), rounds=3)
    enough = re.search(r"; (\d+) rounds", str(refusal.value))
    assert enough and net.ledger.exchanges == 0
    net.fastmix(torch.eye(50), rounds=int(enough[1]))


def test_a_draw_is_a_function_of_seed_node_and_draw_as_by_a_generator_of_its_own() -> None:
    oracle = Oracle(Quadratic(m=9, noise=0.1), 4, 5, Ledger(4, directed_edges=8))
    for draws in range(3):
        oracle.draws = draws
        drawn = oracle.draw(4)
        oracle.draws = draws
        heads = oracle.coins(0.5).heads[:, 0].tolist()
        for i in range(4):
            own = [np.random.Philox(key=[5, i], counter=[0, kind, 0, draws]) for kind in (0, 1)]
            samples = np.random.Generator(own[0]).choice(9, 4, replace=False, shuffle=False)
            assert all(
                torch.equal(part[i], whole[i, samples]) for part, whole in zip(drawn, oracle.shards, strict=True)
            )
            assert heads[i] == (np.random.Generator(own[1]).random() < 0.5)

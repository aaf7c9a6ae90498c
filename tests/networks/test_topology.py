"""What every mixing matrix promises, and how a bad one is refused."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.networks.topology import GRAPHS, WEIGHTS, build, check, spectral_rate

ANY_SIZE = ("ring", "complete", "star", "path", "exponential", "erdos_renyi")
REGULAR = ("ring", "complete", "exponential")
DIRECTED_RING = (np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2  # doubly stochastic, not symmetric


def assert_mixes(W: np.ndarray, nodes: int) -> None:
    assert W.shape == (nodes, nodes) and W.dtype == np.float64
    assert W.min() >= 0
    np.testing.assert_allclose(W, W.T, atol=1e-15)
    np.testing.assert_allclose(W.sum(1), 1, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(W)
    assert spectral_rate(W) == pytest.approx(1 - max([0, *np.abs(eigenvalues[:-1])]) ** 2, abs=1e-12)
    assert 0 < spectral_rate(W) <= 1 + 1e-12


@pytest.mark.slow
@given(st.sampled_from(ANY_SIZE), st.integers(1, 24), st.integers(0, 5))
def test_metropolis_weights_mix_on_every_graph(graph: str, nodes: int, seed: int) -> None:
    assert_mixes(build(graph, nodes, "metropolis", seed=seed), nodes)


@pytest.mark.slow
@given(st.sampled_from(REGULAR), st.integers(1, 24), st.sampled_from(WEIGHTS), st.floats(0.01, 0.99))
def test_all_weights_mix_on_regular_graphs(graph: str, nodes: int, weights: str, pi: float) -> None:
    assert_mixes(build(graph, nodes, weights, pi), nodes)


@given(st.integers(2, 5), st.integers(2, 5), st.sampled_from(WEIGHTS))
def test_a_torus_is_the_product_of_two_rings(rows: int, columns: int, weights: str) -> None:
    W = build("torus", rows * columns, weights, shape=(rows, columns))
    assert_mixes(W, rows * columns)
    product = nx.cartesian_product(*(nx.path_graph(2) if k == 2 else nx.cycle_graph(k) for k in (rows, columns)))
    expected = nx.to_numpy_array(product, nodelist=sorted(product), weight=None) > 0
    np.testing.assert_array_equal((W > 0) & ~np.eye(len(W), dtype=bool), expected)


def test_a_torus_is_as_square_as_its_nodes_allow() -> None:
    np.testing.assert_array_equal(build("torus", 12), build("torus", 12, shape=(3, None)))
    np.testing.assert_array_equal(build("torus", 12, shape=(None, 6)), build("torus", 12, shape=(2, 6)))


@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_hypercube_neighbours_differ_in_one_bit(nodes: int, weights: str) -> None:
    W = build("hypercube", nodes, weights)
    assert_mixes(W, nodes)
    for i in range(nodes):
        for j in range(nodes):
            assert (W[i, j] > 0) == ((i ^ j).bit_count() <= 1)


def test_exponential_neighbours_are_powers_of_two_away() -> None:
    W = build("exponential", 16, "uniform")
    assert set(np.flatnonzero(W[0])) == {0, 1, 2, 4, 8, 12, 14, 15}


@pytest.mark.parametrize(
    ("nodes", "pi", "second", "rate"),
    [
        (10, 1 / 3, 0.8727, 0.2384),
        (10, 1 / 2, 0.9045, 0.1819),
        (10, 0.999, 0.99981, 3.8e-4),
        (8, 0.999, 0.99971, 5.9e-4),
        (5, 1 / 3, 0.5393, 0.709),
        (20, 1 / 3, 0.9674, 0.0642),
    ],
)
def test_lazy_rings_have_the_published_rates(nodes: int, pi: float, second: float, rate: float) -> None:
    W = build("ring", nodes, "lazy", pi)
    assert np.linalg.eigvalsh(W)[-2] == pytest.approx(second, abs=5e-5)
    assert spectral_rate(W) == pytest.approx(rate, rel=1e-2)


@given(st.integers(3, 30), st.floats(0.01, 0.99))
def test_lazy_ring_eigenvalues_are_known_in_closed_form(nodes: int, pi: float) -> None:
    expected = np.sort(pi + (1 - pi) * np.cos(2 * np.pi * np.arange(nodes) / nodes))
    np.testing.assert_allclose(np.linalg.eigvalsh(build("ring", nodes, "lazy", pi)), expected, atol=1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 7])
def test_uniform_weights_on_the_complete_graph_give_the_mean_at_once(nodes: int) -> None:
    W = build("complete", nodes, "uniform")
    np.testing.assert_allclose(W, 1 / nodes)
    assert spectral_rate(W) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("graph", [graph for graph in GRAPHS if graph != "file"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_one_node_listens_to_itself(graph: str, weights: str) -> None:
    np.testing.assert_array_equal(build(graph, 1, weights), [[1.0]])


def test_a_ring_of_two_is_one_edge() -> None:
    np.testing.assert_allclose(build("ring", 2), [[1 / 3, 2 / 3], [2 / 3, 1 / 3]])


def test_repeated_gossip_reaches_the_mean_at_the_spectral_rate() -> None:
    W = build("star", 6, "metropolis")
    X = np.random.default_rng(0).standard_normal((6, 3))
    spread = X - X.mean(0)
    for _ in range(20):
        mixed = W @ spread
        assert np.sum(mixed**2) <= (1 - spectral_rate(W)) * np.sum(spread**2) * (1 + 1e-9)
        spread = mixed


def test_erdos_renyi_is_a_function_of_its_seed_and_always_connected() -> None:
    drawn = [build("erdos_renyi", 9, "metropolis", probability=0.2, seed=seed) for seed in range(8)]
    again = [build("erdos_renyi", 9, "metropolis", probability=0.2, seed=seed) for seed in range(8)]
    np.testing.assert_array_equal(drawn, again)
    assert any(not np.array_equal(W, drawn[0]) for W in drawn)
    assert any(not nx.is_connected(nx.gnp_random_graph(9, 0.2, seed=seed)) for seed in range(8))  # so some were redrawn


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".npy"])
@pytest.mark.parametrize(
    "W", [DIRECTED_RING, build("star", 4, "metropolis"), np.eye(1)], ids=["directed", "star", "one"]
)
def test_a_users_matrix_comes_back_as_it_was_written(tmp_path: Path, suffix: str, W: np.ndarray) -> None:
    path = tmp_path / f"W{suffix}"
    if suffix == ".npy":
        np.save(path, W)
    else:
        np.savetxt(path, W, delimiter="," if suffix == ".csv" else " ")
    np.testing.assert_array_equal(build("file", len(W), matrix=path), W)


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "W.csv").write_text("0.25,0.75\n0.75,0.25\n", encoding="utf-8-sig")
    np.testing.assert_array_equal(build("file", 2, matrix=tmp_path / "W.csv"), [[0.25, 0.75], [0.75, 0.25]])


def test_an_asymmetric_matrix_is_rated_by_its_singular_values() -> None:
    assert spectral_rate(check(DIRECTED_RING)) == pytest.approx(0.5)  # |1/2 + i/2|^2 = 1/2


@pytest.mark.parametrize(
    ("W", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 sums to 0.9 instead of 1"),
        ([[0.5, 0.5], [0.6, 0.4]], "column 0 sums to 1.1"),
        ([[0.5 + 3e-8, 0.5], [0.5, 0.5]], "doubly stochastic"),
        ([[1.5, -0.5], [-0.5, 1.5]], "non-negative, but W[0, 1] = -0.5"),
        (np.eye(3), "leaves 3 parts apart"),
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "leaves 2 parts apart"),
        ([[0, 1], [1, 0]], "p > 0"),
        (np.roll(np.eye(5), 1, axis=1), "p > 0"),
        ([[0.5, 0.5]], "square"),
        ([], "square"),
        (np.zeros((0, 0)), "square"),
        ([[np.nan, 1], [1, 0]], "finite"),
        ([["a", "b"], ["c", "d"]], "real numbers"),
        ([[0.5 + 0j, 0.5], [0.5, 0.5]], "real numbers"),
    ],
)
def test_what_does_not_mix_is_refused(W: object, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        check(np.asarray(W))


def test_sums_may_be_off_by_rounding() -> None:
    check(np.array([[0.5 + 5e-9, 0.5], [0.5, 0.5]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"graph": "moebius"}, "no graph 'moebius'; there are: ring, complete, star"),
        ({"weights": "equal"}, "no weights 'equal'; there are: lazy, metropolis, uniform"),
        ({"nodes": 0}, "at least 1 node, not 0"),
        ({"pi": 1.0}, "pi must be"),
        ({"pi": -0.1}, "pi must be"),
        ({"pi": float("nan")}, "pi must be"),
        ({"graph": "star"}, "they have 1 to 5; take metropolis weights"),
        ({"graph": "path", "weights": "uniform"}, "take metropolis weights"),
        ({"pi": 0.0}, "does not mix (p = 0); take pi = 0.333, or metropolis"),
        ({"graph": "ring", "nodes": 2, "pi": 0.0}, "does not mix"),
        ({"graph": "hypercube"}, "power of two nodes, not 6; 4 would do"),
        ({"graph": "torus", "nodes": 7}, "7 nodes came as 1 x 7"),
        ({"graph": "torus", "nodes": 2}, "a torus needs"),
        ({"graph": "torus", "shape": (4, None)}, "a torus needs"),
        ({"graph": "torus", "shape": (0, None)}, "a torus needs"),
        ({"graph": "torus", "shape": (-2, -3)}, "a torus needs"),
        ({"nodes": 10_001}, "at most 10,000 nodes, not 10,001"),
        ({"shape": (2, None)}, "rows and columns shape a torus"),
        ({"graph": "erdos_renyi", "probability": 0.0}, "the probability of an edge"),
        ({"graph": "erdos_renyi", "nodes": 40, "probability": 1e-4}, "none of 1000 Erdos-Renyi graphs"),
        ({"graph": "file"}, "go together"),
        ({"matrix": Path("W.csv")}, "go together"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_with_advice(arguments: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"graph": "ring", "nodes": 6, **arguments}
    with pytest.raises(BadInput, match=re.escape(message)):
        build(**settings)  # type: ignore[arg-type]


def test_an_odd_ring_mixes_without_laziness() -> None:
    assert_mixes(build("ring", 5, "lazy", 0.0), 5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("W.csv", b"a,b\n1,0\n", "should be a matrix of numbers"),
        ("W.csv", b"0.5,0.5\n1\n", "should be a matrix of numbers"),
        ("W.csv", b"\xff\xfe\x00\x80", "should be a matrix of numbers"),
        ("W.csv", b"", "square"),
        ("W.npy", b"", "should be a matrix of numbers"),
        ("W.npy", b"PK\x03\x04 an archive", "should be a matrix of numbers"),
        ("W.csv", b"1\n", "a matrix for 1 nodes, but the network has 2"),
        ("W.xls", b"", "must end in .csv, .txt or .npy"),
        ("missing.csv", None, "cannot read the matrix file"),
        ("missing.npy", None, "cannot read the matrix file"),
    ],
)
def test_a_bad_matrix_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=re.escape(message)):
        build("file", 2, matrix=path)


class Bomb:
    """What a malicious .npy could hold: unpickling it fails the test."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a matrix file was unpickled",)


def test_a_matrix_file_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "W.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="should be a matrix of numbers"):
        topology.read_matrix(tmp_path / "W.npy")

"""Topology: who talks to whom (a graph of networkx), with which weights (a mixing matrix W), and how fast W mixes.

W is (n, n), row i the weights with which node i averages: x_i <- sum_j W_ij x_j. With A the adjacency matrix:

    lazy        W = pi I + (1 - pi) A / deg             the pi-lazy random walk; regular graphs only
    uniform     W = (I + A) / (deg + 1)                 regular graphs only
    metropolis  W_ij = 1 / (1 + max(deg_i, deg_j))      for an edge ij, the rest on the diagonal; any graph

Assumption 1 of the paper: W is doubly stochastic and its spectral rate p = 1 - ||W - J||_2^2 is positive, J = 11'/n.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np

from robustbench_dec.errors import BadInput

WEIGHTS = ("lazy", "metropolis", "uniform")
STOCHASTIC_TOLERANCE = 1e-8
LEAST_RATE = 1e-9  # below it, p cannot be told from 0: the sums of W are only known to STOCHASTIC_TOLERANCE
ERDOS_RENYI_ATTEMPTS = 1000


MOST_NODES = 10_000
"""Whose W takes 0.8 GB."""


class NoMixing(BadInput):
    """W is connected and doubly stochastic, but repeated averaging does not lead to the mean."""


def build(
    graph: str,
    nodes: int,
    weights: str = "lazy",
    pi: float = 1 / 3,
    *,
    probability: float = 0.5,
    seed: int = 0,
    matrix: Path | None = None,
    shape: tuple[int | None, int | None] = (None, None),
) -> np.ndarray:
    """The mixing matrix W (n, n), checked.

    `pi` is the laziness of lazy weights; `probability` and `seed` are the edges' of erdos_renyi; `shape` is the
    rows and columns of a torus (as square as possible unless given); `matrix` is the file that holds W itself when
    graph = "file": .csv, .txt (numbers between spaces) or .npy. Such a matrix brings its own weights, and may be
    asymmetric.
    """
    if graph not in GRAPHS:
        raise BadInput(f"no graph '{graph}'; there are: {', '.join(GRAPHS)}")
    if weights not in WEIGHTS:
        raise BadInput(f"no weights '{weights}'; there are: {', '.join(WEIGHTS)}")
    if nodes < 1:
        raise BadInput(f"a network needs at least 1 node, not {nodes}")
    if nodes > MOST_NODES:
        raise BadInput(
            f"a network has at most {MOST_NODES:,} nodes, not {nodes:,}: W, n x n numbers, has to fit in memory"
        )
    if not 0 <= pi < 1:
        raise BadInput(f"pi must be at least 0 and less than 1, where nodes no longer listen to each other, not {pi}")
    if not 0 < probability <= 1:
        raise BadInput(f"the probability of an edge must be more than 0 and at most 1, not {probability}")
    if (matrix is None) == (graph == "file"):
        raise BadInput("graph 'file' and a matrix file go together: give both, or neither")
    if graph != "torus" and shape != (None, None):
        raise BadInput(f"rows and columns shape a torus, but the graph is '{graph}'; leave them out")

    if matrix is not None:
        W = check(read_matrix(matrix))
        if len(W) != nodes:
            raise BadInput(f"{matrix} is a matrix for {len(W)} nodes, but the network has {nodes}; change one of them")
        return W
    if graph == "torus":
        edges = _torus(nodes, *shape)
    elif graph == "erdos_renyi":
        edges = _erdos_renyi(nodes, probability, seed)
    else:
        edges = _DRAWN[graph](nodes)
    edges.remove_edges_from(list(nx.selfloop_edges(edges)))  # networkx closes the ring of one node on itself
    A = nx.to_numpy_array(edges, nodelist=sorted(edges))
    try:
        return check(_weigh(A, graph, weights, pi))
    except NoMixing as error:
        # Only lazy weights can get here: the others keep some weight on every node itself.
        raise BadInput(
            f"a {graph} of {nodes} nodes with lazy weights and pi = {pi:g} does not mix (p = 0); "
            f"take pi = 0.333, or metropolis weights"
        ) from error


def check(W: np.ndarray) -> np.ndarray:
    """W as float64 if it is non-negative, doubly stochastic (to 1e-8) and connected with p > 0; else BadInput."""
    W = np.asarray(W)
    if W.ndim != 2 or W.shape[0] != W.shape[1] or not W.size:
        raise BadInput(f"a mixing matrix must be square, one row and one column per node, not of shape {W.shape}")
    if W.dtype.kind not in "fiub":
        raise BadInput(f"a mixing matrix must hold real numbers, not {W.dtype}")
    W = W.astype(np.float64)
    if not np.isfinite(W).all():
        raise BadInput("a mixing matrix must hold finite numbers, but this one has NaN or infinity in it")
    if W.min() < 0:
        i, j = np.unravel_index(W.argmin(), W.shape)
        raise BadInput(
            f"a mixing matrix must be non-negative, but W[{i}, {j}] = {W.min():g}; metropolis weights would do"
        )
    for axis, name in ((1, "row"), (0, "column")):
        sums = W.sum(axis)
        worst = int(np.abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > STOCHASTIC_TOLERANCE:
            raise BadInput(
                f"a mixing matrix must be doubly stochastic, but {name} {worst} sums to {sums[worst]:.10g} instead of "
                f"1; write more digits, or take metropolis weights"
            )
    parts = nx.number_strongly_connected_components(nx.from_numpy_array(W > 0, create_using=nx.DiGraph))
    if parts > 1:
        raise BadInput(f"a mixing matrix must connect all nodes, but this one leaves {parts} parts apart; add edges")
    if not spectral_rate(W) > LEAST_RATE:
        raise NoMixing("a mixing matrix must have a spectral rate p > 0, but this one has p = 0; (W + I) / 2 would do")
    return W


def spectral_rate(W: np.ndarray) -> float:
    """p = 1 - ||W - J||_2^2 (Assumption 1): 1 if one gossip gives the mean, 0 if gossip never does."""
    return 1 - float(np.linalg.norm(W - 1 / len(W), 2)) ** 2


def read_matrix(path: Path) -> np.ndarray:
    """The numbers in a .csv, .txt or .npy file; nothing is unpickled."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".txt", ".npy"):
        raise BadInput(f"a matrix file must end in .csv, .txt or .npy, not like {path}")
    try:
        if suffix == ".npy":
            with path.open("rb") as handle:
                return np.asarray(np.lib.format.read_array(handle, allow_pickle=False))
        # utf-8-sig, because spreadsheets put a byte-order mark in front.
        with path.open(encoding="utf-8-sig") as lines, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file: check() says it in our words
            return np.loadtxt(lines, delimiter="," if suffix == ".csv" else None, ndmin=2)
    except OSError as error:
        raise BadInput(f"cannot read the matrix file {path} ({error.strerror or error}); check the path") from error
    except (ValueError, MemoryError) as error:
        raise BadInput(f"{path} should be a matrix of numbers, one row per node, but is not ({error})") from error


def _weigh(A: np.ndarray, graph: str, weights: str, pi: float) -> np.ndarray:
    n = len(A)
    if n == 1:
        return np.ones((1, 1))
    degrees: np.ndarray = A.sum(1)
    if weights == "metropolis":
        W = A / (1 + np.maximum.outer(degrees, degrees))
        return W + np.diag(1 - W.sum(1))
    if degrees.min() < degrees.max():
        raise BadInput(
            f"{weights} weights need a graph whose nodes all have the same number of neighbours, but in this {graph} "
            f"of {n} nodes they have {degrees.min():g} to {degrees.max():g}; take metropolis weights"
        )
    degree = degrees[0]
    if weights == "uniform":
        return (np.eye(n) + A) / (degree + 1)
    return pi * np.eye(n) + (1 - pi) * A / degree


def _exponential(n: int) -> nx.Graph:
    """Node i is a neighbour of i + 1, i + 2, i + 4, ... and i - 1, i - 2, i - 4, ... modulo n."""
    return nx.circulant_graph(n, [2**k for k in range((n - 1).bit_length())])


def _hypercube(n: int) -> nx.Graph:
    if n & (n - 1):
        raise BadInput(f"a hypercube needs a power of two nodes, not {n}; {1 << n.bit_length() - 1} would do")
    return nx.hypercube_graph(n.bit_length() - 1) if n > 1 else nx.empty_graph(1)


def _torus(n: int, rows: int | None, columns: int | None) -> nx.Graph:
    if rows is None and columns is None:
        rows = max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
    if rows is None:
        rows = n // columns if columns else 0
    if columns is None:
        columns = n // rows if rows else 0
    if n == rows == columns == 1:
        return nx.empty_graph(1)
    if rows * columns != n or min(rows, columns) < 2:
        raise BadInput(
            f"a torus needs rows x columns nodes with at least 2 of each, but {n} nodes came as {rows} x {columns}; "
            f"6 nodes as 2 x 3, for example, would do"
        )
    return nx.grid_2d_graph(rows, columns, periodic=True)


def _erdos_renyi(n: int, probability: float, seed: int) -> nx.Graph:
    """The first connected graph among those of seed, seed + 1, ..."""
    for attempt in range(ERDOS_RENYI_ATTEMPTS):
        graph = nx.gnp_random_graph(n, probability, seed=seed + attempt)
        if nx.is_connected(graph):
            return graph
    raise BadInput(
        f"none of {ERDOS_RENYI_ATTEMPTS} Erdos-Renyi graphs with {n} nodes and edge probability {probability:g} was "
        f"connected; {min(1.0, 2 * np.log(n) / n):.2g} would do"
    )


_DRAWN: dict[str, Callable[[int], nx.Graph]] = {
    "ring": nx.cycle_graph,
    "complete": nx.complete_graph,
    "star": lambda n: nx.star_graph(n - 1),
    "path": nx.path_graph,
    "exponential": _exponential,
    "hypercube": _hypercube,
}
GRAPHS = (*_DRAWN, "torus", "erdos_renyi", "file")

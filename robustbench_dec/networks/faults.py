"""Faults: what happens to a network's links in one round, a function of (key, round).

    varying     W <- P W P', P a permutation of the nodes      every round the nodes take new places in the graph
    loss        the link ij is lost in both directions         with this probability, each undirected link by itself
    stragglers  all links of node i are lost                   with this probability, each node by itself
    W_ij = 0 for a lost link; its weight returns to both ends: W_ii <- W_ii + W_ij, W_jj <- W_jj + W_ij

So W_t is doubly stochastic as W is: gossip keeps the mean, and corrections that average to zero go on doing so. W_t
need not be connected; a straggler hears nobody and goes on with its own part.
"""

from dataclasses import dataclass

import numpy as np

from robustbench_dec.errors import BadInput
from robustbench_dec.networks.topology import STOCHASTIC_TOLERANCE

# Kinds of Philox counters; the oracle's minibatches and coins are 0 and 1. One each, so that a fault decides no other.
PLACES, LINKS, NODES = 2, 3, 4


@dataclass(frozen=True)
class Faults:
    """How unreliable a network is: two probabilities, and whether its graph changes every round."""

    loss: float = 0.0
    stragglers: float = 0.0
    varying: bool = False

    def __post_init__(self) -> None:
        for name, probability in (("loss", self.loss), ("stragglers", self.stragglers)):
            if not 0 <= probability < 1:
                raise BadInput(
                    f"{name} must be a probability of at least 0 and less than 1, where nobody is ever heard, "
                    f"not {probability}; 0.1 would do"
                )

    def matrix(self, W: np.ndarray, key: tuple[int, int], round: int) -> np.ndarray:
        """W_t (n, n), the mixing matrix of one round; the key is (the run's seed, the network's seed)."""
        if self == RELIABLE:
            return W
        n = len(W)
        if (self.loss or self.stragglers) and np.abs(W - W.T).max() > STOCHASTIC_TOLERANCE:
            i, j = np.unravel_index(np.abs(W - W.T).argmax(), W.shape)
            raise BadInput(
                f"loss and stragglers need a symmetric mixing matrix, whose lost weights return to both ends alike, "
                f"but W[{i}, {j}] = {W[i, j]:g} and W[{j}, {i}] = {W[j, i]:g}; metropolis weights would do"
            )
        if self.varying:
            places = _generator(key, PLACES, round).permutation(n)
            W = W[np.ix_(places, places)]
        lost = np.zeros((n, n), dtype=bool)
        if self.loss:
            above = np.triu(_generator(key, LINKS, round).random((n, n)) < self.loss, 1)
            lost |= above | above.T
        if self.stragglers:
            late = _generator(key, NODES, round).random(n) < self.stragglers
            lost |= late[:, None] | late
        np.fill_diagonal(lost, False)
        W_t = np.where(lost, 0.0, W)
        W_t[np.diag_indices(n)] += np.where(lost, W, 0.0).sum(1)
        alone = (W_t == np.diag(W_t.diagonal())).all(1)
        W_t[alone, alone] = 1.0  # no rounding where nothing is mixed
        return W_t


RELIABLE = Faults()
"""Every message arrives."""


def _generator(key: tuple[int, int], kind: int, round: int) -> np.random.Generator:
    parts = np.array([part % 2**64 for part in key], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=parts, counter=[0, kind, 0, round]))

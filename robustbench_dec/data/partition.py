"""Who holds which sample: parts held out, and equal shares for the nodes.

All draws are keyed, not streamed: the same arguments give the same indices whatever was drawn before.
"""

import math
import re

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustbench_dec.errors import BadInput

Counts = NDArray[np.int64]


def shuffled(indices: Counts, *key: int) -> Counts:
    """The indices in an order decided by the key (one or two integers).

    Sorted by the raw words of a counter-based generator: numpy promises these words for ever, but not its shuffles.
    """
    words = np.random.Philox(key=np.array([k % 2**64 for k in (*key, 0)][:2], dtype=np.uint64)).random_raw(len(indices))
    return indices[np.argsort(words, kind="stable")]


def apportion(total: int, weights: NDArray[np.float64] | Counts) -> Counts:
    """Whole numbers that add up to `total`, in proportion to the weights (largest remainders; ties to the first)."""
    exact = total * (weights / weights.sum())
    counts: Counts = np.floor(exact).astype(np.int64)
    rest = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return counts


def hold_out(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out), both ascending; `count` are held out, each class in proportion.

    A class is drawn by (seed, class) alone, so a larger part contains a smaller one of the same classes.
    """
    y = labels.numpy()
    classes, sizes = np.unique(y, return_counts=True)
    held = np.zeros(len(y), dtype=bool)
    if count:
        for c, k in zip(classes, apportion(count, sizes), strict=True):
            held[shuffled(np.flatnonzero(y == c), seed, int(c))[:k]] = True
    return torch.from_numpy(np.flatnonzero(~held)), torch.from_numpy(np.flatnonzero(held))


def split(labels: Tensor, n: int, how: str = "iid", seed: int = 0) -> Tensor:
    """Indices (n, m), row i the samples of node i: as many for every node, so that f is the mean of the f_i.

    "iid": at random.  "label": sorted by class, consecutive pieces.  "dirichlet(alpha)": the class proportions of each
    node are drawn from Dir(alpha, ..., alpha); small alpha, few classes per node (Hsu, Qi and Brown, 2019). Of these
    three m = len(labels) // n.  "classes(c)": each node holds c classes, as many samples of each (after McMahan et al.,
    2017); m is the most that the scarcest class allows, and the rest is left out. No sample is held twice.
    """
    if n < 1:
        raise BadInput(f"samples are split among at least 1 node, not {n}")
    if n > len(labels):
        raise BadInput(f"{n} nodes are more than the {len(labels)} samples there are to split among them")
    m = len(labels) // n
    y = labels.numpy()
    if how == "iid":
        order = shuffled(np.arange(len(y)), seed)
    elif how == "label":
        order = np.argsort(y, kind="stable")
    elif found := re.fullmatch(r"dirichlet\((.*)\)", how):
        order = _dirichlet(y, n, m, _alpha(found[1]), seed)
    elif found := re.fullmatch(r"classes\((.*)\)", how):
        return torch.from_numpy(_classes(y, n, found[1], seed))
    else:
        raise BadInput(f"no split {how!r}; there are: iid, dirichlet(alpha), classes(c), label")
    return torch.from_numpy(order[: n * m].reshape(n, m))


def holdings(labels: Tensor, shares: Tensor, classes: int) -> Counts:
    """Who holds which labels: (n, classes), how many samples of each class node i has in its row of the shares."""
    return np.stack([labels[row].bincount(minlength=classes).numpy() for row in shares])


def _alpha(text: str) -> float:
    """The number in "dirichlet(0.3)"."""
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise BadInput(f"the alpha of dirichlet(alpha) is a number above 0, for example dirichlet(0.3), not {text!r}")
    return alpha


def _classes(y: Counts, n: int, text: str, seed: int) -> Counts:
    """Indices (n, m) of "classes(c)": node after node takes the c classes that the fewest hold so far, ties drawn."""
    classes, supply = np.unique(y, return_counts=True)
    c = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not 1 <= c <= len(classes):
        raise BadInput(
            f"the c of classes(c), the labels of one node, is a whole number from 1 to {len(classes)}, for example "
            f"classes(2), not {text!r}"
        )
    if n * c < len(classes):
        raise BadInput(
            f"{n} nodes with {c} classes each leave some of the {len(classes)} classes to nobody; take classes(c) with "
            f"c at least {math.ceil(len(classes) / n)}, or more nodes"
        )
    holders = np.zeros(len(classes), dtype=np.int64)
    taken = []
    for i in range(n):
        drawn = shuffled(np.arange(len(classes)), seed, 2**32 + i)
        taken.append(np.sort(drawn[np.argsort(holders[drawn], kind="stable")][:c]))
        holders[taken[i]] += 1
    scarcest = (supply // holders).argmin()
    each = int(supply[scarcest] // holders[scarcest])
    if not each:
        raise BadInput(
            f"classes({c}) among {n} nodes needs a sample of each class for each of its holders, but the class "
            f"{classes[scarcest]} has {supply[scarcest]}; take fewer nodes"
        )
    pools = [shuffled(np.flatnonzero(y == k), seed, 1 + int(k)) for k in classes]
    given = np.zeros(len(classes), dtype=np.int64)  # to the nodes before
    rows = []
    for mine in taken:
        rows.append(np.concatenate([pools[k][given[k] : given[k] + each] for k in mine]))
        given[mine] += each
    return np.stack(rows)


def _dirichlet(y: Counts, n: int, m: int, alpha: float, seed: int) -> Counts:
    """The samples node after node, m each, with proportions P (n, classes) ~ Dir(alpha) as nearly as supply allows.

    All nodes ask at once; a class asked for beyond its supply is shared out in proportion to the demands, and what a
    node then lacks it asks for again among the classes that are left.
    """
    classes, supply = np.unique(y, return_counts=True)
    P = np.random.Generator(np.random.Philox(seed % 2**128)).dirichlet(np.full(len(classes), alpha), size=n)
    P = np.nan_to_num(P)  # an extreme alpha under- or overflows
    given = np.zeros((n, len(classes)), dtype=np.int64)
    # Each pass satisfies all nodes or empties a class.
    while (lack := m - given.sum(axis=1)).any():
        left = supply - given.sum(axis=0)
        wish = P * (left > 0)
        wish[wish.sum(axis=1) == 0] = left  # none of the node's classes is left
        demand = np.stack([apportion(int(k), w) for k, w in zip(lack, wish, strict=True)])
        for c in range(len(classes)):
            asked = int(demand[:, c].sum())
            given[:, c] += demand[:, c] if asked <= left[c] else apportion(int(left[c]), demand[:, c])
    pools = [shuffled(np.flatnonzero(y == c), seed, 1 + int(c)) for c in classes]
    ends = given.cumsum(axis=0)
    return np.concatenate(
        [pools[c][ends[i, c] - given[i, c] : ends[i, c]] for i in range(n) for c in range(len(classes))]
    )

"""The tabular data sets: rows of features with one of two labels, in memory as sparse matrices."""

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from robustbench_dec.data import own
from robustbench_dec.data.catalogue import TABULAR, Entry, find
from robustbench_dec.data.fetching import fetch
from robustbench_dec.data.images import TEST_SEED
from robustbench_dec.data.partition import hold_out
from robustbench_dec.errors import BadInput

Part = tuple[Any, NDArray[np.float64]]  # features, a sparse matrix (N, p), and labels as they are in the file (N,)


@dataclass(frozen=True, eq=False)
class Tabular:
    """Features as sparse rows (N, p) of float64 and labels int64 (N,), -1 or +1; a set without a test part has 0 rows.

    Sparse, because w8a takes 12 MB so and 155 MB dense; whoever computes with a part of it makes that part dense.
    """

    name: str
    classes: tuple[str, str]  # of the labels -1 and +1
    train_features: Any = field(repr=False)
    train_labels: Tensor = field(repr=False)
    test_features: Any = field(repr=False)
    test_labels: Tensor = field(repr=False)
    digest: str  # of the source files


def load_tabular(
    name: str, *, folder: Path | None = None, mirror: Path | None = None, progress: bool = True
) -> Tabular:
    """A tabular data set by name, fetched where need be, or by the path of one's own."""
    if own.is_path(name):
        parts, kinds = own.rows(name)
        entry = Entry(own.label(name), tuple(kinds), features=parts[0][0].shape[1])
        train, test, source = *_both(parts, entry.features), [(entry.name, own.digest(name))]
    else:
        entry = find(name, TABULAR)
        paths = fetch(name, folder=folder, mirror=mirror, progress=progress)
        train, test, source = (
            (*_svmlight(tuple(paths), entry.features), sorted(entry.files.items())) if entry.files else _breast_cancer()
        )
    labels = _signs(np.concatenate([train[1], test[1]]), entry.name)
    return Tabular(
        name=entry.name,
        classes=(entry.classes[0], entry.classes[1]),
        train_features=train[0],
        train_labels=labels[: len(train[1])],
        test_features=test[0],
        test_labels=labels[len(train[1]) :],
        digest=hashlib.sha256(json.dumps([entry.name, source]).encode()).hexdigest(),
    )


def _signs(values: NDArray[np.float64], name: str) -> Tensor:
    """Two kinds of labels as -1 and +1, the smaller as -1: phishing has 0 and 1."""
    kinds = np.unique(values)
    if len(kinds) != 2:
        some = ", ".join(f"{kind:g}" for kind in kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        raise BadInput(f"{name} should have two kinds of labels, for example -1 and +1, not {len(kinds)} ({some})")
    return torch.from_numpy(np.where(values == kinds[1], 1, -1))


@functools.lru_cache(maxsize=1)  # a suite's runs read the same set one after the other, some seconds each time
def _svmlight(paths: tuple[Path, ...], columns: int) -> tuple[Part, Part]:
    """The training part and the test part, if there is one, of a set in svmlight's format; files that were checked."""
    from sklearn.datasets import load_svmlight_file

    # The number of columns is told, because a part need not use the last one (a9a.t does not).
    parts = [load_svmlight_file(str(path), n_features=columns, zero_based=False) for path in paths]
    for features, _ in parts:
        features.eliminate_zeros()  # ijcnn1 spells some out
    return _both(parts, columns)


def _both(parts: list[Part], columns: int) -> tuple[Part, Part]:
    """The training part and the test part, which may have no rows."""
    none = sparse.csr_matrix((0, columns)), np.empty(0)
    return parts[0], parts[1] if len(parts) > 1 else none


def _breast_cancer() -> tuple[Part, Part, list[tuple[str, str]]]:
    """scikit-learn's 569 tumours; a fifth is the test set, and the training set spans [-1, 1] in every column."""
    from sklearn.datasets import load_breast_cancer

    bundle = load_breast_cancer()
    content = hashlib.sha256(bundle.data.tobytes() + bundle.target.astype(np.int64).tobytes()).hexdigest()
    kept, held = hold_out(torch.from_numpy(bundle.target.astype(np.int64)), -(-len(bundle.target) // 5), TEST_SEED)
    low, high = bundle.data[kept].min(0), bundle.data[kept].max(0)
    scaled = (2 * bundle.data - low - high) / (high - low)
    train, test = ((sparse.csr_matrix(scaled[rows]), bundle.target[rows].astype(float)) for rows in (kept, held))
    return train, test, [("breast_cancer", content)]

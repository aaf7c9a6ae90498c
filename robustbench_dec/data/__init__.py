"""Data sets by name or by path: fetched from several sources, verified by sha256, kept compactly, split among nodes."""

from robustbench_dec.data.catalogue import IMAGES, TABULAR, names, titles
from robustbench_dec.data.fetching import fetch
from robustbench_dec.data.images import Dataset, load
from robustbench_dec.data.own import identity
from robustbench_dec.data.partition import holdings, split
from robustbench_dec.data.tabular import Tabular, load_tabular

__all__ = [
    "IMAGES",
    "TABULAR",
    "Dataset",
    "Tabular",
    "fetch",
    "holdings",
    "identity",
    "load",
    "load_tabular",
    "names",
    "split",
    "titles",
]

"""Data sets by name: fetched from several sources, verified by sha256, kept as uint8, split among nodes."""

from robustbench_dec.data.catalogue import names
from robustbench_dec.data.fetching import fetch
from robustbench_dec.data.images import Dataset, load
from robustbench_dec.data.partition import split

__all__ = ["Dataset", "fetch", "load", "names", "split"]

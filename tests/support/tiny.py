"""One tiny table on digits: what it asks for, and where a finished one lies."""

from dataclasses import dataclass
from pathlib import Path

from robustbench_dec.specs import table as spec

TABLE = """
title = "Tiny"
caption = "Two methods on digits."
n_examples = 40
curve_points = 2
curve_examples = 40

[network]
graph = "complete"
nodes = 2
weights = "uniform"

[[blocks]]
title = "Digits"
rounds = 24
[blocks.problem]
dataset = "digits"
eps = 0.1
[blocks.trainers.k_gt]
eta_c = 0.2
batch = 32
[blocks.trainers.dec_fedtrack]
eta_c = 0.2
eta_d = 1.0
batch = 32
[[blocks.attacks]]
name = "fgsm"
eps = [0.05, 0.1]
[[blocks.attacks]]
name = "uap"
eps = [0.2]
steps = 10
search = 0
restarts = 1
sga = 0
looks = 1
[[blocks.curve]]
name = "fgsm"
eps = [0.1]

[profiles.smaller]
rounds = 2
n_examples = 10
"""


@dataclass(frozen=True)
class Made:
    """A finished table: its specification's file, its results and its run folders (K-GT, Dec-FedTrack)."""

    file: Path
    results: Path
    folders: list[Path]

    @property
    def specification(self) -> spec.Spec:
        return spec.read(self.file)

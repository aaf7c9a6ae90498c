"""Training and attacking in Python, as the command line does: the same runs, cells and files.

from robustbench_dec import attack, train

run = train(dataset="digits", model="cnn1", trainer="dec_fedtrack", rounds=20)
attack(run, "pgd", eps=[0.05, 0.1])
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pandas as pd
from pydantic import ValidationError
from torch import Tensor, nn

from robustbench_dec import arguments, shelf
from robustbench_dec.attacking.evaluate import Limits
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.running import cells
from robustbench_dec.running.train import Habits
from robustbench_dec.running.train import train as train_run
from robustbench_dec.specs.limits import LARGEST_SEED
from robustbench_dec.specs.run import NetworkSpec
from robustbench_dec.specs.single import single_run
from robustbench_dec.store.problems import problem_of
from robustbench_dec.store.records import CellRecord, RunRecord
from robustbench_dec.store.results import Results, Run, run_at

NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, repr=False)
class Trained:
    """A finished run; `attack` takes it, and so does `robustbench-dec attack` its folder."""

    folder: Path

    @property
    def record(self) -> RunRecord:
        """All that was asked for, what it cost and what came out."""
        return run_at(self.folder).record

    @property
    def clean_acc(self) -> float | None:
        """The mean network's accuracy on the test images; None where no classifier was trained."""
        classifier = self.record.classifier
        return None if classifier is None else classifier.clean.mean_model

    def model(self, device: str = "cpu") -> nn.Module:
        """The network with the mean of the nodes' parameters: images in [0, 1] in, logits out."""
        if self.record.classifier is None:
            raise BadInput(f"{self.record.id} trained no network")
        return run_at(self.folder).model(arguments.device(device))

    def perturbation(self) -> Tensor | None:
        """The trained y as an image (C, H, W), the mean of the nodes'; None for a method without y."""
        return run_at(self.folder).perturbation()

    def curve(self) -> pd.DataFrame:
        """What was measured by the round."""
        return run_at(self.folder).curve()

    def __repr__(self) -> str:
        record = self.record
        reached = f"{self.clean_acc:.1%} clean" if self.clean_acc is not None else f"{record.parameters} parameters"
        costs = f"{record.ledger.rounds} rounds, {record.ledger.sfo:,} SFO calls per node"
        return f"{record.method} on {record.dataset}: {reached} after {costs}, in {self.folder}"


@dataclass(frozen=True, repr=False)
class Attacked:
    """The cells of one attack on one run, a radius each."""

    cells: tuple[CellRecord, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per radius, with Wilson's 95 % interval."""
        rows = []
        for cell in self.cells:
            low, high = wilson(cell.n_correct, cell.n_examples)
            row = {"attack": cell.attack, "norm": cell.norm, "eps": cell.eps, "clean_acc": cell.clean_acc}
            row |= {"robust_acc": cell.robust_acc, "ci_low": low, "ci_high": high, "images": cell.n_examples}
            rows.append(row | {"flags": ";".join(cell.flags)})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return str(self.frame.to_string(index=False))

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(index=False))


def train(
    dataset: str | Path | None = None,
    model: str | Path | type[nn.Module] | None = None,
    trainer: str = "dec_fedtrack",
    *,
    settings: Mapping[str, object] = NOTHING,
    problem: str = "universal",
    problem_settings: Mapping[str, object] = NOTHING,
    network: Mapping[str, object] = NOTHING,
    rounds: int = 100,
    seed: int = 0,
    results: str | Path = "out",
    device: str = "cpu",
    progress: bool = True,
) -> Trained:
    """Train one run, or find it finished; what is not said is chosen as `robustbench-dec train` does.

    `dataset`: a name of `robustbench-dec list`, or the path of images.npz, images.safetensors, a folder of pictures, or
    a file in svmlight's format for the problem robust_logistic.
    `model`: a network of the shelf, path/to/net.py:Net, or its class if that is in a file.
    `trainer`, `settings`: its name or path/to/mine.py:Mine, and its settings, such as {"K": 5, "eta_c": 0.1}.
    `problem_settings`: such as {"eps": 0.1, "classes": ["cat", "dog"]}, and those of the network, {"width": 8}.
    `network`: who talks to whom, {"graph": "ring", "nodes": 5, "weights": "lazy", "loss": 0.1}.

        run = train("digits", trainer="k_gt", rounds=20)
        run.clean_acc, run.model(), run.curve(), run.folder
    """
    asked = arguments.mapping("problem_settings", problem_settings, "{'eps': 0.1}")
    for name, value in {"dataset": dataset, "model": None if model is None else _network(model)}.items():
        if value is not None and name in asked:
            raise BadInput(f"{name} is given twice, by itself and in problem_settings; leave one of them out")
        if value is not None:
            asked[name] = arguments.text(name, value, "digits")
    run = single_run(
        asked | {"name": arguments.text("problem", problem, "universal")},
        _places(network),
        arguments.text("trainer", trainer, "k_gt"),
        arguments.mapping("settings", settings, "{'K': 5}"),
        arguments.whole("rounds", rounds),
        arguments.whole("seed", seed, 0, LARGEST_SEED),
    )
    home = Results(arguments.folder("results", results))
    return Trained(train_run(run, home, Habits(arguments.device(device), bool(progress))).folder)


def attack(
    run: Trained | Run | str | Path,
    attack: str = "pgd",
    eps: float | str | Sequence[float | str] = 0.1,
    *,
    settings: Mapping[str, object] = NOTHING,
    n_examples: int | None = None,
    max_passes: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Attacked:
    """Attack a trained run at one or several radii; cells that are stored in its folder are not computed again.

    `run`: what `train` returned, or a run's folder. `attack`: a name, torchattacks:NAME, path/to/mine.py:Mine or
    y.safetensors; `benchmark` takes classes and functions too, and stores nothing. `settings`: of the attack, such as
    {"steps": 40}. `n_examples`: the first so many test images, all by default.

        attack(run, "uap", eps=[0.2, 0.3], settings={"steps": 100}).frame
    """
    if not isinstance(attack, str):
        raise BadInput(
            f"attack stores what it computes under the attack's name, so it takes a name or path/to/mine.py:Mine, not "
            f"{attack!r:.60}; benchmark takes classes, functions and objects"
        )
    where = run.folder if isinstance(run, Trained | Run) else Path(arguments.text("run", run, "out/runs/..."))
    found, limits = run_at(where), Limits(None if max_passes is None else arguments.whole("max_passes", max_passes))
    strengths = arguments.mapping("settings", settings, "{'steps': 40}")
    count = None if n_examples is None else arguments.whole("n_examples", n_examples)
    cls, on = attack_named(arguments.text("attack", attack, "pgd")), arguments.device(device)
    radii = arguments.radii(eps)
    if not radii:
        raise BadInput("attack needs at least one eps")
    attacks = [(attack, shelf.make(cls, {"eps": radius, **strengths})) for radius in radii]
    problem = problem_of(found.record)
    wanted = cells.requests(attacks, found.record.seed, n_examples=cells.at_most(count, problem), limits=limits)
    return Attacked(tuple(cells.attack(found, wanted, problem=problem, device=on, progress=bool(progress))))


def _places(network: Mapping[str, object]) -> NetworkSpec:
    """Who talks to whom."""
    known = NetworkSpec.model_fields
    asked = arguments.mapping("network", network, "{'graph': 'ring', 'nodes': 5}")
    for name in asked:
        if name not in known:
            raise BadInput(f"the network has no setting '{name}'; there are: {', '.join(known)}")
    try:
        return NetworkSpec(**asked)
    except ValidationError as error:
        first = error.errors()[0]
        where, what = first["loc"][0], first["msg"].lower()
        raise BadInput(f"the network's setting '{where}' cannot be {asked.get(str(where))!r:.60}: {what}") from error


def _network(model: str | Path | type[nn.Module]) -> str:
    """A network by its name or its path, also where its class was handed over."""
    if not isinstance(model, type):
        return arguments.text("model", model, "path/to/net.py:Net")
    try:
        file = inspect.getsourcefile(model)
    except (TypeError, OSError):
        file = None
    if file is None or not file.endswith(".py") or not Path(file).is_file():
        raise BadInput(
            f"{model.__name__} is in no file, and the source of a network is part of its run; write it to net.py "
            f"(%%writefile in a notebook) and give 'net.py:{model.__name__}'"
        )
    return f"{file}:{model.__name__}"

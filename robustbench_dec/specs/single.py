"""One run from a few words, as `train` takes it on the command line and in Python: what is not said is chosen."""

from collections.abc import Mapping

from robustbench_dec import shelf
from robustbench_dec.data import own
from robustbench_dec.problem import Problem
from robustbench_dec.specs.run import NetworkSpec, RunSpec
from robustbench_dec.trainer import Trainer

STARTERS: dict[str, dict[str, float]] = {
    "universal": {"eta_c": 0.1, "eta_d": 1.0},
    "adversarial": {"eta_c": 0.1},
    "robust_logistic": {"eta_c": 0.1, "eta_d": 1e-5, "eta_x": 0.1, "eta_y": 1e-5, "K": 1, "batch": 16},
    "quadratic": {"eta_c": 0.02, "eta_d": 0.04, "eta_x": 0.05, "eta_y": 0.1, "batch": 1},
}
"""Settings of a trainer with which training does something sensible before anything is tuned."""


def single_run(
    problem: Mapping[str, object],
    network: NetworkSpec,
    trainer: str,
    settings: Mapping[str, object],
    rounds: int = 100,
    seed: int = 0,
) -> RunSpec:
    """A run of one trainer on one problem; a network is trained on digits if nothing is said."""
    name = str(problem.get("name", "universal"))
    shelf.find("problem", name, Problem)  # type: ignore[type-abstract]  # told before what its trainer would need
    asked, defaults = {"name": name, **problem}, dict(STARTERS.get(name, {}))
    if name in ("universal", "adversarial"):
        asked.setdefault("dataset", "digits")
        small = asked["dataset"] == "digits" or own.is_path(str(asked["dataset"]))
        defaults["batch"] = 32 if small else 128
    cls = shelf.find("trainer", trainer, Trainer)  # type: ignore[type-abstract]
    accepted = cls.__dataclass_fields__
    return RunSpec(
        problem=asked,
        network=network,
        trainer=trainer,
        trainer_settings={each: value for each, value in defaults.items() if each in accepted} | dict(settings),
        rounds=rounds,
        seed=seed,
        curve=[],
        curve_points=10,
        curve_examples=1000,
    )

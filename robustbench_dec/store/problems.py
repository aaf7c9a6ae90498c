"""The problem behind a record, so that what was trained can be attacked on its own data."""

import functools
import json
from typing import Any

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.store.records import RunRecord


def problem_of(record: RunRecord) -> Classifier:
    """The data of a trained classifier, as it was trained on them, one for all networks of a data set.

    The feasible set of y, which an attack does not ask for, is left out.
    """
    settings = {name: value for name, value in record.settings.problem.items() if name not in ("name", "source_sha256")}
    cls = shelf.find("problem", record.named.problem, Problem)  # type: ignore[type-abstract]
    if not issubclass(cls, Classifier):
        raise BadInput(
            f"{record.id} was trained on the problem '{record.named.problem}', which has no images to attack; take a "
            "classifier"
        )
    if record.settings.problem.get("source_sha256") != cls.source.sha256:
        raise BadInput(f"{record.named.problem} was edited since {record.id} was trained on it; train again")
    about_data = {name: value for name, value in settings.items() if name not in cls.dual_settings}
    return _problem(cls, json.dumps(about_data, sort_keys=True))


@functools.cache
def _problem(cls: type[Classifier], settings: str) -> Classifier:
    given: dict[str, Any] = json.loads(settings)
    return shelf.make(cls, given)

"""The problem behind a record, so that what was trained can be attacked on its own data."""

import functools
import json

from robustbench_dec import shelf
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.problem import Classifier, Problem
from robustbench_dec.store.records import RunRecord


def problem_of(record: RunRecord) -> Classifier:
    """The data of a trained classifier, as it was trained on them, one for all networks of a data set.

    The feasible set of y, which an attack does not ask for, is left out.
    """
    recorded = record.settings.problem
    cls = shelf.find("problem", record.named.problem, Problem)  # type: ignore[type-abstract]
    if not issubclass(cls, Classifier):
        raise BadInput(
            f"{record.id} was trained on the problem '{record.named.problem}', which has no images to attack; take a "
            "classifier"
        )
    if recorded.get("source_sha256") != cls.source.sha256:
        raise BadInput(f"{record.named.problem} was edited since {record.id} was trained on it; train again")
    digests = {f"{place}_sha256": place for place in cls.places}
    beside = ("name", "source_sha256", *digests, *cls.dual_settings)
    settings = {name: value for name, value in recorded.items() if name not in beside}
    own = {digest: place for digest, place in digests.items() if digest in recorded}
    settings |= {place: getattr(record.named, place) or recorded[place] for place in own.values()}
    problem = _problem(cls, json.dumps(settings, sort_keys=True), tuple(str(recorded[digest]) for digest in own))
    for digest, place in own.items():
        if problem.settings().get(digest) != recorded[digest]:
            raise BadInput(
                f"{settings[place]} was edited since {record.id} was trained with it (its sha256 was "
                f"{recorded[digest][:12]}...); put back what it was, or train again"
            )
    return problem


@functools.cache
def _problem(cls: type[Classifier], settings: str, digests: tuple[str, ...]) -> Classifier:
    """One for all records that tell the same settings and the same files."""
    given: Settings = json.loads(settings)
    return shelf.make(cls, given)

"""Trials: a protocol carried out, stage by stage; every trial is a row of a CSV, which is also how it goes on.

    stages       candidate, short, full: what is to be tried follows from the protocol and the rows of the stage before
    rows         one per trial, also of those that diverged, written as soon as it is done
    ranked       the rule of selection: first those near the best clean accuracy, by score, then the others, by accuracy
    choice       what each data set and method takes

A row whose run_id is the trial's own is work that is done, whether its run is still on this machine or not.
"""

import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from robustbench_dec import files
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.problem import Classifier
from robustbench_dec.running import cells
from robustbench_dec.running.pool import side_by_side
from robustbench_dec.running.train import Habits, train
from robustbench_dec.specs.protocol import Block, Candidate, Protocol
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.store import locks
from robustbench_dec.store.results import Results

Stage = Literal["candidate", "short", "full"]
STAGES: tuple[Stage, ...] = ("candidate", "short", "full")
KEY = ["stage", "block", "candidate", "method", "trial"]


class Trial(NamedTuple):
    """One run of a stage, and the cells that judge it."""

    stage: Stage
    block: str
    candidate: str
    method: str
    number: int
    point: dict[str, float]
    run: RunSpec
    attacks: tuple[cells.Request, ...]

    @property
    def key(self) -> tuple[str, str]:
        """By which its row is found."""
        return self.stage, self.run.id


class Choice(NamedTuple):
    """What a method takes on a data set."""

    candidate: Candidate
    number: int
    point: dict[str, float]


class Standing(NamedTuple):
    """How many trials of a stage are done; or what it waits for."""

    stage: Stage
    done: int | None
    trials: int | None
    waits: str = ""

    def __str__(self) -> str:
        return self.waits or f"{self.stage}: {self.done} of {self.trials}"


Choices = Mapping[tuple[str, str], Choice]
"""By the title of the data set's block and the method."""


def carry_out(
    protocol: Protocol,
    path: Path,
    results: Results,
    how: Habits = Habits(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
) -> pd.DataFrame:
    """Make all trials that `path`, the CSV, does not have; interrupted, it goes on where it was."""
    for stage in STAGES:
        done = read(path)
        missing = [trial for trial in listed(protocol, stage, done) if trial.key not in known(done)]
        work = functools.partial(_try, protocol=protocol, path=path, results=results, how=how)
        side_by_side(work, missing, jobs, f"trials, {stage}", how.progress, unit="trial")
    return read(path)


def listed(protocol: Protocol, stage: Stage, done: pd.DataFrame) -> list[Trial]:
    """The trials of a stage, data sets in turn; the later stages follow from the rows of the ones before."""
    by_block = [_of_block(protocol, block, stage, done) for block in protocol.blocks]
    longest = max(map(len, by_block), default=0)
    return [trials[k] for k in range(longest) for trials in by_block if k < len(trials)]


def _of_block(protocol: Protocol, block: Block, stage: Stage, done: pd.DataFrame) -> list[Trial]:
    if stage == "candidate":
        points = protocol.points(block, protocol.baseline, protocol.candidate_trials)
        return [
            _trial(protocol, block, candidate, stage, protocol.baseline, number, point)
            for number, point in enumerate(points)
            for candidate in block.candidates
        ]
    candidate = handling(protocol, block, done)
    drawn = {method: protocol.points(block, method, protocol.trials) for method in protocol.methods}
    if stage == "short":
        numbers = {method: list(range(protocol.trials)) for method in protocol.methods}
    else:
        order = ranked(protocol, _rows(done, "short", block, protocol.trials * len(protocol.methods)))
        numbers = {
            method: order[order["method"] == method]["trial"].astype(int).tolist()[: protocol.best]
            for method in protocol.methods
        }
    return [
        _trial(protocol, block, candidate, stage, method, numbers[method][k], drawn[method][numbers[method][k]])
        for k in range(max(map(len, numbers.values())))
        for method in protocol.methods
        if k < len(numbers[method])
    ]


def _trial(
    protocol: Protocol,
    block: Block,
    candidate: Candidate,
    stage: Stage,
    method: str,
    number: int,
    point: dict[str, float],
) -> Trial:
    run = protocol.trial(block, candidate, method, point, full=stage == "full")
    attacks = [
        cells.Request(
            asked.name, attack, protocol.seed, asked.images, part="validation", protocol_sha256=protocol.sha256
        )
        for asked in block.tuning
        for attack in asked.build()
    ]
    judges = () if stage == "candidate" else tuple(attacks)  # candidates are chosen by clean accuracy
    return Trial(stage, block.title, candidate.title, method, number, point, run, judges)


def _try(trial: Trial, protocol: Protocol, path: Path, results: Results, how: Habits) -> None:
    """Make one trial and write its row."""
    row: dict[str, object] = {
        **{name: getattr(trial, "number" if name == "trial" else name) for name in KEY},
        "rounds": trial.run.rounds,
        **trial.point,
        "run_id": trial.run.id,
        "protocol_sha256": protocol.sha256,
    }
    problem = trial.run.build_problem()
    assert isinstance(problem, Classifier)
    try:
        trained = train(trial.run, results, how)
        classifier = trained.record.classifier
        assert classifier is not None
        row |= {"diverged": False, "clean": classifier.clean.validation, "seconds": round(trained.record.wall_s)}
        found = cells.attack(trained, trial.attacks, problem=problem, device=how.device, progress=how.progress)
        columns = {f"{cell.attack}@{cell.eps:g}": cell.robust_acc for cell in found}
        row |= {"score": sum(columns.values()) / len(columns)} | columns if columns else {}
    except Diverged:
        row |= {"diverged": True}
    with locks.claim(path):
        _write(path, pd.concat([read(path), pd.DataFrame([row])], ignore_index=True))


def read(path: Path) -> pd.DataFrame:
    """The rows so far."""
    if not path.is_file():
        return pd.DataFrame(columns=[*KEY, "rounds", "run_id", "diverged", "clean", "score"])
    return pd.read_csv(path, dtype={"run_id": str, "candidate": str})


def known(done: pd.DataFrame) -> set[tuple[str, str]]:
    """The stages and runs that have a row; a candidate's run is judged once more as a trial."""
    return set(zip(done["stage"], done["run_id"], strict=True))


def _write(path: Path, frame: pd.DataFrame) -> None:
    frame = (
        frame.assign(_order=frame["stage"].map(STAGES.index)).sort_values(["_order", *KEY[1:]]).drop(columns="_order")
    )
    text = io.StringIO()
    frame.to_csv(text, index=False, lineterminator="\n")
    files.write_text(path, text.getvalue())


def _rows(done: pd.DataFrame, stage: Stage, block: Block, expected: int) -> pd.DataFrame:
    found = done[(done["stage"] == stage) & (done["block"] == block.title)]
    if len(found) < expected:
        raise BadInput(
            f"{len(found)} of {expected} {stage} trials on {block.title} are done; `robustbench-dec trials` makes the "
            "rest"
        )
    return found


def handling(protocol: Protocol, block: Block, done: pd.DataFrame) -> Candidate:
    """The way to handle the data that suits the baseline: the first that is near the best."""
    rows = _rows(done, "candidate", block, protocol.candidate_trials * len(block.candidates))
    best = rows.groupby("candidate")["clean"].max()
    if best.isna().all():
        raise BadInput(f"no candidate trial on {block.title} came to its end; the box's step sizes are too long")
    return next(
        candidate for candidate in block.candidates if best.get(candidate.title, 0.0) >= best.max() - block.near - 1e-12
    )


def ranked(protocol: Protocol, rows: pd.DataFrame) -> pd.DataFrame:
    """Trials of a data set from the best on: those within reach of the best clean accuracy of either method by score,
    then the others by clean accuracy; of equals the one drawn first; what diverged comes last."""
    clean = rows["clean"].fillna(-1.0)
    near = clean >= clean.max() - protocol.clean_within - 1e-12
    by = pd.DataFrame(
        {"far": ~near, "value": -rows["score"].fillna(-1.0).where(near, clean), "trial": rows["trial"].astype(int)}
    )
    return rows.loc[by.sort_values(["far", "value", "trial"], kind="stable").index]


def choice(protocol: Protocol, done: pd.DataFrame) -> Choices:
    """What each data set and method takes."""
    taken = {}
    for block in protocol.blocks:
        candidate = handling(protocol, block, done)
        order = ranked(protocol, _rows(done, "full", block, protocol.best * len(protocol.methods)))
        for method in protocol.methods:
            first = order[order["method"] == method].iloc[0]
            number = int(first["trial"])
            point = protocol.points(block, method, protocol.trials)[number]
            taken[block.title, method] = Choice(candidate, number, point)
    return taken


def standing(protocol: Protocol, done: pd.DataFrame) -> list[Standing]:
    """How many trials of each stage are done, up to the first that cannot be listed yet."""
    found: list[Standing] = []
    for stage in STAGES:
        try:
            asked = listed(protocol, stage, done)
        except BadInput as error:
            return [*found, Standing(stage, None, None, str(error))]
        found.append(Standing(stage, sum(trial.key in known(done) for trial in asked), len(asked)))
    return found

"""A run's identity: what decides its numbers is in it, what does not is not, and it is fixed when the run is built."""

import os
import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest

from robustbench_dec.errors import BadInput
from robustbench_dec.running.train import train
from robustbench_dec.specs.run import NetworkSpec, RunSpec
from robustbench_dec.store.results import Results
from tests.support.by_path import QUIET

TRAINER = """
    from dataclasses import dataclass
    from pathlib import Path
    from typing import NamedTuple

    from torch import Tensor

    from robustbench_dec.trainer import Trainer


    class State(NamedTuple):
        X: Tensor


    @dataclass(frozen=True)
    class Mine(Trainer):
        has_dual = False
        eta: float = 0.1

        def init(self, oracle, net):
            X, _ = oracle.start()
            oracle.grad_x(X, None, oracle.draw(1))
            return State(X)

        def step(self, state, oracle, net):
            Path(__file__).write_text("# edited while it trains\\n")
            G = oracle.grad_x(state.X, None, oracle.draw(1))
            return State(net.mix(state.X - self.eta * G))
"""

PROBLEM = """
    from dataclasses import dataclass

    from robustbench_dec.problems.quadratic import Quadratic


    @dataclass(frozen=True)
    class Mine(Quadratic):
        pass
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def specified(trainer: str = "gt_gda", **problem: Any) -> RunSpec:
    settings = {"eta_x": 0.01, "eta_y": 0.01} if trainer == "gt_gda" else {}
    return RunSpec({"name": "quadratic", **problem}, NetworkSpec(nodes=3), trainer, settings, 2, 0, [], 1, 10)


def test_an_edited_problem_file_is_another_run(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.py", PROBLEM)
    before = specified(name=f"{path}:Mine").id
    assert specified(name=f"{path}:Mine").id == before
    written(path, PROBLEM + "    # the same numbers, but nobody can know\n")
    assert specified(name=f"{path}:Mine").id != before


def test_classes_of_one_file_have_names_of_their_own(tmp_path: Path) -> None:
    head, decorator, body = TRAINER.partition("@dataclass")
    both = f"{head}{decorator}{body}\n    {decorator}{body.replace('Mine', 'Yours')}"
    file = written(tmp_path / "mine.py", both)
    first, second = (specified(f"{file}:{name}") for name in ("Mine", "Yours"))
    assert (first.method, second.method) == ("mine_Mine", "mine_Yours")
    assert "-mine_Mine-s0-" in first.id and "-mine_Yours-s0-" in second.id


def test_the_path_as_typed_is_no_part_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, problem = written(tmp_path / "a" / "mine.py", TRAINER), written(tmp_path / "b" / "ours.py", PROBLEM)
    monkeypatch.chdir(tmp_path)
    typed = {f"{trainer}:Mine": f"{problem}:Mine", "a/mine.py:Mine": "b/ours.py:Mine", "a/../a/mine.py": "b/ours.py"}
    runs = [specified(mine, name=ours) for mine, ours in typed.items()]
    assert len({run.id for run in runs}) == 1 and runs[0].id.startswith("ours-mine_Mine-s0-")
    assert len({run.settings.model_dump_json() for run in runs}) == 1
    assert str(tmp_path) not in runs[0].settings.model_dump_json()
    assert specified(str(written(tmp_path / "a" / "other.py", TRAINER)), name="b/ours.py").id != runs[0].id


def test_a_source_that_is_edited_while_it_trains_changes_nothing_under_the_run(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.py", TRAINER)
    run = specified(str(path))
    run_id, settings = run.id, run.settings
    trained = train(run, Results(tmp_path / "results"), QUIET)
    assert path.read_text() == "# edited while it trains\n"
    assert (run.id, run.settings) == (run_id, settings)
    assert trained.id == trained.record.id == run_id and trained.finished()
    assert trained.record.settings.trainer["source_sha256"] == settings.trainer["source_sha256"]
    assert [home.id for home in Results(tmp_path / "results").runs()] == [run_id]
    assert train(run, Results(tmp_path / "results"), QUIET).record == trained.record  # and it is found again


def test_a_source_that_is_edited_before_it_trains_changes_nothing_under_the_run(tmp_path: Path) -> None:
    trainer, problem = written(tmp_path / "mine.py", TRAINER), written(tmp_path / "ours.py", PROBLEM)
    run = specified(str(trainer), name=str(problem))
    for path in (trainer, problem):
        path.write_text("raise RuntimeError('half written')\n")
    assert train(run, Results(tmp_path / "results"), QUIET).id == run.id


def test_a_worker_refuses_a_run_whose_source_was_edited_on_the_way(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.py", TRAINER)
    run = specified(str(path))
    sent = pickle.dumps(run)
    assert pickle.loads(sent) == run
    os.utime(path)
    assert pickle.loads(sent).id == run.id
    written(path, TRAINER.replace("0.1", "0.2"))
    with pytest.raises(BadInput, match=f"a source file of {run.id} was edited"):
        pickle.loads(sent)


def test_a_matrix_file_counts_by_its_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("0.5,0.5\n0.5,0.5\n")
    second.write_bytes(first.read_bytes())
    here, elsewhere = (NetworkSpec(graph="file", nodes=2, matrix=path) for path in (first, second))
    assert here.settings() == elsewhere.settings()
    second.write_text("0.6,0.4\n0.4,0.6\n")
    assert here.settings() != elsewhere.settings()

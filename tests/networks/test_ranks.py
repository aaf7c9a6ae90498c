"""The same trainers on real processes under torchrun: the simulator's numbers, counted bytes, no hang, nothing lost."""

import contextlib
import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor
from typer.testing import CliRunner

from robustbench_dec import files
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.networks.crew import Alone
from robustbench_dec.networks.lifelines import Lifelines
from robustbench_dec.networks.ranks import Lost, Ranks, needed
from robustbench_dec.networks.simulated import Gossip
from robustbench_dec.store import locks
from tests.support import ROOT, on_ranks
from tests.support.once import once
from tests.support.processes import fresh_torchrun, torchrun

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="session")
def simulated() -> dict[str, tuple[dict[str, Tensor], dict[str, int]]]:
    """Every case in one process: final stacks and costs."""
    found = {}
    for name, problem, method, faults in on_ranks.cases():
        net = Alone().connect(on_ranks.W, faults, (1, 0))
        found[name] = on_ranks.whole(Alone(), on_ranks.work(net, problem, method)), net.ledger.row()
    return found


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_processes_give_the_simulators_numbers_at_the_same_costs(
    processes: int, simulated: dict[str, tuple[dict[str, Tensor], dict[str, int]]], tmp_path: Path
) -> None:
    done = torchrun(processes, str(ROOT / "tests" / "support" / "on_ranks.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    stacks = safetensors.torch.load_file(tmp_path / "stacks.safetensors")
    costs = json.loads((tmp_path / "costs.json").read_text())
    assert len(simulated) > 18
    for name, (expected, ledger) in simulated.items():
        wire = costs[name].pop("wire_bytes")
        assert costs[name] == ledger, name
        assert (wire > 0) == (processes > 1 or ledger["all_reduces"] > 0)
        for field, Z in expected.items():
            other = stacks[f"{name}/{field}"]
            assert other.dtype == Z.dtype and other.shape == Z.shape
            apart = (other.double() - Z.double()).abs().max()
            assert apart == 0, (name, field, float(apart))  # 1e-12 and 1e-6 would be near enough


def test_what_crosses_processes_is_what_the_other_side_needs(tmp_path: Path) -> None:
    """Two stacks of 5 and 3 doubles over the ring 0 1 | 2 3 4: rows 1 and 0 go right, rows 2 and 4 go left."""
    W = np.zeros((5, 5))
    for i in range(5):
        W[i, [i, (i + 1) % 5, (i - 1) % 5]] = 1 / 3
    assert needed(W, range(2), range(2, 5)) == [2, 4]
    assert needed(W, range(2, 5), range(2)) == [0, 1]
    assert needed(np.eye(5), range(2), range(2, 5)) == []
    Z = torch.randn(5, 4, dtype=torch.float64)
    whole = Gossip(0, W)
    part = whole.part(range(2), {0: 0, 1: 1, 2: 2, 4: 3})
    assert part(Z[[0, 1, 2, 4]]).equal(whole(Z)[:2])


def test_nodes_are_spread_evenly_and_in_order() -> None:
    ranks = object.__new__(Ranks)
    for size in range(1, 8):
        ranks.size = size
        blocks = ranks.split(7)
        assert [i for block in blocks for i in block] == list(range(7))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    ranks.size = 8
    with pytest.raises(BadInput, match="7 nodes can be spread over 7 processes at most, not over 8"):
        ranks.split(7)


COMMAND = ("-m", "robustbench_dec", "train")
SHORT = ("--rounds", "6", "--set", "K=2", "--set", "batch=16", "--nodes", "5")
TRAIN = (*COMMAND, *SHORT)


def trained(
    processes: int, results: Path, settings: tuple[str, ...] = SHORT, start: Callable[..., Any] = torchrun
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The finished run of the command line: its record and its checkpoint."""
    command = [*COMMAND, *settings, "--results", str(results)]
    if processes:
        done = start(processes, *command)
        assert done.returncode == 0, done.stderr[-3000:]
    else:  # in this process: to start another one would cost more than the run
        alone = CliRunner().invoke(app, command[2:], catch_exceptions=False)
        assert alone.exit_code == 0, alone.output
    (folder,) = (results / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "curve.csv", "checkpoint.safetensors", "perturbation.safetensors",
    }  # fmt: skip
    return files.read_sealed(folder / "run.json"), safetensors.torch.load_file(folder / "checkpoint.safetensors")


def test_the_command_line_trains_the_same_run_on_processes(tmp_path: Path) -> None:
    alone, expected = trained(0, tmp_path / "alone")
    together, found = trained(3, tmp_path / "together", start=fresh_torchrun)
    assert alone["id"] == together["id"] and alone["ledger"] == together["ledger"]
    for name, Z in expected.items():
        assert found[name].equal(Z)
    assert together["processes_used"] == [3] and alone["processes_used"] == [1]
    assert together["handed_bytes"] > together["wire_bytes"] and alone["wire_bytes"] is alone["handed_bytes"] is None
    accuracies = [record["classifier"]["clean"]["mean_model"] for record in (together, alone)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.01)
    # Ring 0 | 1 2 | 3 4: each of 3 pairs of ranks swaps a row both ways, in every round 2 (d + q) floats a row; once,
    # for Lemma A.3, every rank hands 5 rows of d + q floats to the all-reduce.
    width = together["parameters"] + 64
    assert together["wire_bytes"] == 6 * 6 * 2 * width * 4 + 3 * 5 * width * 4


@pytest.mark.parametrize("seed", [3, 4])
def test_twenty_rounds_of_a_network_with_the_usual_settings_are_the_simulators(seed: int, tmp_path: Path) -> None:
    """With these seeds a difference in the last bit of the start grows to percents."""
    usual = ("--rounds", "20", "--set", "K=5", "--set", "batch=32", "--seed", str(seed))
    _, expected = trained(0, tmp_path / "alone", usual)
    _, found = trained(2, tmp_path / "together", usual)
    for name, Z in expected.items():
        assert (found[name] - Z).abs().max() <= 1e-6 * Z.abs().max()


def fatal(folder: Path, end: str) -> tuple[str, ...]:
    """Arguments for a Dec-FedTrack that logs its rounds, and whose rank 1 meets its end in the fifth the first time."""
    marker = "        X0, Y0, C, D = state\n"
    lines = f"""
        import os, pathlib, signal
        log = pathlib.Path(__file__).with_name("rounds-of-" + os.environ.get("RANK", "alone"))
        with log.open("a") as handle:
            handle.write(f"{{net.ledger.rounds}} ")
        if os.environ.get("RANK") == "1" and log.read_text().split() == ["0", "1", "2", "3", "4"]:
            os.kill(os.getpid(), signal.{end})
"""
    source = (ROOT / "trainers" / "dec_fedtrack.py").read_text()
    assert marker in source
    (folder / "mine.py").write_text(source.replace(marker, lines + marker))
    return logged(folder)


def logged(folder: Path) -> tuple[str, ...]:
    """The arguments for that trainer."""
    return ("--trainer", f"{folder / 'mine.py'}:DecFedTrack", "--save-rounds", "3")


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three processes of which rank 1 was killed in round 4, what they said, and the run undisturbed."""

    def kill(home: Path) -> None:
        done = torchrun(3, *TRAIN, *fatal(home, "SIGKILL"), "--results", str(home / "results"))
        assert done.returncode != 0
        (home / "said").write_text(done.stderr)
        (home / "alone").mkdir()
        shutil.copy(home / "mine.py", home / "alone")
        trained(0, home / "undisturbed", (*SHORT, *logged(home / "alone")))  # which ranks would give too, see above

    return once(tmp_path_factory, "killed", kill)


def test_every_survivor_names_the_rank_that_died_and_not_the_one_that_left_because_of_it(killed: Path) -> None:
    said = (killed / "said").read_text()
    named = re.findall(r"rank (\d) lost its neighbour, (.*?), in round 4 \(.*\); start the same command", said)
    assert sorted(named) == [("0", "rank 1"), ("2", "rank 1")], said


@pytest.mark.parametrize("again", [3, 5, 0], ids=["as-many", "more", "alone"])
def test_a_killed_rank_loses_nothing_and_the_rerun_goes_on(again: int, killed: Path, tmp_path: Path) -> None:
    """The journal of round 3 is there when rank 1 dies, and no round before it is trained twice."""
    home = Path(shutil.copytree(killed, tmp_path / "home"))
    (folder,) = (home / "results" / "runs").iterdir()
    assert [path.name for path in folder.iterdir()] == ["resume.safetensors"]
    record, stacks = trained(again, home / "results", (*SHORT, *logged(home)))
    log = (home / f"rounds-of-{0 if again else 'alone'}").read_text().split()
    assert log == (["0", "1", "2", "3", "4"] if again else []) + ["3", "4", "5"]
    (undisturbed,) = (home / "undisturbed" / "runs").iterdir()
    assert record["ledger"] == files.read_sealed(undisturbed / "run.json")["ledger"]
    for name, Z in safetensors.torch.load_file(undisturbed / "checkpoint.safetensors").items():
        assert stacks[name].equal(Z)
    assert record["processes_used"] == sorted({3, again or 1})
    assert record["wire_bytes"] > 0


def test_a_rank_with_whom_two_messages_fail_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport may refuse a message before it is sent, when only the whole exchange is known to have failed."""
    ranks = object.__new__(Ranks)
    ranks.rank, ranks.size, ranks.device, ranks.where, ranks.handed = 0, 4, torch.device("cpu"), "in round 7", 0
    ranks._stopped, ranks.lifelines = False, object.__new__(Lifelines)
    monkeypatch.setattr(Lifelines, "leave", lambda self, blamed: None)
    monkeypatch.setattr(Lifelines, "dead", lambda self: [])
    monkeypatch.setattr(dist, "P2POp", lambda *of: of)

    def refused(operations: list[Any]) -> Any:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(dist, "batch_isend_irecv", refused)
    data = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(Lost, match=r"rank 0 lost its neighbour, rank 1, in round 7 \(Connection closed by peer\)"):
        ranks.swap({1: data}, {1: 3})
    with pytest.raises(Lost, match="lost its neighbour, one of the ranks 1, 3, in round 7"):
        ranks.swap({1: data, 3: data}, {1: 3})
    monkeypatch.setattr(Lifelines, "dead", lambda self: [2])
    with pytest.raises(Lost, match="lost its neighbour, rank 2, in round 7"):
        ranks.swap({1: data}, {1: 3})
    ranks._stopped = True
    monkeypatch.setattr(dist, "all_reduce", lambda values: None)
    with pytest.raises(Lost, match=r"rank 0 lost its neighbour, rank 2, in round 7 \(torchrun has asked"):
        ranks.add(torch.zeros(1))
    monkeypatch.setattr(Lifelines, "dead", lambda self: [])
    with pytest.raises(Lost, match=r"rank 0 was asked to end in round 7 \(torchrun has asked"):
        ranks.add(torch.zeros(1))


def test_a_silent_rank_is_given_up_after_the_time_out(tmp_path: Path) -> None:
    mine = fatal(tmp_path, "SIGSTOP")
    silent = torchrun(2, *TRAIN, *mine, "--timeout", "8", "--results", str(tmp_path / "results"))
    assert silent.returncode != 0
    assert re.search(r"rank 0 lost its neighbour, rank 1, in round 4 \(.*\); start the same command", silent.stderr)


def test_ranks_that_were_asked_for_different_runs_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "differing.py"
    script.write_text(
        "import os, sys\nfrom robustbench_dec.commands import app\n"
        "sys.argv += ['--seed', os.environ['RANK']]\napp.main()\n"
    )
    done = torchrun(2, str(script), *TRAIN[2:], "--results", str(tmp_path / "results"))
    assert done.returncode != 0 and not (tmp_path / "results").exists()
    assert re.search(r"rank 0: rank 0 was asked for the run digits-\S*-s0-\w+, this one for digits\S*-s0", done.stderr)
    assert re.search(r"rank 1: rank 0 was asked for the run digits-\S*-s0-\w+, this one for digits\S*-s1", done.stderr)


def test_ranks_wait_longer_than_their_time_out_for_a_run_that_others_train(tmp_path: Path) -> None:
    first, _ = trained(0, tmp_path / "first")
    holder = contextlib.ExitStack()
    holder.enter_context(locks.claim(tmp_path / "second" / "runs" / first["id"] / "run.json"))
    timer = threading.Timer(14, holder.close)
    timer.start()
    again, _ = trained(2, tmp_path / "second", (*SHORT, "--timeout", "6"))
    timer.join()
    assert again["checkpoint_sha256"] == first["checkpoint_sha256"]


def test_more_processes_than_nodes_are_refused(tmp_path: Path) -> None:
    done = torchrun(3, *TRAIN[:-1], "2", "--graph", "complete", "--results", str(tmp_path))
    assert done.returncode != 0
    assert "2 nodes can be spread over 2 processes at most, not over 3" in done.stderr

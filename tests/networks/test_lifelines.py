"""Who died: told by the kernel, not by the clock; and who only left because of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from robustbench_dec.networks.lifelines import Lifelines

LISTENING = """
import socket, sys, time
lifeline = socket.socket(); lifeline.bind(("127.0.0.1", 0)); lifeline.listen()
print(lifeline.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dist.Store:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    return dist.HashStore()


@pytest.fixture
def other(store: dist.Store) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that is rank 1, busy with something else."""
    process = subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    store.set("lifeline-1", f'["127.0.0.1", {int(process.stdout.readline())}]')
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_living_rank_is_not_dead_however_silent_and_a_killed_one_is(
    store: dist.Store, other: subprocess.Popen[str]
) -> None:
    lifelines = Lifelines(0, 2)
    lifelines.meet(store)
    assert lifelines.dead(patience=0) == []
    os.kill(other.pid, signal.SIGSTOP)
    assert lifelines.dead(patience=0.2) == []
    other.kill()
    assert lifelines.dead() == [1]
    lifelines.close()


def test_who_left_because_of_another_is_not_taken_for_dead(store: dist.Store) -> None:
    crew = [Lifelines(rank, 3) for rank in range(3)]
    for rank, lifelines in enumerate(crew):
        store.set(f"lifeline-{rank}", json.dumps(lifelines._own.getsockname()))  # meet() waits for all of them
    for lifelines in crew:
        lifelines.meet(store)
    crew[1].close()
    assert crew[0].dead() == [1]
    crew[0].leave([1])
    crew[0].close()
    assert crew[2].dead() == [1]


def test_without_a_proof_the_note_of_one_who_left_tells_whom_it_misses(store: dist.Store) -> None:
    """Rank 1 is silent but alive: rank 0 has given it up, and rank 2 hears of it though it was speaking with rank 0."""
    crew = [Lifelines(rank, 3) for rank in range(3)]
    for rank, lifelines in enumerate(crew):
        store.set(f"lifeline-{rank}", json.dumps(lifelines._own.getsockname()))  # meet() waits for all of them
    for lifelines in crew:
        lifelines.meet(store)
    crew[0].leave([1])
    crew[0].close()
    assert crew[2].dead() == [1]
    assert crew[1].dead(patience=0) == []  # it is not its own neighbour
    for lifelines in crew:
        lifelines.close()


def test_a_rank_that_cannot_be_reached_from_the_start_proves_nothing(store: dist.Store) -> None:
    closed = Lifelines(1, 2)
    store.set("lifeline-1", json.dumps(closed._own.getsockname()))
    closed.close()
    lifelines = Lifelines(0, 2)
    lifelines.meet(store)
    assert lifelines.dead(patience=0) == []
    store.set("lifeline-1", '["0.0.0.0", 0]')  # it could not listen
    lifelines.meet(store)
    assert lifelines.dead(patience=0) == []
    lifelines.close()

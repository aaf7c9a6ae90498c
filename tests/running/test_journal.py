"""The journal of an unfinished run: what it keeps comes back, and what it cannot read is named and passed over."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from robustbench_dec import files
from robustbench_dec.networks.crew import Alone
from robustbench_dec.running.journal import Effort, Journal, Standing
from robustbench_dec.running.loop import At
from tests.support.quick_trainers import NOISY, dec_fedtrack, stage

CURVE: list[dict[str, int | float]] = [{"round": 0, "sfo": 3, "train_loss": math.nan}, {"round": 2, "train_loss": 1.0}]


def journal(path: Path, run_id: str = "mine") -> Journal:
    oracle, net = stage(NOISY)
    return Journal(path, run_id, dec_fedtrack(), oracle, net, Alone())


def saved(path: Path, rounds: int) -> At:
    """The journal of a run that has trained so many rounds."""
    kept = journal(path)
    state = kept.trainer.init(kept.oracle, kept.net)
    for _ in range(rounds):
        state = kept.trainer.step(state, kept.oracle, kept.net)
        kept.net.ledger.rounds += 1
    at = At(state, kept.net.ledger.row(), 0.5, 0.25)
    kept.save(at, CURVE, Effort(seconds=2.5, threads=(1, 2), processes=(3,)))
    return at


def test_what_a_journal_keeps_comes_back_with_the_counters(tmp_path: Path) -> None:
    at = saved(tmp_path / "journal.safetensors", 2)
    kept = journal(tmp_path / "journal.safetensors")
    standing = kept.restore()
    assert standing.at is not None and standing.at[1:] == at[1:]
    assert all(torch.equal(Z, other) for Z, other in zip(standing.at.state, at.state, strict=True))
    assert math.isnan(standing.curve[0]["train_loss"]) and standing.curve[1:] == CURVE[1:]
    assert isinstance(standing.curve[0]["round"], int) and isinstance(standing.curve[1]["train_loss"], float)
    assert standing.effort == Effort(seconds=2.5, threads=(1, 2), processes=(3,))
    assert kept.net.ledger.row() == at.costs and kept.oracle.draws > 0
    here = standing.effort.here(Alone()).after(1.5)
    assert here.seconds == 4.0 and here.processes == (1, 3) and torch.get_num_threads() in here.threads
    kept.remove()
    assert list(tmp_path.iterdir()) == [] and kept.restore() == Standing()


def test_the_former_entry_is_taken_where_the_newest_is_of_another_run_or_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.safetensors"
    saved(path, 1)
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(json.loads(content[8:length])["__metadata__"]["journal"])
    changes: dict[str, dict[str, Any]] = {
        "is of another run": {"id": "another"},
        "was written by another version": {"momentum": 1},
    }
    for reason, change in changes.items():
        saved(path, 1)
        metadata = {"journal": json.dumps(entry | change), "sha256": files.OPEN_SEAL}
        data = safetensors.torch.save(safetensors.torch.load(content), metadata)
        files.write_bytes(path, files.seal(data), former=journal(path).former)
        standing = journal(path).restore()
        assert standing.at is not None and standing.at.costs["rounds"] == 1
        assert capsys.readouterr().err.count(f"{path} {reason}; the run goes on from where it stood before") == 1
        assert not path.exists()
    assert journal(path, "yours").restore() == Standing()

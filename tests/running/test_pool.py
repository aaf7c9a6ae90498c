"""Workers side by side: whoever dies, nobody waits for ever."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustbench_dec.bars import Terminal
from robustbench_dec.errors import BadInput
from robustbench_dec.running.pool import side_by_side


def test_a_killed_holder_of_the_terminal_lets_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / "terminal"
    hold = "Terminal(sys.argv[1]).acquire(); print(flush=True); time.sleep(60)"
    script = f"import sys, time; from robustbench_dec.bars import Terminal; {hold}"
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "\n"
    ours = Terminal(str(path))
    assert not ours.acquire(blocking=False)
    holder.kill()
    holder.communicate()
    with ours, ours:  # tqdm takes it again while it has it
        assert not Terminal(str(path)).acquire(blocking=False)
    assert Terminal(str(path)).acquire(blocking=False)


def kill_the_last(item: str) -> str:
    """The first worker waits for the second one, which is killed as soon as it begins."""
    if Path(item).name == "last":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return item


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_death_of_the_worker_that_was_started_last_is_seen(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one of the workers was killed"):
        side_by_side(kill_the_last, [str(tmp_path / "first"), str(tmp_path / "last")], 2, "two", progress=False)

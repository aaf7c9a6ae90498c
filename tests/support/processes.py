"""Processes that tests start: forked from one that has imported torch and this package already.

A fresh interpreter needs 4 seconds of a core for its imports, and a test of three ranks would start four of them.
"""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Cell
from tests.support import ROOT

PRELOADED = [
    "robustbench_dec.commands.app",
    "robustbench_dec.rendering.report",
    "robustbench_dec.running.suite",
    "sklearn.datasets",  # which has the digits
    "tests.support.on_ranks",
    "torch.distributed.run",
]


def context() -> ForkServerContext:
    """Processes that have imported everything before they start."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    return made


def fresh_torchrun(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    """`torchrun --standalone --nproc-per-node=processes command`, in new interpreters, until all have ended."""
    options = ["--standalone", f"--nproc-per-node={processes}", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    start = [sys.executable, "-m", "torch.distributed.run", *options]
    return subprocess.run(start, env=environment, capture_output=True, text=True, check=False, timeout=400)


def torchrun(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    """The same, but torchrun forks its processes (by two options of its own) and is forked itself."""
    script = str(ROOT / "tests" / "support" / "forked_rank.py")
    options = ["--standalone", f"--nproc-per-node={processes}", "--start-method=fork", "--run-path", script, *command]
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder, name) for name in ("out", "err")]
        for path in printed:
            path.touch()
        agent = context().Process(target=_agent, args=(options, os.getcwd(), *map(str, printed)))
        agent.start()
        agent.join(400)
        if agent.exitcode is None:
            agent.terminate()  # which ends the ranks
            agent.join()
        out, err = (path.read_text() for path in printed)
        return subprocess.CompletedProcess(options, agent.exitcode or 0, out, err)


def _agent(options: list[str], folder: str, out: str, err: str) -> None:
    from torch.distributed import run

    os.chdir(folder)  # the server has its own
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "3"  # seconds that a stopped rank gets, instead of 30
    run.main(options)


class Command:
    """robustbench-dec, as a terminal starts it: at the head of a process group of its own, and open to Ctrl-C.

    What a script starts by `&` ignores SIGINT, and so would all that the tests start if they were started like that.
    """

    def __init__(self, folder: Path, *words: object) -> None:
        self.printed = [folder / name for name in ("out", "err")]
        for path in self.printed:
            path.write_text("")
        self.process = context().Process(target=_command, args=([*map(str, words)], *map(str, self.printed)))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def ended(self) -> bool:
        return self.process.exitcode is not None

    def result(self, patience: float) -> tuple[int | None, str, str]:
        """Its exit code, None if it does not end, and what it printed."""
        self.process.join(patience)
        out, err = (path.read_text() for path in self.printed)
        return self.process.exitcode, out, err


def _command(words: list[str], out: str, err: str) -> None:
    from robustbench_dec.commands import app

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    sys.argv = ["robustbench-dec", *words]
    app.main()


def logging_command(log: Path, *words: object) -> ForkServerProcess:
    """robustbench-dec, which adds the radius of every cell that it computes to a log."""
    process = context().Process(target=_logging, args=(str(log), [*map(str, words)]))
    process.start()
    return process


def _logging(log: str, words: list[str]) -> None:
    from robustbench_dec.commands import app
    from robustbench_dec.running import cells

    computed = cells._computed

    def logged(cell: Cell, request: cells.Request, *rest: Any) -> CellRecord:
        with open(log, "a") as handle:
            handle.write(f"{request.attack.eps}\n")
        return computed(cell, request, *rest)

    cells._computed = logged  # type: ignore[assignment]
    sys.argv = ["robustbench-dec", *words]
    sys.stdout = io.StringIO()
    app.main()

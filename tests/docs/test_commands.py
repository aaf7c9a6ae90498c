"""Every command that README and docs print is typed in a copy of the repository, or is named here as too long to be."""

import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from robustbench_dec.commands import app as command_line
from tests.support import ROOT, repository

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PUBLISH = r"robustbench-dec (publish|withdraw|submit|board|page|zoo add|zoo keep|audit|export)"
LONG = {
    r"^make ": "targets of the Makefile: CI runs `make test`, tests/rendering renders the committed tables",
    r"^source ": "the tests' own environment is active",
    r"^tensorboard ": "serves until it is stopped",
    r"pip (install|wheel)": "tests/docs/test_wheel.py builds and installs the wheel",
    r"^torchrun .*(--nnodes|table2|--dataset mnist)": "two hosts, or a whole table",
    r"^torchrun ": "tests/networks and tests/own start ranks",
    r"robustbench-dec (table|tune|render) ": "minutes to hours; tests/running makes a small table",
    r"--dataset (mnist|cifar10|a9a)": "minutes, and data that are fetched",
    r"robustbench-dec data ": "data that are fetched; tests/data",
    r"robustbench-dec compare ": "minutes on the zoo; tests/leaderboard compares, tests/docs/test_wheel.py too",
    r"robustbench-dec diagnose": "tests/theory",
    PUBLISH: "tests/leaderboard and tests/store",
    "path/to/": "a place of the reader's own; the same command is typed with a file of examples/",
}
"""Why a command is not typed here, by what it looks like."""


def printed(path: Path) -> Iterator[str]:
    for language, block in FENCE.findall(path.read_text()):
        for line in block.splitlines() if not language else ():
            command = line.partition("  #")[0].strip()
            if command and not command.startswith("#"):
                yield command


COMMANDS = list(dict.fromkeys(command for path in PAGES for command in printed(path)))


def reason(command: str) -> str | None:
    return next((why for pattern, why in LONG.items() if re.search(pattern, command)), None)


TYPED = [command for command in COMMANDS if reason(command) is None]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands need of the repository, with a git of its own that tells what has changed."""
    home = repository.check_out(
        tmp_path_factory.mktemp("copy"), "architectures", "examples", "results/zoo", "tables/*.toml", ".gitignore"
    )
    for words in (["init", "--quiet"], ["add", "--all"]):
        repository.git(*words, root=home)
    return home


def typed(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """What a command answers: its exit code and all that it prints. In this process: torch is imported once."""
    runs = sorted((folder / "out" / "runs").glob("digits-dec_fedtrack-*"))
    words = shlex.split(command.replace("<id>", runs[0].name if runs else "<id>"))
    if words[0] == "robustbench-dec" and words[1] in ("train", "check") and "--rounds" not in words:
        words += ["--rounds", "3"] if words[1] == "train" else []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", words)
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0), out.getvalue()


@pytest.mark.slow
def test_every_printed_command_that_is_short_can_be_pasted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(TYPED) > 10
    for command in sorted(TYPED, key=lambda each: "out/runs" in each):  # train comes before what needs its run
        code, said = typed(command, copy, monkeypatch)
        assert code == 0, f"{command}\n{said}"
    changed = repository.git("status", "--porcelain", root=copy).decode().splitlines()
    assert [line for line in changed if not line.startswith("A ")] == []  # all that was made is ignored


def test_what_is_called_long_is_printed_somewhere() -> None:
    used = {reason(command) for command in COMMANDS}
    assert set(LONG.values()) - used <= {LONG[PUBLISH], LONG["path/to/"]}


@pytest.mark.slow
def test_a_command_that_does_not_work_is_found_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = typed("robustbench-dec train --graph rnig", copy, monkeypatch)
    assert code == 2 and "no graph" in said

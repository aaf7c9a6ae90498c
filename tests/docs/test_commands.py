"""Every command that README and docs print is typed in a copy of the repository, or is named here as too long to be."""

import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from robustbench_dec.commands import app as command_line
from robustbench_dec.rendering import style
from tests.support import ROOT, repository

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Long(NamedTuple):
    """Why a command is not typed here, and who types it in small: a file of the repository, and words in it."""

    why: str
    where: str
    words: str


LONG = {
    r"^make (setup|quick|test|docs)": Long("CI does it", ".ci/run", "make test"),
    r"^make table2": Long(
        "hours; a small one is reproduced", "tests/rendering/test_against_published.py", '"reproduce"'
    ),
    r"^make ": Long(
        "hours; the files are rendered from what is stored", "tests/rendering/test_tables.py", "byte for byte"
    ),
    r"^source ": Long("the tests' own environment is active", "Makefile", "BIN := .venv/bin"),
    r"^tensorboard ": Long("serves until it is stopped", "tests/commands/test_json.py", "EventAccumulator"),
    r"pip (install|wheel)": Long("needs an environment", "tests/docs/test_wheel.py", '"install"'),
    r"^torchrun ": Long("starts processes", "tests/networks/test_ranks.py", "start=fresh_torchrun"),
    r"robustbench-dec table ": Long("minutes to hours", "tests/own/test_own_run.py", '"table"'),
    r"robustbench-dec tune ": Long("hours", "tests/rendering/test_figures.py", '"tune"'),
    r"train .*--dataset (mnist|cifar10|a9a)": Long("data are fetched", "tests/data/test_data.py", "fetch("),
    r"robustbench-dec data ": Long("data are fetched", "tests/data/test_data.py", "fetch("),
    r"robustbench-dec (compare|score|submit) ": Long(
        "minutes on the zoo, whose data are fetched", "tests/leaderboard/test_compare.py", '"compare"'
    ),
    r"robustbench-dec (publish|withdraw)": Long(
        "changes what git tracks", "tests/leaderboard/test_publishing.py", '"withdraw"'
    ),
}
"""By what they look like."""


def printed(path: Path) -> Iterator[str]:
    for language, block in FENCE.findall(path.read_text()):
        for line in block.splitlines() if not language else ():
            command = line.partition("  #")[0].strip()
            if command and not command.startswith("#"):
                yield command


COMMANDS = list(dict.fromkeys(command for path in PAGES for command in printed(path)))


def reason(command: str) -> Long | None:
    return next((why for pattern, why in LONG.items() if re.search(pattern, command)), None)


TYPED = [command for command in COMMANDS if reason(command) is None]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands need of the repository, with a git of its own that tells what has changed."""
    home = repository.check_out(tmp_path_factory.mktemp("copy"), ".")
    _write_a_readers_own(home / "path" / "to")
    for words in (["init", "--quiet"], ["add", "--all"]):
        repository.git(*words, root=home)
    return home


def _write_a_readers_own(folder: Path) -> None:
    """What pages call path/to/..., in small."""
    folder.mkdir(parents=True)
    (folder / "net.py").write_text((ROOT / "architectures" / "mlp.py").read_text().replace("class MLP", "class Net"))
    (folder / "mine.py").write_text((ROOT / "examples" / "momentum.py").read_text().replace("Momentum", "Mine"))
    images = np.random.default_rng(0).integers(0, 256, (400, 8, 8), dtype=np.uint8)
    labels = np.arange(400) % 2
    parts = {"train": slice(0, 300), "test": slice(300, 400)}
    arrays: dict[str, Any] = {f"{name}_images": images[part] for name, part in parts.items()}
    arrays |= {f"{name}_labels": labels[part] for name, part in parts.items()}
    np.savez(folder / "images.npz", **arrays)
    for number, image in enumerate(images):
        place = folder / "pictures" / ("train" if number < 300 else "test") / ("cat", "dog")[labels[number]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    rows = [f"{label} 1:{image[0, 0] / 255:.3f} 2:{label}.5" for image, label in zip(images, labels, strict=True)]
    (folder / "rows.svm").write_text("\n".join(rows) + "\n")


def typed(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """What a command answers: its exit code and all that it prints. In this process: torch is imported once."""
    runs = sorted((folder / "out" / "runs").glob("digits-dec_fedtrack-*"))
    words = shlex.split(command.replace("<id>", runs[0].name if runs else "<id>"))
    if words[:2] in (["robustbench-dec", "train"], ["robustbench-dec", "diagnose"]) and "--rounds" not in words:
        words += ["--rounds", "3"]
    words = [word.replace("mnist/my_model", "digits/my_model") for word in words]  # the run is one on digits
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", words)
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0), out.getvalue()


@pytest.mark.slow
def test_every_printed_command_that_is_short_can_be_pasted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(TYPED) > 30
    drawn, seen = style.drawn, set[str]()
    for command in sorted(TYPED, key=lambda each: "out/runs" in each):  # train comes before what needs its run
        kind = " ".join(word for word in command.split() if word in ("diagnose", "--lemmas"))
        # What `diagnose` draws is drawn once of each kind: it is the longer part of the work, and ignored by git.
        monkeypatch.setattr(style, "drawn", (lambda figure, kind: b"") if kind in seen else drawn)
        seen |= {kind} - {""}
        code, said = typed(command, copy, monkeypatch)
        assert code == 0, f"{command}\n{said}"
    changed = repository.git("status", "--porcelain", root=copy).decode().splitlines()
    # All that was made is ignored, and what was rendered anew is as it was; the page links to the shelves of a checkout
    # only, and these commands ran from another one.
    assert {line for line in changed if not line.startswith("A ")} <= {"AM tables/index.html"}


def test_what_is_called_long_is_printed_somewhere_and_tried_in_small() -> None:
    assert {*LONG.values()} == {reason(command) for command in COMMANDS} - {None}
    for _, where, words in LONG.values():
        assert words in (ROOT / where).read_text(), f"{where} does not say {words}"


@pytest.mark.slow
def test_a_command_that_does_not_work_is_found_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = typed("robustbench-dec train --graph rnig", copy, monkeypatch)
    assert code == 2 and "no graph" in said

"""The wheel, built from what git tracks and installed where there is no checkout: an empty folder will do."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import repository


@dataclass(frozen=True)
class Installed:
    """The wheel's command in an environment of its own, and the folder in which it is typed."""

    command: Path
    folder: Path

    def say(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self.command, *words], cwd=self.folder, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


ATTACK = """
def brighter(model, images, labels, eps):
    return images + eps
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = repository.check_out(tmp_path_factory.mktemp("copy"), ".")
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=copy, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def libraries() -> list[Path]:
    """What is installed here but this suite; no .pth file, which is how an editable install leads to a checkout."""
    folders = [Path(folder) for folder in sys.path if Path(folder).name == "site-packages"]
    found = {path.name: path for folder in reversed(folders) for path in folder.iterdir()}
    ours = ("robustbench_dec", "__editable__", "__pycache__")
    return [path for name, path in found.items() if path.suffix != ".pth" and not name.startswith(ours)]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """In an empty folder, in an environment that has the libraries and no way to the checkout."""
    home = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home / "env")}))
    for library in libraries():
        (site / library.name).symlink_to(library)
    for suite in ("robustbench_dec", "attacks"):
        with pytest.raises(subprocess.CalledProcessError):
            command = [str(home / "env" / "bin" / "python"), "-I", "-c", f"import {suite}"]
            subprocess.run(command, cwd=home, check=True, capture_output=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "env" / "bin" / "python")]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "install", *quiet, str(wheel)], check=True)
    (home / "empty").mkdir()
    return Installed(home / "env" / "bin" / "robustbench-dec", home / "empty")


@pytest.mark.slow
def test_the_wheel_carries_what_it_needs(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for pattern in ("architectures/*.py", "attacks/*.py", "trainers/*.py", "trainers/*.bib"):
        for path in repository.tracked(pattern):
            assert f"robustbench_dec/shelves/{path}" in inside
    for pattern in ("tables/*.toml", "results/zoo/*.safetensors", "results/runs/*/attacks/*.json", "docs/flags.md"):
        for path in repository.tracked(pattern):
            assert f"robustbench_dec/shipped_files/{path}" in inside
    assert "robustbench_dec/py.typed" in inside
    assert {name.partition("/")[0].partition("-")[0] for name in inside} == {"robustbench_dec"}


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder(installed: Installed) -> None:
    (run,) = json.loads(installed.say("train", "--rounds", "3", "--json"))
    assert (installed.folder / run["folder"] / "run.json").is_file()
    (installed.folder / "mine.py").write_text(ATTACK)
    compared = installed.say(
        "compare", "--attack", "mine.py:brighter", "--model", run["folder"], "--eps", "0.1", "--n-examples", "20"
    )
    assert "mine.py:brighter: breaks" in compared and (installed.folder / "out" / "index.html").is_file()
    assert "the paper's numbers in" in installed.say("audit", "table2", "--results", "out")
    assert {path.name for path in installed.folder.iterdir()} == {"mine.py", "out"}


@pytest.mark.slow
def test_the_wheel_has_zoo_stored_cells_and_flags(installed: Installed) -> None:
    code = (
        "import pathlib, robustbench_dec as r, robustbench_dec.shipped as s; from robustbench_dec.store.results import "
        "Results; from robustbench_dec.store import zoo; print('site-packages' in r.__file__, "
        "all(list(Results(s.results()).run(e.record.id).cells()) for e in zoo.entries()), s.specifications(), "
        "'`budget`' in (s.place('docs') / 'flags.md').read_text())"
    )
    python = installed.command.with_name("python")
    done = subprocess.run([python, "-c", code], cwd=installed.folder.parent, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True True ['figures'") and done.stdout.endswith("True\n"), done.stdout

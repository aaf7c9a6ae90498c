"""One tiny table on digits, trained once a session; a test that changes files works on a copy.

Fixtures import what they need: the process that hands the tests to the workers reads this file too, before any of them
starts, and needs no torch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.support import repository
from tests.support.once import once

if TYPE_CHECKING:
    from torch import Tensor, nn

    from robustbench_dec.problems.universal import Universal
    from tests.support.tiny import Made

os.environ["OMP_NUM_THREADS"] = "1"  # for torch here and in what tests start: the workers have the cores already
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # for them too: make installs nothing compiled

# Nothing is timed. In CI the examples are the same every time; elsewhere each session tries new ones.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "search"))


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that has a browser's tab is marked as such."""
    for item in items:
        if "tab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The tiny table with all its cells; read only."""
    from robustbench_dec.specs import table as spec
    from tests.support import by_path
    from tests.support.tiny import TABLE, Made

    def train(home: Path) -> None:
        file = home / "tables" / "tiny.toml"
        file.parent.mkdir()
        file.write_text(TABLE)
        by_path.make(spec.read(file), home / "results")

    home = once(tmp_path_factory, "finished", train)
    wanted = spec.read(home / "tables" / "tiny.toml")
    folders = [home / "results" / "runs" / run.id for _, run in wanted.runs()]
    return Made(home / "tables" / "tiny.toml", home / "results", folders)


@pytest.fixture(scope="session")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results/ and tables/ as git has them; read only."""
    return once(tmp_path_factory, "tracked", lambda home: repository.check_out(home, "results", "tables"))


@pytest.fixture
def made(finished: Made, tmp_path: Path) -> Made:
    """A copy of the tiny table, to be changed at will."""
    from tests.support.tiny import Made

    shutil.copytree(finished.file.parent.parent, tmp_path / "made")
    home = tmp_path / "made"
    folders = [home / "results" / "runs" / folder.name for folder in finished.folders]
    return Made(home / "tables" / "tiny.toml", home / "results", folders)


@pytest.fixture(scope="session")
def digits() -> Universal:
    from robustbench_dec.problems.universal import Universal

    return Universal()


@pytest.fixture
def model(finished: Made) -> nn.Module:
    """The trained Dec-FedTrack network."""
    from robustbench_dec.store.results import Run

    return Run(finished.folders[1]).model()


@pytest.fixture
def images(digits: Universal) -> Tensor:
    """60 test images in [0, 1]."""
    from robustbench_dec.attack import as_floats

    return as_floats(digits.images.test_images[:60])


@pytest.fixture
def labels(digits: Universal) -> Tensor:
    return digits.images.test_labels[:60]


@pytest.fixture
def training(digits: Universal) -> tuple[Tensor, Tensor]:
    """200 training images, as universal attacks get them."""
    from robustbench_dec.attack import as_floats

    return as_floats(digits.images.train_images[:200]), digits.images.train_labels[:200]


@pytest.fixture
def listed(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The tiny table, published and rendered."""
    from robustbench_dec.store.records import PublishedRecord
    from tests.support.typed import run

    monkeypatch.chdir(made.results.parent)
    PublishedRecord(tables=("tiny",)).write(made.results / "published.json")
    run("render", made.file)
    return made

"""One tiny table on digits, trained once a session; a test that changes files works on a copy."""

import shutil
from pathlib import Path

import pytest
from torch import Tensor, nn

from robustbench_dec.attack import as_floats
from robustbench_dec.problems.universal import Universal
from robustbench_dec.running import suite
from robustbench_dec.specs import table as spec
from robustbench_dec.store import results as store
from tests.support.tiny import TABLE, Made


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The tiny table with all its cells; read only."""
    home = tmp_path_factory.mktemp("finished")
    file = home / "tables" / "tiny.toml"
    file.parent.mkdir()
    file.write_text(TABLE)
    folders = suite.make(spec.read(file), home / "results", progress=False)
    return Made(file, home / "results", folders)


@pytest.fixture
def made(finished: Made, tmp_path: Path) -> Made:
    """A copy of the tiny table, to be changed at will."""
    shutil.copytree(finished.file.parent.parent, tmp_path / "made")
    home = tmp_path / "made"
    folders = [home / "results" / "runs" / folder.name for folder in finished.folders]
    return Made(home / "tables" / "tiny.toml", home / "results", folders)


@pytest.fixture(scope="session")
def digits() -> Universal:
    return Universal()


@pytest.fixture
def model(finished: Made) -> nn.Module:
    """The trained Dec-FedTrack network."""
    return store.mean_model(finished.folders[1])


@pytest.fixture
def images(digits: Universal) -> Tensor:
    """60 test images in [0, 1]."""
    return as_floats(digits.images.test_images[:60])


@pytest.fixture
def labels(digits: Universal) -> Tensor:
    return digits.images.test_labels[:60]


@pytest.fixture
def training(digits: Universal) -> tuple[Tensor, Tensor]:
    """200 training images, as universal attacks get them."""
    return as_floats(digits.images.train_images[:200]), digits.images.train_labels[:200]

"""Wrong networks and wrong data: one sentence each that names the fault, exit code 2, nothing written."""

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from robustbench_dec.commands import app as cli

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"

FLAT = """
class Net(nn.Module):
    def __init__(self, shape, classes{more}):
        super().__init__()
        self.linear = nn.Linear(shape[0] * shape[1] * shape[2], classes)
        {built}
    def forward(self, images):
        h = self.linear(images.flatten(1))
        {passed}
        return h
"""


def net(built: str = "", passed: str = "", more: str = "") -> str:
    """A linear network with something added to it."""
    return HEAD + FLAT.format(built=built or "pass", passed=passed or "pass", more=more)


def inside(forward: str) -> str:
    return net().replace("h = self.linear(images.flatten(1))", forward)


NETWORKS: dict[str, tuple[str, str]] = {
    "batchnorm": (
        net("self.norm = nn.BatchNorm1d(classes)", "h = self.norm(h)"),
        "layer 'norm' is a BatchNorm1d, which shares statistics between images .* take nn.GroupNorm",
    ),
    "buffer": (
        net("self.register_buffer('seen', torch.zeros(1))"),
        "keeps a buffer 'seen' in a Net, .* persistent=False",
    ),
    "spectral": (
        net("self.more = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))"),
        "keeps a buffer 'more.parametrizations.weight.0._u' in a _SpectralNorm",
    ),
    "dropout": (net("self.drop = nn.Dropout(0.5)", "h = self.drop(h)"), "layer 'drop' is a Dropout, .* leave it out"),
    "functional-dropout": (
        net(passed="h = F.dropout(h, 0.5, self.training)"),
        "answers otherwise in training mode than in eval mode",
    ),
    "chance": (net(passed="h = h + torch.randn_like(h)"), "answers the same images differently"),
    "drawn": (net("self.noise = torch.randn(classes)", "h = h + self.noise"), "draws numbers when it is built"),
    "neighbours": (net(passed="h = h - h.mean(0)"), "depends on the images beside it; .*GroupNorm"),
    "softmax": (net(passed="h = h.softmax(1)"), "answers probabilities; take its last softmax out"),
    "tuple": (net(passed="h = (h, h)"), r"logits of shape \(images, classes\), .* not a tuple"),
    "shape": (net(passed="h = h[:, :3]"), r"\(4, 10\) for 4 images, not \(4, 3\)"),
    "nan": (net(passed="h = h / 0"), "answers NaN or infinity before it is trained"),
    "raises": (inside("h = self.linear(images)"), r"cannot answer images .* mat1 and mat2 .*net.py, line 11"),
    "double": (net("self.double()"), "parameter 'linear.weight' is of torch.float64; parameters are torch.float32"),
    "frozen": (net("self.linear.requires_grad_(False)"), "parameter 'linear.weight' is frozen"),
    "lazy": (net("self.more = nn.LazyLinear(3)"), "parameter 'more.weight' has no shape before a first pass"),
    "empty": (
        net().replace("self.linear = nn.Linear(shape[0] * shape[1] * shape[2], classes)", "self.classes = classes"),
        "has no parameters, so there is nothing to train",
    ),
    "detached": (inside("h = self.linear(images.flatten(1).detach())"), "no gradient in the images; .* may not detach"),
    "no-grad": (inside("with torch.no_grad(): h = self.linear(images.flatten(1))"), "no gradient in its parameters"),
    "in-place": (
        net(passed="g = h.exp(); h.add_(1); h = g + g.add_(1)"),
        "cannot be differentiated: RuntimeError: one of the variables .* modified by an inplace operation",
    ),
    "writes-x": (
        net(passed="self.linear.weight.data.clamp_(-0.01, 0.01)"),
        "changes its own parameters or buffers in its forward pass",
    ),
    "no-arguments": (net().replace("self, shape, classes", "self"), r"is built from nothing; .* Net\(shape, classes\)"),
    "more-arguments": (net(more=", width"), "needs more than the images' shape .*: width; give it a default"),
    "taken": (net(more=", eps=0.1"), "has a setting 'eps', as Universal has; give it another name"),
    "no-init": (net().replace("super().__init__()", "pass"), "cannot be built for images .* before Module.__init__"),
    "syntax": (net(passed="h = = h"), "net.py cannot be imported: SyntaxError"),
    "exits": (HEAD + "raise SystemExit(0)", "net.py cannot be imported: SystemExit"),
    "no-network": (HEAD + "class Net:\n    pass\n", "has no class Net that is a subclass of torch.nn.Module"),
}


def arrays(**changed: Any) -> dict[str, Any]:
    """Ten grey images of 8x8 pixels in two classes, five of them to test, with something changed."""
    pixels = np.arange(10 * 64, dtype=np.uint8).reshape(10, 8, 8)
    labels = np.array([0, 1] * 5)
    plain = {"train_images": pixels, "train_labels": labels, "test_images": pixels[:5], "test_labels": labels[:5]}
    return {name: value for name, value in (plain | changed).items() if value is not None}


def npz(**changed: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays(**changed))


def pickled(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in arrays(train_labels=np.array(["a", object()], dtype=object)).items():
            content = io.BytesIO()
            np.save(content, value, allow_pickle=value.dtype == object)
            archive.writestr(f"{name}.npy", content.getvalue())


def truncated(path: Path) -> None:
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:-300])


def tensors(path: Path, classes: object = None, **changed: Any) -> None:
    metadata = None if classes is None else {"classes": json.dumps(classes)}
    safetensors.numpy.save_file(arrays(**changed), path, metadata)


def pictures(**sizes: tuple[int, int]) -> Callable[[Path], None]:
    """train/<class>/0.png, ... by the words train_cat, test_dog; of a size, or broken if that is empty."""

    def write(folder: Path) -> None:
        for part in ("train", "test"):
            (folder / part).mkdir(parents=True)
        for place, size in ({f"{p}_{c}": (8, 8) for p in ("train", "test") for c in ("cat", "dog")} | sizes).items():
            part, name = place.split("_")
            (folder / part / name).mkdir(exist_ok=True)
            for number in range(2 if size else 0):
                Image.new("RGB", size).save(folder / part / name / f"{number}.png")
            if size == (1, 1):
                (folder / part / name / "0.png").write_bytes(b"no picture")

    return write


DATA: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("x.npz", lambda path: None, "no data set x.npz; give a name"),
    "no-zip": ("x.npz", lambda path: path.write_bytes(b"hello"), "is no whole .npz file"),
    "truncated": ("x.npz", truncated, "is no whole .npz file"),
    "pickle": ("x.npz", pickled, "nothing is unpickled"),
    "lacks": ("x.npz", npz(test_labels=None), "no array 'test_labels'; it needs train_images, .* and has train_images"),
    "range": ("x.npz", npz(train_images=np.full((10, 8, 8), 7.5)), r"floats from 7.5 to 7.5; floats lie in \[0, 1\]"),
    "not-a-number": ("x.npz", npz(test_images=np.full((5, 8, 8), np.nan)), "test_images .* floats from nan to nan"),
    "int64": ("x.npz", npz(train_images=np.ones((10, 8, 8), int)), "are of int64; pixels are uint8 from 0 to 255"),
    "colours": ("x.npz", npz(train_images=np.ones((10, 5, 8, 8), np.uint8)), "1 or 3 colours, not 5"),
    "flat": ("x.npz", npz(train_images=np.ones((10, 64), np.uint8)), r"\(N, H, W\) .* not of shape \(10, 64\)"),
    "none": ("x.npz", npz(test_images=np.ones((0, 8, 8), np.uint8)), r"test_images .* not of shape \(0, 8, 8\)"),
    "sizes": ("x.npz", npz(test_images=np.ones((5, 9, 9), np.uint8)), r"\(1, 8, 8\), .* \(1, 9, 9\); all images have"),
    "number": ("x.npz", npz(train_labels=np.array([0, 1, 1])), r"one per image, \(10,\) .* not of shape \(3,\)"),
    "float-labels": ("x.npz", npz(train_labels=np.full(10, 0.5)), "whole numbers 0..C-1, or names, not float64"),
    "negative": ("x.npz", npz(test_labels=np.array([0, 1, -1, 0, 1])), "go from -1 to 1; those of 2 classes are 0..1"),
    "beyond": ("x.npz", npz(test_labels=np.array([0, 1, 2, 0, 1])), "go from 0 to 2; those of 2 classes are 0..1"),
    "gap": ("x.npz", npz(train_labels=np.array([0, 2] * 5)), "class '1' .* has no images among the train_images"),
    "untested": ("x.npz", npz(test_labels=np.zeros(5, int)), "class '1' .* has no images among the test_images"),
    "one-class": ("x.npz", npz(train_labels=np.zeros(10, int)), "has 1 class; a classifier tells at least 2 apart"),
    "unknown-name": (
        "x.npz",
        npz(train_labels=np.array(["cat", "dog"] * 5), test_labels=np.array(["cat", "dog", "cow", "cat", "dog"])),
        "name a class 'cow'; there are: cat, dog",
    ),
    "same-names": ("x.safetensors", lambda path: tensors(path, ["a", "a"]), "two classes .* have the same name"),
    "names": ("x.safetensors", lambda path: tensors(path, 5), "'classes' of x.safetensors should be a JSON list"),
    "no-tensors": ("x.safetensors", lambda path: path.write_bytes(b"{}"), "is no whole .safetensors file"),
    "no-test": ("x", lambda path: (path / "train").mkdir(parents=True), "has no folder test/"),
    "one-sided": ("x", pictures(test_cow=(8, 8)), "the class 'cow' is only in one of"),
    "empty-class": ("x", pictures(train_dog=()), "has no pictures"),  # type: ignore[arg-type]
    "many-sizes": ("x", pictures(test_dog=(9, 8)), "is of 8x8 pixels, .* of 9x8; all images have one size"),
    "no-picture": ("x", pictures(test_dog=(1, 1)), "is no whole picture"),
    "rows": ("./x.svm", lambda path: path.write_text("1 1:2\n-1 1:3\n"), "taken for rows of features, but images are"),
}


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """`robustbench-dec train WORDS...`: the one sentence with which it is refused."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        before = {*tmp_path.rglob("*")}
        monkeypatch.setattr(sys, "argv", ["robustbench-dec", "train", "--rounds", "1", "--nodes", "2", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        err = capsys.readouterr().err
        assert ended.value.code == 2, err
        assert err.startswith("robustbench-dec: ") and err.count("\n") == 1 and "Traceback" not in err, err
        assert {*tmp_path.rglob("*")} == before  # nothing written
        return err

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_wrong_network_is_one_sentence(name: str, refused: Callable[..., str], tmp_path: Path) -> None:
    text, expected = NETWORKS[name]
    (tmp_path / "net.py").write_text(text)
    sentence = refused("--model", "net.py:Net")
    assert re.search(expected, sentence), sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_a_wrong_file_of_images_is_one_sentence(name: str, refused: Callable[..., str], tmp_path: Path) -> None:
    file, write, expected = DATA[name]
    write(tmp_path / file)
    sentence = refused("--dataset", file, "--model", "mlp")
    assert re.search(expected, sentence), sentence


ROWS = {
    "words": ("hello world\n", "is no file in svmlight's format"),
    "labels": ("1 1:2\n2 1:3\n3 1:3\n", "should have two kinds of labels"),
    "nothing": ("", "has no rows"),
    "infinite": ("1 1:inf\n-1 1:2\n", "NaN or infinite"),
    "few": ("1 1:1\n-1 1:2\n", "3 nodes are more than the 2 samples"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_file_of_rows_is_one_sentence(name: str, refused: Callable[..., str], tmp_path: Path) -> None:
    text, expected = ROWS[name]
    (tmp_path / "x.svm").write_text(text)
    sentence = refused("--problem", "robust_logistic", "--dataset", "x.svm", "--nodes", "3")
    assert re.search(expected, sentence), sentence


def test_images_are_no_rows(refused: Callable[..., str], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays())
    assert "x.npz is taken for images, but rows" in refused("--problem", "robust_logistic", "--dataset", "x.npz")


def test_unknown_names_and_settings_are_told_with_the_known_ones(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net(more=", width=3"))
    assert "no architecture 'cnn9'; there are: cnn1, cnn2, cnn3, mlp, resnet8" in refused("--model", "cnn9")
    assert "no file nett.py for the architecture" in refused("--model", "nett.py:Net")
    assert "Universal has no setting 'depth'; there are: dataset, " in refused("--problem-set", "depth=3")
    assert "resnet8's width must be a multiple of 4, not 6" in refused("--model", "resnet8", "--problem-set", "width=6")
    assert "no architecture ''; there are: cnn1" in refused("--model", "")
    assert "no data set ''; there are: " in refused("--dataset", "")
    assert "the network's kernel must be an odd number of pixels, not 4" in refused("--problem-set", "kernel=4")
    sentence = refused("--model", "net.py:Net", "--problem-set", "width=much")
    assert "net.py:Net's setting 'width' cannot be 'much'" in sentence

"""A network and data of one's own, from training to the leaderboard, on one process and on several."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from robustbench_dec import data, shelf, trainable
from robustbench_dec.architecture import Architecture, blueprint
from robustbench_dec.attack import as_floats
from robustbench_dec.commands import app as cli
from robustbench_dec.data import own
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.problems.universal import Universal
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results, Run
from tests.support import ROOT
from tests.support.processes import torchrun

TRAINERS = ("dec_fedtrack", "k_gt", "local_sgda")
WORDS = ("--dataset", "mine/digits.npz", "--model", "mine/net.py:Net", "--problem-set", "width=4", "--nodes", "2",
         "--set", "K=2", "--set", "batch=16", "--rounds", "2")  # fmt: skip

ATTACKS: dict[str, tuple[str, ...]] = {
    "fgsm": (),
    "pgd": ("steps=4",),
    "uap": ("steps=4", "search=2", "restarts=1", "sga=0", "looks=1", "judged=50", "batch=16"),
}

ATTACK = """
def halfway(model, images, labels, eps):
    return images + eps / 2 * (0.5 - images).sign()
"""


def write_data(path: Path) -> None:
    """Digits as floats in [0, 1], three classes by their names."""
    bundle = load_digits()
    few = bundle.target < 3
    images, labels = bundle.images[few] / 16, np.array(["zero", "one", "two"])[bundle.target[few]]
    np.savez(path, train_images=images[:200], train_labels=labels[:200], test_images=images[200:260],
             test_labels=labels[200:260])  # fmt: skip


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Run `robustbench-dec WORDS...` in a folder with a network and data: what it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    resnet = (ROOT / "architectures" / "resnet8.py").read_text()
    (tmp_path / "mine" / "net.py").write_text(resnet.replace("class ResNet8", "class Net"))
    (tmp_path / "mine" / "attack.py").write_text(ATTACK)
    write_data(tmp_path / "mine" / "digits.npz")

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["robustbench-dec", *words])
        try:
            cli.main()
        except SystemExit as error:
            assert not error.code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.ranks
def test_a_groupnorm_resnet_on_ones_own_images_goes_all_the_way(command: Callable[..., str], tmp_path: Path) -> None:
    for trainer in TRAINERS:
        eta = ["--set", "eta_c=0.1"] if trainer != "local_sgda" else ["--set", "eta_x=0.1", "--set", "eta_y=0.1"]
        command("train", "--trainer", trainer, *WORDS, *eta)
    runs = {run.record.method: run for run in Results(tmp_path / "out").runs()}
    assert {*runs} == {*TRAINERS}
    first = runs["dec_fedtrack"]
    settings, card = first.record.settings.problem, first.record.classifier
    assert card is not None and card.classes == ("one", "two", "zero") and card.architecture.name == "net.py:Net"
    assert settings["dataset"] == "digits.npz" and settings["model"] == "net.py:Net" and settings["width"] == 4
    assert settings["normalised"] is False and card.architecture.mean == (0.0,)
    assert len(settings["dataset_sha256"]) == len(settings["model_sha256"]) == 64
    assert str(tmp_path) not in json.dumps(first.record.settings.model_dump(mode="json"))

    for attack, asked in ATTACKS.items():
        more = [word for setting in asked for word in ("--set", setting)]
        assert "robust" in command("attack", str(first.folder), "--attack", attack, "--eps", "0.2", *more)
    command("zoo", "add", str(first.folder), "digits.npz/mine", "--results", "out")
    assert "digits.npz/mine: net.py:Net" in command("zoo", "list", "--results", "out")
    compared = command(
        "compare", "--attack", "mine/attack.py:halfway", "--model", "digits.npz/mine", "--eps", "0.2",
        "--results", "out", "--n-examples", "30",
    )  # fmt: skip
    assert "digits.npz/mine" in compared
    model = zoo.load_model(tmp_path / "out" / "zoo" / "digits.npz" / "mine.safetensors")
    images = data.load("mine/digits.npz").test_images
    assert images.dtype == torch.float32 and images.unique().tolist() == [k / 16 for k in range(17)]  # as they are
    assert model(images).allclose(first.model()(images), atol=1e-5)

    done = torchrun(2, "-m", "robustbench_dec", "train", *WORDS, "--set", "eta_c=0.1", "--results", "ranks")
    assert done.returncode == 0, done.stderr
    together = Run(tmp_path / "ranks" / "runs" / first.record.id)
    assert together.record.processes_used == (2,)
    assert together.record.checkpoint_sha256 == first.record.checkpoint_sha256

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "out" / "zoo", elsewhere)
    source = tmp_path / "mine" / "net.py"
    source.write_text(source.read_text() + "# edited\n")
    with pytest.raises(BadInput, match=r"net\.py:Net was edited since this network was trained; its source had"):
        first.model()
    source.unlink()
    with pytest.raises(BadInput, match=r"no file mine/net\.py"):
        first.model()

    for carried in (tmp_path / "out" / "zoo", elsewhere):  # an entry needs no other file
        moved = carried / "digits.npz" / "mine.safetensors"
        assert zoo.load_model(moved)(images).equal(model(images))
        assert zoo.from_path(moved).problem().images.test_images.equal(images)
    bad = elsewhere / "digits.npz" / "mine.py"
    bad.write_text("raise SystemExit('executed')\n")
    for ask in (zoo.from_path(moved).model, zoo.from_path(moved).problem):
        with pytest.raises(BadInput, match=r"mine\.py is not the source of digits\.npz/mine, .* so it is not executed"):
            ask()
    with pytest.raises(BadInput, match=r"mine/net\.py is missing, or not the source of .* any more"):
        zoo.add(first.folder, "digits.npz/again", tmp_path / "out" / "zoo")


@pytest.mark.parametrize("name", shelf.names("architecture"))
def test_every_network_of_the_shelf_can_be_trained(name: str) -> None:
    for shape in ((1, 8, 8), (3, 17, 12)):
        colours = shape[0]
        card = Architecture(name=name, shape=shape, classes=3, mean=(0.5,) * colours, std=(0.25,) * colours)
        trainable.check(card.model_copy(update=blueprint(name).defaults()))


def test_images_are_read_the_same_from_every_form(tmp_path: Path) -> None:
    import safetensors.numpy
    from PIL import Image

    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (8, 3, 6, 5), dtype=np.uint8)
    labels = np.array([0, 1] * 4)
    parts: dict[str, Any] = {
        "train_images": images,
        "train_labels": labels,
        "test_images": images[:4],
        "test_labels": labels[:4],
    }
    np.savez(tmp_path / "a.npz", **parts, classes=np.array(["cat", "dog"]))
    last: dict[str, Any] = {
        name: value.transpose(0, 2, 3, 1) / 255 if value.ndim == 4 else value for name, value in parts.items()
    }
    np.savez_compressed(tmp_path / "b.npz", **last, classes=np.array(["cat", "dog"]))
    safetensors.numpy.save_file(parts, tmp_path / "c.safetensors", {"classes": json.dumps(["cat", "dog"])})
    for part, count in (("train", 8), ("test", 4)):
        for number in range(count):
            file = tmp_path / "d" / part / ("cat", "dog")[labels[number]] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number].transpose(1, 2, 0)).save(file)
    found = [own.pictures(str(tmp_path / name)) for name in ("a.npz", "b.npz", "c.safetensors", "d")]
    for each in found:
        assert each.classes == ("cat", "dog") and each.train[0].shape == (8, 3, 6, 5)
    for each in found[:3]:
        assert each.train[0].equal(torch.from_numpy(images)) and each.test[1].tolist() == [0, 1, 0, 1]
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # a folder is read class by class
    assert found[3].train[0].equal(torch.from_numpy(images)[order])
    chosen = data.load(str(tmp_path / "a.npz"), ["dog", "cat"], validation=0)
    assert chosen.classes == ("dog", "cat") and chosen.train_labels.tolist() == [1, 0] * 4


def test_floats_are_kept_as_they_are_unless_8_bits_say_the_same(tmp_path: Path) -> None:
    levels = (np.arange(256) / 255).reshape(4, 8, 8)  # float64
    finer = np.random.default_rng(0).random((4, 8, 8), dtype=np.float32)
    labels: dict[str, Any] = {"train_labels": np.array([0, 1, 0, 1]), "test_labels": np.array([0, 1, 0, 1])}
    for name, train, test in (("l", levels, levels), ("f", finer, finer), ("m", levels.astype("f4"), finer)):
        np.savez(tmp_path / f"{name}.npz", train_images=train, test_images=test, **labels)
    same, fine, mixed = (own.pictures(str(tmp_path / f"{name}.npz")) for name in "lfm")
    assert same.train[0].dtype == torch.uint8 and same.train[0].flatten().tolist() == list(range(256))
    assert fine.train[0].dtype == torch.float32 and fine.train[0][:, 0].equal(torch.from_numpy(finer))
    assert mixed.train[0].dtype == mixed.test[0].dtype == torch.float32
    assert mixed.train[0].equal(as_floats(same.train[0]))  # what the network would see of 8 bits
    problem = Universal(dataset=str(tmp_path / "f.npz"), validation=0.0, normalised=True)
    mean, std = float(finer.astype("f8").mean()), float(finer.astype("f8").std())
    assert problem.architecture.mean == (round(mean, 4),) and problem.architecture.std == (round(std, 4),)
    x, y = problem.start(0)
    batch = problem.images.train_images, problem.images.train_labels
    by_hand = nn.functional.cross_entropy(problem.module(x)(torch.from_numpy(finer)[:, None]), batch[1])
    assert problem.loss(x, y, batch).allclose(by_hand) and problem.loss(x, None, batch).allclose(by_hand)


def test_the_content_decides_the_identity_and_the_path_does_not(tmp_path: Path) -> None:
    write_data(tmp_path / "digits.npz")
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "digits.npz"
    copy.write_bytes((tmp_path / "digits.npz").read_bytes())
    here, there = (Universal(dataset=str(path)) for path in (tmp_path / "digits.npz", copy))
    assert here.settings() == there.settings() and "dataset_sha256" in here.settings()
    with np.load(copy) as former:  # the same labels, other pixels
        np.savez(copy, **{name: 1 - value if "images" in name else value for name, value in former.items()})
    assert Universal(dataset=str(copy)).settings() != here.settings()
    with pytest.raises(BadInput, match="was edited after it was asked for"):
        _ = there.images
    assert Universal(dataset="digits").settings()["dataset"] == "digits"


@pytest.mark.slow
def test_rows_of_ones_own_train_robust_logistic_regression(command: Callable[..., str], tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(60, 3))
    lines = [f"{int(row.sum() > 0)} " + " ".join(f"{k + 1}:{v:.3f}" for k, v in enumerate(row)) for row in features]
    (tmp_path / "rows.svm").write_text("\n".join(lines[:40]) + "\n")
    (tmp_path / "rows.svm.t").write_text("\n".join(lines[40:]) + "\n")
    table = data.load_tabular(str(tmp_path / "rows.svm"))
    assert table.classes == ("0", "1") and len(table.test_labels) == 20 and table.train_features.shape == (40, 3)
    out = command(
        "train", "--problem", "robust_logistic", "--dataset", "rows.svm", "--nodes", "2", "--rounds", "3",
        "--set", "batch=4",
    )  # fmt: skip
    (run,) = Results(tmp_path / "out").runs()
    assert run.record.dataset == "rows.svm" and len(run.record.settings.problem["dataset_sha256"]) == 64
    assert str(run.folder.name) in out


TABLE = """
title = "Mine"
caption = "A network and data of one's own."
n_examples = 30
curve_points = 2
curve_examples = 30
[network]
nodes = 2
[[blocks]]
title = "My digits"
rounds = 2
problem = { dataset = "mine/digits.npz", model = "mine/net.py:Net", eps = 0.1, width = 4 }
[blocks.trainers]
k_gt = { eta_c = 0.2, batch = 16 }
dec_fedtrack = { eta_c = 0.2, eta_d = 1.0, batch = 16 }
[[blocks.attacks]]
name = "fgsm"
eps = [0.1]
"""


@pytest.mark.slow
def test_a_table_of_ones_own_network_and_data(command: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(TABLE)
    said = command("table", "own.toml", "--jobs", "2")  # workers load the network and the data too
    assert "2 runs complete in results" in said and "wrote own.md" in said
    table, rows = (tmp_path / "own.md").read_text(), gather.read(tmp_path / "results" / "leaderboard.csv")
    assert {*rows["dataset"]} == {"digits.npz"} and {*rows["architecture"]} == {"net.py:Net"} and len(rows) == 2
    for row in rows.itertuples():
        title = {"k_gt": "K-GT", "dec_fedtrack": "Dec-FedTrack"}[row.method]
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
        assert f"{100 * row.robust_acc:.1f}" in line and "My digits" in table
    records = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/runs/*/run.json")}
    command("table", "own.toml", "--jobs", "1")  # all of it is done
    assert records == {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/runs/*/run.json")}
    source = tmp_path / "mine" / "net.py"
    source.write_text(source.read_text() + "# edited\n")
    command("table", "own.toml", "--jobs", "1")  # another network: other runs
    assert len(list(tmp_path.glob("results/runs/*/run.json"))) == 4


def test_a_network_may_decide_by_its_own_numbers_and_work_in_place(tmp_path: Path) -> None:
    """Gradients are taken one node after the other by plain autograd, so neither needs to be refused."""
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, shape, classes, *, deep: bool = False, activation=nn.ReLU):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Linear(64, 16), nn.Linear(16, classes)\n"
        "        self.act = activation(inplace=True)\n"
        "    def forward(self, images):\n"
        "        h = self.a(images.flatten(1).mul_(2))\n"
        "        if self.a.bias.abs().max() > 0.05:\n"
        "            h.mul_(2)\n"
        "        return self.b(self.act(h))\n"
    )
    problem = Universal.make({"model": f"{tmp_path / 'net.py'}:Net", "deep": "true"})
    assert problem.settings()["deep"] is True and "activation" not in problem.settings()
    x, y = problem.start(0)
    batch = problem.images.train_images[None, :8], problem.images.train_labels[None, :8]
    Gx, Gy, _ = problem.grads(x[None], y[None], batch)
    plain = problem.module(x)
    assert isinstance(plain, nn.Module)
    loss = nn.functional.cross_entropy(plain(batch[0][0] / 255), batch[1][0])
    by_hand = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(plain.parameters()))])
    assert Gx[0].allclose(by_hand, atol=1e-6) and Gy.any()


def test_a_file_with_several_networks_asks_which(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text("from torch import nn\nclass A(nn.Module): ...\nclass B(nn.Module): ...\n")
    with pytest.raises(BadInput, match="should be one class, but its file has: A, B; say which after a colon"):
        Universal(model=str(tmp_path / "two.py"))

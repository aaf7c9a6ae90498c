"""The zoo: entries from runs, loaded by name and checked; and benchmark() for anybody's network."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import robustbench_dec
from robustbench_dec import files
from robustbench_dec.attack import predictions
from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.store import zoo
from robustbench_dec.store.records import Card, RunRecord
from robustbench_dec.store.results import Results, Run
from tests.support import ROOT, repository
from tests.support.tiny import Made

SHIPPED = [
    str(path.relative_to("results/zoo").with_suffix("")) for path in repository.tracked("results/zoo/*.safetensors")
]


@pytest.fixture
def entry(made: Made) -> zoo.Entry:
    return zoo.add(made.folders[1], "digits/dec_fedtrack", made.results / "zoo")


@pytest.fixture
def at_home(entry: zoo.Entry, monkeypatch: pytest.MonkeyPatch) -> zoo.Entry:
    """The tiny zoo as if it were the shipped one."""
    monkeypatch.setattr(zoo, "home", lambda: entry.checkpoint.parents[1])
    return entry


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_whole_small_and_known_to_the_leaderboard(name: str, tracked: Path) -> None:
    (entry,) = zoo.entries(name)
    model = robustbench_dec.load_model(name)
    assert entry.checkpoint.stat().st_size < 500_000
    assert entry.record.classifier is not None
    card = entry.record.classifier.architecture
    assert model(torch.zeros(2, *card.shape)).shape == (2, card.classes)
    run = Results(tracked / "results").run(entry.record.id)
    if run.exists:  # stored cells are found by these two
        assert run.record.checkpoint_sha256 == entry.record.checkpoint_sha256


def test_an_entry_is_the_average_network_with_its_card(entry: zoo.Entry, made: Made, images: Tensor) -> None:
    folder = made.folders[1]
    assert entry.model()(images).equal(Run(folder).model()(images))  # the same bits, so stored cells are its cells
    tensors = safetensors.torch.load_file(entry.checkpoint)
    assert tensors["X"].shape[0] == 1
    assert tensors["y"].equal(safetensors.torch.load_file(folder / "perturbation.safetensors")["y"])
    card = Card.read(entry.checkpoint.with_suffix(".json"))
    assert entry.record == card.run == Run(folder).record
    assert card.name == "digits/dec_fedtrack" and card.run.id == folder.name
    assert card.network_sha256 == files.sha256(entry.checkpoint)


def test_a_changed_card_is_refused(entry: zoo.Entry) -> None:
    card = entry.checkpoint.with_suffix(".json")
    card.write_text(card.read_text().replace('"seed": 0', '"seed": 1', 1))
    with pytest.raises(BadInput, match=r"dec_fedtrack.json has not the bytes that its seal tells"):
        zoo.from_path(entry.checkpoint)


def test_a_method_without_y_has_none(made: Made) -> None:
    entry = zoo.add(made.folders[0], "digits/k_gt", made.results / "zoo")
    assert set(safetensors.torch.load_file(entry.checkpoint)) == {"X"}


def test_models_are_listed_and_loaded_by_name_or_path(at_home: zoo.Entry, made: Made, images: Tensor) -> None:
    assert robustbench_dec.list_models() == ["digits/dec_fedtrack"]
    assert robustbench_dec.list_models("mnist/*") == []
    expected = at_home.model()(images)
    for name in ("digits/dec_fedtrack", str(at_home.checkpoint), str(made.folders[1])):
        model = robustbench_dec.load_model(name)
        assert model(images).equal(expected) and not model.training
        assert cast(RunRecord, model.card).dataset == "digits"


def test_the_command_adds_and_lists(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["zoo", "add", str(made.folders[0]), "digits/k_gt", "--results", str(made.results)]
    assert "k_gt.safetensors" in CliRunner().invoke(cli.app, arguments).output
    monkeypatch.setattr(zoo, "home", lambda: made.results / "zoo")
    assert "digits/k_gt: cnn1" in CliRunner().invoke(cli.app, ["zoo", "list"]).output


def test_a_tampered_entry_is_refused(at_home: zoo.Entry) -> None:
    data = bytearray(at_home.checkpoint.read_bytes())
    data[-1] ^= 1
    at_home.checkpoint.write_bytes(data)
    with pytest.raises(BadInput, match=r"has not the sha256 that its card tells"):
        robustbench_dec.load_model("digits/dec_fedtrack")


@pytest.mark.parametrize("ending", [".pt", ".pth", ".pkl"])
def test_a_pickle_is_refused_by_its_name(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{ending}"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(BadInput, match=r"pickles .* are never read"):
        robustbench_dec.load_model(str(path))


def test_a_pickle_in_disguise_is_refused_too(entry: zoo.Entry) -> None:
    torch.save({"weights": torch.zeros(3)}, entry.checkpoint)
    with pytest.raises(BadInput, match="sha256"):
        zoo.from_path(entry.checkpoint).model()
    card = entry.checkpoint.with_suffix(".json")
    files.write_sealed(card, files.read_sealed(card) | {"network_sha256": files.sha256(entry.checkpoint)})
    with pytest.raises(BadInput, match=r"is not a whole safetensors checkpoint .* pickles are not read"):
        zoo.from_path(entry.checkpoint).model()


def test_a_checkpoint_without_a_card_is_refused(entry: zoo.Entry) -> None:
    entry.checkpoint.with_suffix(".json").unlink()
    with pytest.raises(BadInput, match=r"neither run.json nor a card dec_fedtrack.json"):
        zoo.from_path(entry.checkpoint)


@pytest.mark.parametrize("name", ["digits", "digits/a/b", "digits/../x", "digits/", "digits/a b"])
def test_odd_names_are_refused(name: str, made: Made) -> None:
    with pytest.raises(BadInput, match="DATA_SET/NAME"):
        zoo.add(made.folders[0], name, made.results / "zoo")


def test_wrong_wishes_are_refused_with_what_there_is(at_home: zoo.Entry, made: Made, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no model of the zoo matches 'mnist/nope'; there are: digits/dec_fedtrack"):
        robustbench_dec.load_model("mnist/nope")
    with pytest.raises(BadInput, match="trained on digits, so its name should be digits/x"):
        zoo.add(made.folders[0], "mnist/x", made.results / "zoo")
    with pytest.raises(BadInput, match="no finished run"):
        zoo.add(tmp_path, "digits/x", made.results / "zoo")
    (made.folders[0] / "checkpoint.safetensors").unlink()
    with pytest.raises(BadInput, match="is missing"):
        zoo.add(made.folders[0], "digits/x", made.results / "zoo")


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, robustbench_dec; print('torch' in sys.modules, robustbench_dec.__all__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ['attack', 'benchmark'")


# benchmark


class Own(nn.Module):
    """A network without parameters: the class is told by the brightest of ten pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, 10:20]


def test_benchmark_measures_any_network() -> None:
    result = robustbench_dec.benchmark(Own(), "digits", ["fgsm"], eps=["0.05", 0.2], n_examples=50, progress=False)
    clean, robust = result
    frame = result.frame
    assert list(frame["eps"]) == [0.05, 0.2] and list(frame["attack"]) == ["fgsm", "fgsm"]
    assert frame["robust_acc"].iloc[1] <= frame["robust_acc"].iloc[0] <= clean == frame["clean_acc"].iloc[0]
    assert robust == result.robust_acc <= frame["robust_acc"].min()
    assert (frame["ci_low"] <= frame["robust_acc"]).all() and (frame["robust_acc"] <= frame["ci_high"]).all()


@pytest.mark.slow
def test_benchmark_knows_the_data_of_a_model_of_the_zoo(at_home: zoo.Entry) -> None:
    model = robustbench_dec.load_model("digits/dec_fedtrack")
    attacks: dict[str, dict[str, Any]] = {
        "pgd": {"steps": 5},
        "torchattacks:MIFGSM": {"steps": "5"},
        "uap": {"steps": 5, "search": 0, "sga": 0},
    }
    result = robustbench_dec.benchmark(model, attacks=attacks, eps=0.2, n_examples=40, batch_size=16, progress=False)
    images = at_home.problem().images
    right = predictions(model, images.test_images[:40].float() / 255) == images.test_labels[:40]
    assert result.clean_acc == pytest.approx(right.double().mean().item())
    worst = torch.stack([cell.outcome.robust for cell in result.cells]).all(0)
    assert result.robust_acc == worst.double().mean().item() < result.clean_acc
    assert [cell.attack.settings()["steps"] for cell in result.cells] == [5, 5, 5]


def test_benchmark_refuses_what_it_cannot_measure() -> None:
    with pytest.raises(BadInput, match=r"needs a dataset .* there are: .*digits"):
        robustbench_dec.benchmark(Own())
    with pytest.raises(BadInput, match="at least one attack"):
        robustbench_dec.benchmark(Own(), "digits", [])
    with pytest.raises(BadInput, match=r"logits of shape \(images, classes\), this one returned \(32, 1, 8, 8\)"):
        robustbench_dec.benchmark(nn.Identity(), "digits", progress=False)

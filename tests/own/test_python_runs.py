"""`train` and `attack` in Python do what the command line does, and every bad argument is one sentence."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import robustbench_dec
import robustbench_dec.attack as contract
from robustbench_dec import attack, bars, benchmark, train
from robustbench_dec.attack import Attack
from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.runs import Trained
from robustbench_dec.store.results import Run
from tests.support import ROOT

QUICK: dict[str, Any] = {"rounds": 2, "network": {"nodes": 2}, "settings": {"K": 1}, "progress": False}


QUIET: dict[str, Any] = {"progress": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train("digits", results=tmp_path_factory.mktemp("runs"), **QUICK)


def test_a_run_tells_what_it_is(trained: Trained) -> None:
    assert repr(trained).startswith("dec_fedtrack on digits: ") and str(trained.folder) in repr(trained)
    y = trained.perturbation()
    assert y is not None and y.shape == (1, 8, 8) and 0 <= (trained.clean_acc or 0) <= 1
    assert trained.model()(torch.zeros(1, 1, 8, 8)).shape == (1, 10) and "round" in trained.curve()


def test_it_is_the_run_of_the_command_line(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--rounds", "2", "--nodes", "2", "--set", "K=1", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["robustbench-dec", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, capsys.readouterr().err
    same = Run(tmp_path / "runs" / trained.record.id)
    assert same.record.checkpoint_sha256 == trained.record.checkpoint_sha256


@pytest.mark.slow
def test_cells_are_stored_and_shown(trained: Trained) -> None:
    cells = attack(trained, "fgsm", eps=[0.05, "1/10"], n_examples=30, progress=False)
    again = attack(str(trained.folder), "fgsm", eps=[0.05, 0.1], n_examples=30, progress=False)
    assert [cell.eps for cell in cells.cells] == [0.05, 0.1] and cells == again
    assert "fgsm" in repr(cells) and "<table" in cells._repr_html_() and list(cells.frame["images"]) == [30, 30]
    outside = benchmark(trained.model(), "digits", "fgsm", eps=[0.05, 0.1], n_examples=30, progress=False)
    assert [cell.outcome.robust_accuracy for cell in outside.cells] == [cell.robust_acc for cell in cells.cells]


def test_a_network_may_be_its_class_if_that_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(tmp_path))
    (tmp_path / "a_net_of_mine.py").write_text((ROOT / "architectures" / "mlp.py").read_text())
    try:
        from a_net_of_mine import MLP  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
    run = train("digits", MLP, "k_gt", problem_settings={"width": 4}, results=tmp_path / "out", **QUICK)
    settings = run.record.settings.problem
    assert settings["model"] == "a_net_of_mine.py:MLP" and settings["width"] == 4 and run.perturbation() is None

    nowhere = type("Nowhere", (nn.Module,), {"__module__": "nowhere"})
    with pytest.raises(BadInput, match=r"Nowhere is in no file, .*%%writefile"):
        train("digits", nowhere)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "dataset": ({"dataset": 3}, "dataset is a text such as 'digits', not 3"),
    "no-dataset": ({"dataset": "nmist"}, "no data set 'nmist'"),
    "model": ({"model": nn.Linear(2, 2)}, "model is a text such as 'path/to/net.py:Net'"),
    "no-model": ({"model": "cnn9"}, "no architecture 'cnn9'; there are: cnn1"),
    "trainer": ({"trainer": None}, "trainer is a text such as 'k_gt', not None"),
    "no-trainer": ({"trainer": "adam"}, "no trainer 'adam'; there are"),
    "settings": ({"settings": [("K", 1)]}, "settings is a mapping from names to values such as"),
    "setting": ({"settings": {"k": 1}}, "DecFedTrack has no setting 'k'; there are"),
    "problem": ({"problem": "convex"}, "no problem 'convex'"),
    "problem-setting": ({"problem_settings": {"eps": -1}}, "eps, the radius"),
    "twice": ({"dataset": "digits", "problem_settings": {"dataset": "digits"}}, "dataset is given twice"),
    "network": ({"network": "ring"}, "network is a mapping"),
    "network-setting": ({"network": {"node": 3}}, "the network has no setting 'node'; there are: graph, nodes"),
    "network-value": ({"network": {"nodes": "many"}}, "the network's setting 'nodes' cannot be 'many'"),
    "rounds": ({"rounds": 0}, "rounds must be a whole number of at least 1, not 0"),
    "seed": ({"seed": -1}, "seed must be a whole number of at least 0 and at most"),
    "results": ({"results": ""}, "results is a text such as 'out', not ''"),
    "device": ({"device": "abacus"}, "cannot use the device 'abacus'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_of_train_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD[name]
    with pytest.raises(BadInput, match=expected):
        train(**arguments)
    assert not [*tmp_path.iterdir()]


WORSE: dict[str, tuple[dict[str, Any], str]] = {
    "run": ({"run": 5}, "run is a text such as"),
    "no-run": ({"run": "nowhere"}, "no finished run in nowhere"),
    "class": ({"attack": Attack}, "takes a name or path/to/mine.py:Mine"),
    "no-attack": ({"attack": "deepfool"}, "no attack 'deepfool'"),
    "eps": ({"eps": None}, "a radius is a number or a text such as '8/255', not None"),
    "no-eps": ({"eps": []}, "attack needs at least one eps"),
    "settings": ({"settings": 3}, "settings is a mapping"),
    "setting": ({"settings": {"step": 3}}, "PGD has no setting 'step'"),
    "n_examples": ({"n_examples": 2.5}, "n_examples must be a whole number"),
    "max_passes": ({"max_passes": True}, "max_passes must be a whole number"),
    "device": ({"device": 7.5}, "cannot use the device"),
}


@pytest.mark.parametrize("name", WORSE)
def test_a_bad_argument_of_attack_is_one_sentence(name: str, trained: Trained) -> None:
    arguments, expected = WORSE[name]
    with pytest.raises(BadInput, match=expected):
        attack(**QUIET | {"run": trained} | arguments)


def test_attack_is_the_function_and_the_module_stays_what_it_was() -> None:
    assert callable(robustbench_dec.attack) and sys.modules["robustbench_dec.attack"].Attack is Attack
    assert contract is robustbench_dec.attack  # `import ... as` takes the package's attribute


def test_bars_are_widgets_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not bars.NOTEBOOK
    monkeypatch.setattr(bars, "NOTEBOOK", True)
    assert isinstance(bars.bar(total=1, show=True), bars.tqdm)
    monkeypatch.setattr(bars, "NOTEBOOK", False)
    assert isinstance(bars.bar(total=1, show=True), bars.Lines)

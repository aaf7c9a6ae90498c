"""Images that somebody submits are judged by a forward pass; what is not as it is said is refused in one sentence."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor
from typer.testing import CliRunner

from attacks.fgsm import FGSM
from robustbench_dec.attack import as_floats
from robustbench_dec.attacking.evaluate import evaluate, propose
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.running.scoring import Images, score
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results, Run
from tests.support.tiny import Made

N, EPS = 30, 0.1


@pytest.fixture(scope="module")
def entry(finished: Made) -> zoo.Entry:
    return zoo.from_path(finished.folders[0])


@pytest.fixture(scope="module")
def clean(entry: zoo.Entry) -> Tensor:
    return as_floats(entry.problem().images.test_images[:N])


@pytest.fixture(scope="module")
def moved(entry: zoo.Entry, clean: Tensor) -> Tensor:
    labels = entry.problem().images.test_labels[:N]
    return propose(FGSM(EPS), entry.model(), clean, labels, seed=0)


def saved(folder: Path, **tensors: Tensor) -> Path:
    path = folder / "mine" / "images.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, path)
    return path


def test_images_of_an_attack_score_what_the_attack_scores(entry: zoo.Entry, moved: Tensor, tmp_path: Path) -> None:
    problem = entry.problem()
    outcome = evaluate(FGSM(EPS), entry.model(), problem.images.test_images[:N], problem.images.test_labels[:N])
    assert 0 < outcome.robust_accuracy < outcome.clean_accuracy
    path = saved(tmp_path, images=moved, right=outcome.robust)
    record = score(Images(path, "Linf", EPS, N), entry, Results(tmp_path / "out"))
    assert torch.equal(record.right, outcome.robust) and record.clean_acc == outcome.clean_accuracy
    assert (record.attack, record.submitted, record.n_examples) == ("mine/images.safetensors", "user", N)
    assert record == score(Images(path, "Linf", EPS, N), entry, Results(tmp_path / "out"))  # found there
    (row,) = gather.gather(Results(tmp_path / "out")).itertuples()
    assert row.robust_acc == record.robust_acc and row.submitted == "user"


@pytest.mark.parametrize("many", [99_999, 361])
def test_more_images_than_there_are_are_all_of_them_and_the_same_cell(
    many: int, entry: zoo.Entry, tmp_path: Path
) -> None:
    images = as_floats(entry.problem().images.test_images)
    path, results = saved(tmp_path, images=images), Results(tmp_path / "out")
    assert len(images) == 360
    records = [score(Images(path, "Linf", EPS, count), entry, results) for count in (360, many)]
    assert records[0] == records[1] and len(list(results.cells())) == 1
    safetensors.torch.save_file({"images": images[:7]}, path)
    with pytest.raises(BadInput, match=r"has images \(7, 1, 8, 8\), but the first 360 test images of digits are"):
        score(Images(path, "Linf", EPS, many), entry, results)


def test_images_as_they_were_break_none(entry: zoo.Entry, clean: Tensor, tmp_path: Path) -> None:
    path, out = saved(tmp_path, images=clean), tmp_path / "out"
    words = [
        "score",
        str(path),
        "--model",
        str(entry.checkpoint.parent),
        "--eps",
        "0",
        "--n-examples",
        str(N),
        "--json",
    ]
    places = ["--results", str(out), "--stored", str(tmp_path / "none")]
    answer = CliRunner().invoke(app, [*words, *places], catch_exceptions=False)
    facts = json.loads(answer.stdout)
    assert facts["broken_alone"] == 0 and facts["cells"] == 1
    assert facts["worst_case"] == facts["cell"]["clean_acc"] < 1


def test_what_is_not_as_it_is_said_is_refused_and_nothing_is_written(
    entry: zoo.Entry, clean: Tensor, moved: Tensor, tmp_path: Path
) -> None:
    far, out, nan = moved.clone(), clean.clone(), moved.clone()
    far[3, 0, 2, 2] = clean[3, 0, 2, 2] + (0.11 if clean[3, 0, 2, 2] < 0.5 else -0.11)
    out[4, 0, 0, 0] = -0.05
    nan[5, 0, 0, 0] = torch.nan
    for tensors, sentence in (
        (
            {"images": far},
            r"1 of the 30 images are outside the Linf ball of radius 0.1: the farthest, image 3, is 0.11 ",
        ),
        ({"images": out}, r"1 of the 30 images leave \[0, 1\], first image 4"),
        ({"images": nan}, "NaN or infinity, first in image 5"),
        ({"images": moved[:29]}, r"has images \(29, 1, 8, 8\), but the first 30 test images of digits"),
        ({"images": (255 * moved).byte()}, "should hold a tensor 'images' of floats"),
        ({"pictures": moved}, "it has pictures"),
        ({"images": moved, "right": torch.zeros(N).bool()}, "claims 0 images right, but the network gets"),
        ({"images": moved, "right": torch.zeros(3).bool()}, r"says something of \(3,\) images"),
    ):
        with pytest.raises(BadInput, match=sentence):
            score(Images(saved(tmp_path, **tensors), "Linf", EPS, N), entry, Results(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="no norm 'L3'; there are: Linf"):
        Images(tmp_path, "L3", EPS, N)
    (tmp_path / "x.safetensors").write_text("no")
    (tmp_path / "b.pt").write_text("no")
    wrong = {"a.pt": "a.pt is not there;", "b.pt": "b.pt is no .safetensors file;", "x.safetensors": "are not read"}
    for name, sentence in wrong.items():
        with pytest.raises(BadInput, match=sentence):
            score(Images(tmp_path / name, "Linf", EPS, N), entry, Results(tmp_path / "out"))


@pytest.mark.slow
def test_a_stored_cell_with_forged_bits_is_found_out(entry: zoo.Entry, moved: Tensor, tmp_path: Path) -> None:
    wanted, results = Images(saved(tmp_path, images=moved), "Linf", EPS, N), Results(tmp_path / "out")
    record = score(wanted, entry, results)
    (cell,) = Run(tmp_path / "out" / "runs" / record.run_id).cells()
    cell.write(record.model_copy(update={"bits": "AAAAAA==", "n_correct": 0, "robust_acc": 0.0}), None)
    with pytest.raises(BadInput, match=rf"claims 0 images right, but the network gets {record.n_correct} right"):
        score(wanted, entry, results)

"""A submission: what is in its folder is measured; a claim that does not hold is found out, and nothing is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from torch import Tensor
from typer.testing import CliRunner

from attacks.fgsm import FGSM
from robustbench_dec import files
from robustbench_dec.attack import as_floats
from robustbench_dec.attacking.evaluate import evaluate, propose
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.running import submission as submissions
from robustbench_dec.specs import submission as specs
from robustbench_dec.store import zoo
from robustbench_dec.store.records import Card
from robustbench_dec.store.results import Results
from tests.support import ROOT
from tests.support.claims import claim
from tests.support.tiny import Made

N, EPS = 40, 0.1


@pytest.fixture
def entry(made: Made) -> zoo.Entry:
    return zoo.add(made.folders[0], "digits/k_gt", made.results / "zoo")


def images_of(entry: zoo.Entry) -> tuple[Tensor, float]:
    """FGSM's images, and what the network gets right of them."""
    data, model = entry.problem().images, entry.model()
    clean, labels = as_floats(data.test_images[:N]), data.test_labels[:N]
    return propose(FGSM(EPS), model, clean, labels, seed=0), evaluate(FGSM(EPS), model, clean, labels).robust_accuracy


def add(folder: Path, made: Made, out: Path) -> submissions.Added:
    return submissions.add(specs.read(folder), Results(out), Results(made.results))


def test_images_are_added_if_the_claim_holds_and_a_forged_claim_is_found_out(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    images, left = images_of(entry)
    about = {"kind": "images", "file": "mine.safetensors", "model": "digits/k_gt", "norm": "Linf", "eps": EPS}
    folder, out = claim(tmp_path / "theirs", **about, n_examples=N, accuracy=left - 1 / N), tmp_path / "out"
    safetensors.torch.save_file({"images": images}, folder / "mine.safetensors")
    with pytest.raises(
        BadInput, match=rf"claims an accuracy of .*%, but {left:.2%} of 40 images were right here; noth"
    ):
        add(folder, made, out)
    assert not out.exists()
    words = ["submit", str(claim(folder, **about, n_examples=N, accuracy=left)), "--results", str(out)]
    answer = CliRunner().invoke(app, [*words, "--stored", str(made.results), "--json"], catch_exceptions=False)
    said = json.loads(answer.stdout)
    assert said["accuracy"] == said["claimed"] == left and said["worst_case"] <= left and said["cells"] == 3
    (row,) = gather.gather(Results(out)).itertuples()
    assert (row.robust_acc, row.submitted, row.attack) == (left, "user", "theirs/mine.safetensors")
    assert (out / "submissions" / "theirs" / "card.md").read_text() == (folder / "card.md").read_text()


@pytest.mark.slow
def test_an_attack_is_run_anew_and_its_claim_is_held_against_that(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    about = {"kind": "attack", "file": "mine.py:Momentum", "model": "digits/k_gt", "eps": EPS, "n_examples": N}
    folder, out = claim(tmp_path / "theirs", **about, accuracy=0.0), tmp_path / "out"
    (folder / "mine.py").write_text((ROOT / "examples" / "momentum.py").read_text())
    with pytest.raises(BadInput, match=r"claims an accuracy of 0.00%, but (\d+\.\d+)% of 40") as refused:
        add(folder, made, out)
    assert not out.exists()
    left = float(str(refused.value).partition(", but ")[2].partition("%")[0]) / 100
    added = add(claim(folder, **about, accuracy=left), made, out)
    assert added.record is not None and added.record.attack == "mine.py:Momentum" and added.record.submitted == "user"
    assert added.record.robust_acc == pytest.approx(left, abs=1e-4)


def test_a_network_is_judged_by_a_forward_pass_and_not_by_its_card(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    card = Card.read(entry.checkpoint.with_suffix(".json"))
    assert card.run.classifier is not None
    clean = card.run.classifier.clean
    about = {"kind": "network", "file": "k_gt.safetensors", "name": "digits/theirs", "n_examples": clean.n_examples}
    folder, out = claim(tmp_path / "theirs", **about, accuracy=clean.mean_model), tmp_path / "out"
    for path in entry.files:
        (folder / path.name).write_bytes(path.read_bytes())
    better = clean.model_copy(update={"mean_model": clean.mean_model + 0.02})  # resealed, so its seal is no help
    classifier = card.run.classifier.model_copy(update={"clean": better})
    forged = card.model_copy(update={"run": card.run.model_copy(update={"classifier": classifier})})
    forged.write(folder / "k_gt.json")
    with pytest.raises(BadInput, match=r"the card of .* tells .*% clean, but the network gets .*%"):
        add(folder, made, out)
    claim(folder, **about, accuracy=better.mean_model)
    with pytest.raises(BadInput, match="claims an accuracy of"):
        add(folder, made, out)
    assert not out.exists()
    card.write(folder / "k_gt.json")
    added = add(claim(folder, **about, accuracy=clean.mean_model), made, out)
    assert added.entry.name == "digits/theirs" and added.accuracy == pytest.approx(clean.mean_model)
    (listed,) = zoo.entries("digits/*", out / "zoo")
    assert files.sha256(listed.checkpoint) == entry.sha256
    other = zoo.add(made.folders[1], "digits/theirs", tmp_path / "other")
    with pytest.raises(BadInput, match="is another network; give this one another name than digits/theirs"):
        zoo.copy(other, "digits/theirs", out / "zoo")
    assert zoo.chosen("digits/theirs", Results(tmp_path / "none"), Results(out)) == [listed]


def test_what_is_no_submission_is_refused_in_one_sentence(tmp_path: Path) -> None:
    good: dict[str, Any] = {"kind": "images", "file": "i.safetensors", "model": "mnist/k_gt", "norm": "Linf"}
    good |= {"eps": 0.1, "accuracy": 0.5}
    folder = claim(tmp_path / "s", **good)
    (folder / "i.safetensors").write_bytes(b"")
    assert specs.read(folder).claim.n_examples == 1000
    for change, sentence in (
        ({"kind": "pictures"}, "'kind': input should be 'images', 'attack' or 'network'"),
        ({"accuracy": None}, "'accuracy': field required"),
        ({"accuracy": 52.3}, "'accuracy': input should be less than or equal to 1"),
        ({"model": None}, "a claim about images says 'model' too"),
        ({"name": "mnist/x"}, "a claim about images has no 'name'; leave it out"),
        ({"file": "../i.safetensors"}, r"names the file '\.\./i\.safetensors', which is not in"),
        ({"file": "other.safetensors"}, "which is not in"),
        ({"radius": 0.1}, "'radius': no such setting; there are: kind, file, accuracy"),
        ({"n_examples": 0}, "'n_examples': input should be greater than or equal to 1"),
    ):
        with pytest.raises(BadInput, match=sentence):
            specs.read(claim(folder, **{**good, **change}))
    claim(folder, **good)
    (folder / "card.md").write_text(" \n")
    with pytest.raises(BadInput, match=r"has no card\.md, or an empty one"):
        specs.read(folder)
    (folder / "claim.toml").unlink()
    for path, sentence in ((folder, r"has no claim\.toml"), (tmp_path / "none", "no folder .*none")):
        with pytest.raises(BadInput, match=sentence):
            specs.read(path)

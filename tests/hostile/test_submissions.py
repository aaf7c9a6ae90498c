"""Submissions and files that are not what they say: nobody else's row, card or claim is changed by one."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack, Shift, as_floats, predictions
from robustbench_dec.attacking.find_attack import attack_named, label
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import audit
from robustbench_dec.leaderboard.compare import Newcomer
from robustbench_dec.parts import Part
from robustbench_dec.running import submission as submissions
from robustbench_dec.running.cells import Request
from robustbench_dec.running.scoring import Images, score
from robustbench_dec.specs import submission as specs
from robustbench_dec.store import zoo
from robustbench_dec.store.checkpoint import load_checkpoint
from robustbench_dec.store.records import Card
from robustbench_dec.store.results import Results
from tests.support import ROOT
from tests.support.claims import claim
from tests.support.tiny import Made

N, EPS = 20, 0.1


@pytest.fixture
def entry(made: Made) -> zoo.Entry:
    return zoo.add(made.folders[0], "digits/k_gt", made.results / "zoo")


def idle(folder: Path, entry: zoo.Entry, **said: Any) -> Path:
    """A submission of images as they are, whose claim holds."""
    images, labels = entry.problem().images.test_images[:N], entry.problem().images.test_labels[:N]
    right = predictions(entry.model(), as_floats(images)) == labels
    about = {"kind": "images", "file": "i.safetensors", "model": "digits/k_gt", "norm": "Linf", "eps": EPS}
    claim(folder, **{**about, "n_examples": N, "accuracy": right.double().mean().item(), **said})
    safetensors.torch.save_file({"images": as_floats(images)}, folder / "i.safetensors")
    return folder


def submitted_network(folder: Path, card: Card, network: bytes, name: str) -> Path:
    """A submission of a network with that card, sealed anew, whose claim holds."""
    assert card.run.classifier is not None
    clean = card.run.classifier.clean
    about = {"kind": "network", "file": "n.safetensors", "name": name, "n_examples": clean.n_examples}
    claim(folder, **about, accuracy=clean.mean_model)
    (folder / "n.safetensors").write_bytes(network)
    card.model_copy(update={"network_sha256": files.sha256(folder / "n.safetensors")}).write(folder / "n.json")
    return folder


def add(folder: Path, made: Made, out: Path) -> submissions.Added:
    return submissions.add(specs.read(folder), Results(out), Results(made.results))


def test_what_a_submission_says_replaces_nobody_elses(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    out = tmp_path / "out"
    add(idle(tmp_path / "mine", entry), made, out)
    (tmp_path / "other").mkdir()
    other = idle(tmp_path / "other" / "mine", entry)
    add(other, made, out)  # the same words are no other submission
    (other / "card.md").write_text("Somebody else.")
    with pytest.raises(BadInput, match=r"card\.md is of another submission; give this one's folder another name"):
        add(other, made, out)
    assert "Somebody;" in (out / "submissions" / "mine" / "card.md").read_text()


def test_links_out_of_a_submission_are_not_followed(entry: zoo.Entry, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("a key that is nobody's business")
    for name, words in (("card.md", "has no card.md"), ("claim.toml", "has no claim.toml")):
        folder = idle(tmp_path / name, entry)
        (folder / name).unlink()
        (folder / name).symlink_to(private)
        with pytest.raises(BadInput, match=words):
            specs.read(folder)


@pytest.mark.parametrize(
    "said, words",
    [
        ({"file": "i\0.safetensors"}, "which is not in"),
        ({"file": "i" * 300 + ".safetensors"}, "which is not in"),
        ({"kind": "attack", "file": "i.safetensors", "norm": None, "settings": {"eps": 0.3}}, "claim's own 'eps'"),
    ],
    ids=["nul", "long", "two radii"],
)
def test_claims_that_cannot_be_meant(said: dict[str, Any], words: str, entry: zoo.Entry, tmp_path: Path) -> None:
    folder = idle(tmp_path / "s", entry)
    lines = [line for line in (folder / "claim.toml").read_text().splitlines() if line.split(" ")[0] not in said]
    settings = ["settings = { eps = 0.3 }"] if "settings" in said else []
    plain = [f'{name} = "{value}"'.replace("\0", "\\u0000") for name, value in said.items() if isinstance(value, str)]
    (folder / "claim.toml").write_text("\n".join([*lines, *plain, *settings]))
    with pytest.raises(BadInput, match=words):
        specs.read(folder)


@pytest.mark.slow
def test_a_network_that_passes_for_another_is_refused(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    """What breaks it would be a cell of the other network: cells belong to a run and its checkpoint."""
    card, out = Card.read(entry.checkpoint.with_suffix(".json")), tmp_path / "out"
    with safetensors.safe_open(entry.checkpoint, "pt") as file:
        tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    tensors["X"] = tensors["X"] * (1 + 1e-6)  # as good without attack
    fragile, honest = safetensors.torch.save(tensors, about), entry.checkpoint.read_bytes()
    renamed = card.run.model_copy(update={"id": "digits-theirs-s0-0123456789"})
    new = renamed.model_copy(update={"checkpoint_sha256": "0" * 64})
    for run in (card.run, renamed, card.run.model_copy(update={"checkpoint_sha256": "0" * 64})):
        forged = card.model_copy(update={"run": run})
        folder = submitted_network(tmp_path / "theirs", forged, fragile, "digits/theirs")
        with pytest.raises(BadInput, match="its network or its record is another; a network of one's own has a run"):
            add(folder, made, out)
    boasts = card.run.model_copy(update={"method": "theirs"})
    folder = submitted_network(tmp_path / "theirs", card.model_copy(update={"run": boasts}), honest, "digits/theirs")
    with pytest.raises(BadInput, match="its network or its record is another"):
        add(folder, made, out)
    theirs = card.model_copy(update={"run": new})
    with pytest.raises(BadInput, match="is another network; give this one another name than digits/k_gt"):
        add(submitted_network(tmp_path / "theirs", theirs, fragile, "digits/k_gt"), made, out)
    assert not out.exists()
    add(submitted_network(tmp_path / "theirs", theirs, fragile, "digits/theirs"), made, out)
    again = submitted_network(
        tmp_path / "again",
        theirs.model_copy(update={"run": new.model_copy(update={"method": "x"})}),
        fragile,
        "digits/theirs",
    )
    with pytest.raises(BadInput, match="is another network; give this one another name than digits/theirs"):
        add(again, made, out)


def test_a_claim_names_a_network_and_not_a_path(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    folder = idle(tmp_path / "s", entry, model=str(entry.checkpoint))
    with pytest.raises(BadInput, match="no model of the zoo matches"):
        add(folder, made, tmp_path / "out")


def test_images_are_judged_without_what_rounding_allows(entry: zoo.Entry, tmp_path: Path) -> None:
    """In L0 nothing that is small enough counts as a change: it must not change the outcome either."""
    images = as_floats(entry.problem().images.test_images[:N])
    asked: list[Tensor] = []
    path = tmp_path / "i.safetensors"
    safetensors.torch.save_file({"images": (images + 9e-7 * torch.where(images < 0.5, 1, -1)).clamp(0, 1)}, path)

    @dataclass(frozen=True)
    class Listening(zoo.Entry):
        def model(self, device: str = "cpu") -> torch.nn.Module:
            model = super().model(device)
            model.register_forward_pre_hook(lambda module, given: asked.append(given[0].clone()))
            return model

    score(Images(path, "L0", 1, N), Listening(**vars(entry)), Results(tmp_path / "out"))
    assert len(asked) == 2 and asked[1].equal(images)
    for kind in (torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.complex64, torch.int16):
        safetensors.torch.save_file({"images": images.to(kind)}, path)
        with pytest.raises(BadInput, match=r"should hold a tensor 'images' of floats|is not a whole safetensors file"):
            Images(path, "Linf", 1, N).read()
    with pytest.raises(BadInput, match="whole number of pixels"):
        Images(path, "L0", 0.5, N)


def endless(path: Path, name: str, **about: str) -> Path:
    """A file with one tensor without numbers, of a shape whose size no one can count."""
    tensor = {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": about, name: tensor}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def test_a_shape_that_cannot_be_counted_is_refused_wherever_tensors_are_read(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    words, path = "is not a whole safetensors (file|checkpoint) .*; pickles are not read", tmp_path / "x.safetensors"
    with pytest.raises(BadInput, match=words):
        score(Images(endless(path, "images"), "Linf", EPS, N), entry, Results(tmp_path / "out"))
    folder = idle(tmp_path / "s", entry)
    endless(folder / "i.safetensors", "images")
    with pytest.raises(BadInput, match=words):
        add(folder, made, tmp_path / "out")
    with pytest.raises(BadInput, match=words):
        attack_named(str(endless(path, "y")))
    with pytest.raises(BadInput, match=words):
        load_checkpoint(endless(path, "X", architecture="{}"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("y", [torch.zeros(1, 0, 8), torch.zeros(1, 8, 8).to(torch.float8_e4m3fn), torch.zeros(8, 8)])
def test_a_saved_perturbation_that_is_none_is_told_in_our_own_words(y: Tensor, tmp_path: Path) -> None:
    safetensors.torch.save_file({"y": y}, tmp_path / "y.safetensors")
    with pytest.raises(
        BadInput, match=r"should hold one tensor y \(C, H, W\) of finite floats, at least 1, it holds: y"
    ):
        attack_named(str(tmp_path / "y.safetensors"))


def test_a_shift_by_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"of finite numbers, at least 1, not a tensor \(1, 0, 8\)"):
        Shift(torch.zeros(1, 0, 8))


def test_the_radius_of_a_comparison_is_the_one_of_its_rows() -> None:
    with pytest.raises(BadInput, match="given by --eps, not by --set eps"):
        Newcomer("pgd", {"eps": "0.3"})


def test_a_setting_that_no_cell_can_hold_is_told_before_any_work() -> None:
    @dataclass(frozen=True)
    class Endless(Attack):
        clip: float = math.inf

    with pytest.raises(BadInput, match="has the setting clip = inf, which no cell can hold"):
        Request("mine.py:Endless", Endless(EPS), 0)


@pytest.mark.parametrize(
    "settings", [{"mode": "\ud800"}, {"\udcff": 1}, {"modes": ["plain", {"inside": "\udfff"}]}, {"mode": float("nan")}]
)
def test_a_setting_that_is_no_text_or_number_is_told_before_any_work(settings: dict[str, object]) -> None:
    class Mine(Attack):
        def settings(self) -> dict[str, object]:
            return {"eps": self.eps, **settings}

    with pytest.raises(BadInput, match=r"mine.py:Mine has the setting .*, which no cell can hold"):
        Request("mine.py:Mine", Mine(EPS), 0)


NAMES = ("=1+1|<b>x$", "-1", "+1", "@SUM", "two words", "line\nbreak", "\x1b[2J", "\udcff", "a,b", 'a"b', "a&b", "a\\b")


@pytest.mark.parametrize("stem", NAMES)
@pytest.mark.parametrize("kind", shelf.SHELVES)
def test_a_file_by_whose_name_no_table_can_call_it_is_refused_unread(kind: str, stem: str, tmp_path: Path) -> None:
    file = tmp_path / f"{stem}.py"
    file.write_text("raise SystemExit('it was read')")
    name, words = f"{file}:Mine", r"results call a file by its name, which begins .* rename it, .* to mine\.py$"
    with pytest.raises(BadInput, match=words):
        attack_named(name) if kind == "attack" else shelf.find(kind, name, Part)
    with pytest.raises(BadInput, match=words):
        shelf.kind_of(name)


@pytest.mark.parametrize("stem", NAMES)
def test_a_file_of_tensors_is_called_as_no_formula(stem: str, entry: zoo.Entry, tmp_path: Path) -> None:
    images = as_floats(entry.problem().images.test_images[:N])
    file = tmp_path / f"{stem}.safetensors"
    safetensors.torch.save_file({"images": images}, tmp_path / "plain.safetensors")
    (tmp_path / "plain.safetensors").rename(file)
    for attempt in (
        lambda: attack_named(str(file)),
        lambda: score(Images(file, "Linf", EPS, N), entry, Results(tmp_path / "out")),
    ):
        with pytest.raises(BadInput, match=r"results call a file by its name, .* rename it, .* to mine\.safetensors$"):
            attempt()
    assert not (tmp_path / "out").exists()
    assert re.fullmatch(r"[\w.][\w.-]*/y\.safetensors", label(f"/somewhere/{stem}/y.safetensors"))  # a folder is not


@pytest.mark.slow
def test_a_class_is_called_by_a_name_that_can_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from robustbench_dec.attack import Attack\n"
        "Mine = type('Mi\\nne', (Attack,), {'__module__': __name__, 'perturb': lambda *a: a[2]})\n"
    )
    for name in (str(file), f"{file}:Mi\nne", f"{file}:Mine\x1b"):
        with pytest.raises(BadInput, match="after the colon stands the name of a class or a function in"):
            attack_named(name)


@pytest.mark.parametrize("stem", ["mine", "mine-2", "_mine", "2nd.try", "größe", "攻撃"])
def test_a_plain_name_in_any_language_will_do(stem: str, tmp_path: Path) -> None:
    shelf.check_name(tmp_path / f"{stem}.py", "Mine")
    name = f"/runs/mnist-k_gt-s0/{stem}.safetensors"
    assert label(name) == f"mnist-k_gt-s0/{stem}.safetensors" and label("../y.safetensors") == "../y.safetensors"


def test_a_folder_may_be_called_like_a_file(tmp_path: Path) -> None:
    folder = tmp_path / ".python" / "my.py.d"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text((ROOT / "examples" / "momentum.py").read_text())
    name = f"{folder}/mine.py:Momentum"
    assert attack_named(name).source.label == label(name) == "mine.py:Momentum"


def test_who_only_says_that_it_needs_no_gradient_flags_nobody() -> None:
    left, broken = torch.tensor([True, False]), torch.tensor([False, False])
    seen = audit.Point("m", "pgd", 0.1, 0.5, right=left, steps=20, passes=(40, 40))
    for hearsay in (False, True):
        other = audit.Point("m", "mine.py:Mine", 0.1, 0.0, right=broken, passes=(40, 0), hearsay=hearsay)
        assert ("black_box_wins" in audit.flags([seen, other])[0]) is not hearsay

"""Files that somebody sealed: cells that contradict themselves, cells of few images, networks under another's card."""

import hashlib
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import board, labelled_rows
from robustbench_dec.leaderboard.audit import of_cell
from robustbench_dec.leaderboard.radius_curves import curves
from robustbench_dec.rendering import export
from robustbench_dec.store import zoo
from robustbench_dec.store.bits import count, pack
from robustbench_dec.store.checkpoint import checkpoint_bytes
from robustbench_dec.store.records import Card
from robustbench_dec.store.results import Results
from tests.support.tiny import Made
from tests.support.typed import run

MINE = """
def mine(model, images, labels, eps):
    return (images + eps).clamp(0, 1)
"""


def first_cell(made: Made) -> Path:
    return sorted((made.folders[0] / "attacks").glob("fgsm-0.1-*.json"))[0]


@pytest.mark.parametrize(
    "edit, words",
    [
        ({"robust_acc": 0.0, "n_correct": 0}, "its accuracy is not that of its outcomes"),
        ({"robust_acc": 0.0}, "its accuracy is not that of its outcomes"),
        ({"clean_acc": 0.01}, "its clean accuracy is not that of its outcomes"),
        ({"bits": "!!!"}, "is no CellRecord"),
        ({"bits": "AA=="}, "the outcomes are not those of 40 images"),
        ({"norm": "L3"}, "no attack has norm L3"),
        ({"eps": -0.1}, "eps -0.1"),
        ({"n_examples": 0}, "0 images"),
        ({"run_id": "digits-k_gt-s9-0123456789"}, "is a cell of digits-k_gt-s9-0123456789, but lies in"),
        ({"method": "dec_fedtrack"}, "but lies in the folder of"),
        ({"seed": 77}, "but lies in the folder of"),
    ],
    ids=str,
)
def test_a_cell_that_contradicts_itself_or_its_run_is_refused(made: Made, edit: dict[str, object], words: str) -> None:
    path = first_cell(made)
    files.write_sealed(path, files.read_json(path) | edit)
    with pytest.raises(BadInput) as caught:
        list(Results(made.results).cells())
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_packed_is_counted() -> None:
    for n in (1, 7, 8, 9, 40, 1001):
        bits = torch.rand(n, generator=torch.Generator().manual_seed(n)) < 0.5
        assert count(pack(bits), n) == int(bits.sum())
    with pytest.raises(ValueError, match="not those of 9 images"):
        count(pack(torch.ones(8, dtype=torch.bool)), 9)
    with pytest.raises(ValueError, match="not those of 7 images"):
        count(pack(torch.ones(8, dtype=torch.bool)), 7)


def numbers(made: Made) -> dict[tuple[str, str, str], tuple[float, int, int]]:
    """Every entry of the board: mean, images, seeds."""
    results = Results(made.results)
    frame = labelled_rows.read(results)
    found = {}
    for table in board.tables(frame, labelled_rows.runs(results, frame["run_id"]), labelled_rows.tables(results)):
        for block in table.blocks:
            for network in block.networks:
                for kind, entries in (("attack", network.attacks), ("worst", network.worst)):
                    for key, entry in entries.items():
                        found[f"{table.stem} {network.title}", kind, key] = entry.mean, entry.images, entry.seeds
    return found


@pytest.mark.slow
@pytest.mark.parametrize("eps", ["0.1000001", "0.04"])
def test_cells_that_somebody_publishes_replace_no_number_of_a_table(listed: Made, eps: str, tmp_path: Path) -> None:
    before = numbers(listed)
    (tmp_path / "mine.py").write_text(MINE)
    words = ("--attack", tmp_path / "mine.py:mine", "--eps", eps, "--n-examples", "3")
    run("compare", *words, "--model", listed.folders[0], "--results", "own")
    run("publish", "own")  # with the known attacks that ran beside it
    assert {key: value for key, value in numbers(listed).items() if key in before} == before
    assert set(numbers(listed)) == set(before)
    marks = labelled_rows.read(Results(listed.results))
    assert (marks[marks["n_examples"] == 3]["submitter"] == "a user").all() and (marks["n_examples"] == 3).sum() > 1


@pytest.mark.slow
def test_a_published_attack_on_few_images_moves_no_worst_case(listed: Made) -> None:
    before = numbers(listed)
    folder = Path("results/runs") / listed.folders[0].name
    run("attack", folder, "--attack", "fgsm", "--eps", "0.03", "--n-examples", "2")
    run("publish", folder)
    assert numbers(listed) == before


@pytest.mark.slow
def test_a_cell_of_another_network_is_not_published(listed: Made, tmp_path: Path) -> None:
    home = Path("own/runs") / listed.folders[0].name
    shutil.copytree(listed.folders[0], home, ignore=shutil.ignore_patterns("attacks"))
    run("attack", home, "--attack", "fgsm", "--eps", "0.2", "--n-examples", "40")
    (path,) = (home / "attacks").glob("*.json")
    cell = files.read_json(path)
    wrong = torch.arange(40) % 2 == 0
    files.write_sealed(path, cell | {"clean_bits": pack(wrong), "clean_acc": 0.5})
    before = (listed.results / "leaderboard.csv").read_bytes()
    with pytest.raises(BadInput, match=r"images that its network gets right or wrong without attack where"):
        run("publish", "own")
    files.write_sealed(path, cell | {"flags": ["</script>"]})
    with pytest.raises(BadInput, match="which the suite does not know"):
        run("publish", "own")
    assert (listed.results / "leaderboard.csv").read_bytes() == before
    files.write_sealed(path, cell)
    run("publish", "own")


def test_a_network_under_the_card_of_one_that_comes_along_is_refused(tmp_path: Path) -> None:
    source = zoo.home() / "mnist" / "k_gt"
    card, tensors = Card.read(source.with_suffix(".json")), safetensors.torch.load_file(f"{source}.safetensors")
    assert card.run.classifier is not None
    for noise, refused in ((0.0, False), (0.1, True)):
        drawn = torch.randn(tensors["X"].shape, generator=torch.Generator().manual_seed(0))
        data = checkpoint_bytes({**tensors, "X": tensors["X"] + noise * drawn}, card.run.classifier.architecture)
        for place in (tmp_path / "mnist" / "k_gt", tmp_path / "zoo" / "mnist" / "mine"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.with_suffix(".safetensors").write_bytes(data)
            own = card.model_copy(update={"network_sha256": hashlib.sha256(data).hexdigest(), "name": place.stem})
            own.write(place.with_suffix(".json"))
        for asked in (str(tmp_path / "mnist" / "k_gt.safetensors"), "mnist/mine"):
            if refused:
                with pytest.raises(BadInput, match=r"tells the run mnist-k_gt-.* but its network"):
                    zoo.chosen(asked, Results(tmp_path))
            else:
                assert len(zoo.chosen(asked, Results(tmp_path))) == 1


def test_a_zoo_of_ones_own_hides_no_network_that_comes_along(tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mnist").mkdir(parents=True)
    for suffix in (".json", ".safetensors"):
        other = (zoo.home() / "mnist" / "dec_fedtrack").with_suffix(suffix)
        shutil.copyfile(other, tmp_path / "zoo" / "mnist" / f"k_gt{suffix}")
    (entry,) = zoo.chosen("mnist/k_gt", Results(tmp_path))
    assert entry.record.method == "k_gt"


@pytest.mark.slow
def test_one_image_decides_neither_the_best_known_accuracy_nor_a_radius(listed: Made, tmp_path: Path) -> None:
    home = Path("own/runs") / listed.folders[0].name
    shutil.copytree(listed.folders[0], home)
    frame = labelled_rows.labelled(labelled_rows.leaderboard.gather(Results(Path("own"))), Results(Path("own")))
    (before,) = export.robustbench(frame).values()
    (curve,) = curves(Results(Path("own")))
    (tmp_path / "mine.py").write_text("def mine(model, images, labels, eps):\n    return 1 - images\n")
    run("attack", home, "--attack", f"{tmp_path / 'mine.py'}:mine", "--eps", "1", "--n-examples", "1")
    frame = labelled_rows.labelled(labelled_rows.leaderboard.gather(Results(Path("own"))), Results(Path("own")))
    (after,) = export.robustbench(frame).values()
    assert after["external"] == before["external"] and len(frame) == 4
    assert curves(Results(Path("own")))[0].smallest.equal(curve.smallest)
    assert len(curves(Results(Path("own")), n_examples=1)[0].smallest) == 1


def test_a_users_attack_that_says_it_is_blind_flags_nobody_else(made: Made) -> None:
    run_ = Results(made.results).run(made.folders[0].name)
    record = run_.cell(first_cell(made).stem).record
    theirs = record.model_copy(update={"source_sha256": "0" * 64, "max_passes": 1, "backwards": 0, "forwards": 1})
    assert of_cell(run_.record, theirs).hearsay and not of_cell(run_.record, record).hearsay

"""A new attack beside the stored ones: what is counted, what is cached, and what is said about bad attacks."""

import csv
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from attacks.pgd import PGD
from attacks.strong import Strong
from robustbench_dec import files, shelf
from robustbench_dec.attack import Attack
from robustbench_dec.attacking import find_attack
from robustbench_dec.attacking.evaluate import Failed, Limits, evaluate
from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import compare
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.leaderboard.compare import Newcomer
from robustbench_dec.leaderboard.intervals import holm, mcnemar
from robustbench_dec.running import cells
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results
from tests.support import ROOT, by_path
from tests.support.tiny import Made

EXAMPLE = ROOT / "examples" / "momentum.py"

TORCHATTACKS_STYLE = """
import torch


class Theirs:
    def __init__(self, model, eps=8 / 255, alpha=2 / 255, steps=4, loud: bool = False):
        self.model, self.eps, self.alpha, self.steps = model, eps, alpha, steps

    def forward(self, images, labels):
        a = images.clone()
        for _ in range(self.steps):
            a.requires_grad_()
            g, = torch.autograd.grad(torch.nn.functional.cross_entropy(self.model(a), labels), a)
            a = (images + (a.detach() + self.alpha * g.sign() - images).clamp(-self.eps, self.eps)).clamp(0, 1)
        return a
"""

OURS = """
from dataclasses import dataclass
import torch
from robustbench_dec.attack import Attack


@dataclass(frozen=True)
class Mine(Attack):
    def perturb(self, model, images, labels):
        {body}
"""


@pytest.fixture
def entry(made: Made) -> zoo.Entry:
    return zoo.add(made.folders[1], "digits/dec_fedtrack", made.results / "zoo")


def file_with(path: Path, body: str) -> str:
    path.write_text(OURS.format(body=body))
    return f"{path}:Mine"


def compared(made: Made, entry: zoo.Entry, name: str, **options: Any) -> list[compare.Row]:
    settings = options.pop("settings", {})
    eps = options.pop("eps", None)
    terms = compare.Terms(**{"n_examples": 40, "progress": False} | options)
    return compare.compare(Newcomer(name, settings), [entry], Results(made.results), terms, eps=eps)


def command(made: Made, *arguments: str) -> str:
    """The command's output; its refusal is raised as BadInput."""
    common = ["--results", str(made.results), "--tables", str(made.file.parent), "--n-examples", "40"]
    common += [] if "--model" in arguments else ["--model", "digits/*"]  # not the shipped ones
    done = CliRunner().invoke(cli.app, ["compare", *common, *arguments])
    if done.exception is not None:
        raise done.exception
    return done.output


def must_not(*_: Any, **__: Any) -> Any:
    raise AssertionError("must not be done again")


# From a file to the leaderboard


@pytest.mark.slow
def test_the_example_is_compared_in_one_command_and_is_in_the_leaderboard(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    by_path.report(made.specification, "tiny", made.results, made.file.parent)
    before = list(csv.DictReader((made.results / "leaderboard.csv").open()))
    shutil.copy(EXAMPLE, tmp_path / "my_momentum.py")  # outside the repository
    output = command(made, "--attack", f"{tmp_path}/my_momentum.py:Momentum", "--set", "steps=5")
    assert "digits/dec_fedtrack: first 40 test images" in output
    assert "my_momentum.py:Momentum" in output and "fgsm" in output and "McNemar" in output
    assert str(tmp_path) not in output.split("leaderboard.csv")[0].rpartition("\n")[0]  # no folders in the table
    assert "my_momentum.py:Momentum" in (made.file.parent / "index.html").read_text()  # the page is rebuilt
    after = list(csv.DictReader((made.results / "leaderboard.csv").open()))
    new = [row for row in after if row["submitted"] == "user"]
    assert [row["attack"] for row in new] == ["my_momentum.py:Momentum"] * 2 and len(after) == len(before) + 2
    ours = [row for row in after if row["submitted"] == ""]
    worst = [
        (float(row.pop("worst_case")), float(was.pop("worst_case"))) for row, was in zip(ours, before, strict=True)
    ]
    assert ours == before
    assert all(now <= was for now, was in worst)  # the only thing of other rows that a new attack may change
    assert {float(row["eps"]) for row in new} == {0.05, 0.1} and {row["steps"] for row in new} == {"5"}
    # The table of the same runs is not changed by it.
    by_path.report(made.specification, "again", made.results, made.file.parent)
    assert "Momentum" not in (made.file.parent / "again.md").read_text()


def test_the_example_has_about_thirty_lines() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 40


@pytest.mark.slow
def test_nothing_is_attacked_twice_and_an_edited_file_is_another_attack(
    made: Made, entry: zoo.Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = file_with(tmp_path / "mine.py", "return (images + self.eps).clamp(0, 1)")
    first = compared(made, entry, name)
    with monkeypatch.context() as patch:
        patch.setattr(cells, "attacked", must_not)
        again = compared(made, entry, name)
        fewer = compared(made, entry, name, n_examples=15)  # the first of the same images
    assert [row.mine.accuracy for row in again] == [row.mine.accuracy for row in first]
    assert all(row.mine.right.equal(full.mine.right[:15]) for row, full in zip(fewer, first, strict=True))
    file_with(tmp_path / "mine.py", "return (images - self.eps).clamp(0, 1)")
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="must not"):
        patch.setattr(cells, "attacked", must_not)
        compared(made, entry, name)
    compared(made, entry, name)
    labels = {c.record.attack for c in Results(made.results).cells() if c.record.submitted == "user"}
    assert labels == {"mine.py:Mine"}


@pytest.mark.slow
def test_stored_cells_are_read_and_missing_ones_of_known_attacks_are_made(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    name = file_with(tmp_path / "mine.py", "return (images + self.eps).clamp(0, 1)")
    there = [cell.record for cell in Results(made.results).cells()]
    (stored,) = [cell for cell in there if cell.eps == 0.1 and cell.method == "dec_fedtrack"]
    at_stored, at_new = compared(made, entry, name, eps=[0.1, 0.07])
    assert [rival.attack for rival in at_stored.rivals] == ["fgsm"]
    assert at_stored.rivals[0].accuracy == stored.robust_acc
    assert [rival.attack for rival in at_new.rivals] == ["fgsm"]  # made here
    references = [c.record for c in Results(made.results).cells() if c.record.submitted == "reference"]
    assert [(c.attack, c.eps) for c in references] == [("fgsm", 0.07)]


@pytest.mark.slow
def test_a_network_alone_is_attacked_with_the_known_attacks(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    """As from an installed wheel: the zoo and its card, no stored cells."""
    results = tmp_path / "empty"
    (row,) = compare.compare(
        Newcomer(str(EXAMPLE), {"steps": "2"}),
        [entry],
        Results(results),
        compare.Terms(n_examples=20, progress=False),
        eps=[0.1],
    )
    assert sorted(rival.attack for rival in row.rivals) == ["fgsm", "pgd"]
    assert len(leaderboard.gather(Results(results))) == 3
    with pytest.raises(BadInput, match=r"no stored universal attacks in Linf .* give --eps"):
        compare.compare(Newcomer("uap", {}), [entry], Results(results), compare.Terms(progress=False))


@pytest.mark.slow
def test_gains_misses_and_tests_are_those_of_the_images(made: Made, entry: zoo.Entry) -> None:
    rows = compared(made, entry, "pgd", settings={"steps": "5"}, eps=[0.05, 0.1])
    for row in rows:
        (fgsm,) = row.rivals
        broke, missed = (int(x.sum()) for x in (~row.mine.right & fgsm.right, row.mine.right & ~fgsm.right))
        assert (row.gained, row.missed, row.best) == (broke, missed, fgsm)
        assert row.p_value == mcnemar(broke, missed)
        assert row.worst.equal(row.mine.right & fgsm.right)
    values = [row.p_value for row in rows if row.p_value is not None]
    assert [row.p_holm for row in rows] == holm(values)


def test_the_networks_of_a_data_set_stand_by_their_worst_case() -> None:
    def row(model: str, mine: list[bool], rival: list[bool]) -> compare.Row:
        measured = [
            compare.Measured(name, torch.tensor(right), 1, 1, ()) for name, right in (("m", mine), ("r", rival))
        ]
        return compare.Row(model, 1.0, "Linf", 0.1, measured[0], (measured[1],), p_value=1.0, p_holm=1.0)

    weak = row("mnist/weak", [True, True, False], [False, True, True])  # 1 of 3 is left
    firm = row("mnist/firm", [True, True, False], [True, True, False])  # 2 of 3
    other = row("digits/other", [False] * 3, [False] * 3)
    assert compare.by_worst_case([weak, other, firm]) == [firm, weak, other]  # data sets as they came
    assert [each["worst_case"] for each in compare.document([weak, firm])] == pytest.approx([2 / 3, 1 / 3])
    said = compare.text([weak, firm])
    assert said.index("mnist/firm") < said.index("mnist/weak") and "worst case   66.7" in said


def test_what_is_wrong_without_attack_is_broken_by_nobody() -> None:
    right, before = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    alone = compare.Row("m", 2 / 3, "Linf", 0.1, compare.Measured("mine", right, 1, 1, (), before), ())
    assert alone.gained == 1


def test_mcnemar_and_holm_are_those_of_the_textbook() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(10, 0) == pytest.approx(2 / 2**10)
    assert mcnemar(3, 7) == mcnemar(7, 3) == pytest.approx(2 * sum(math.comb(10, k) for k in range(4)) / 2**10)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []


# Attacks from anywhere


@pytest.mark.slow
def test_a_class_in_the_manner_of_torchattacks_runs_with_the_settings_in_its_file(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.py"
    path.write_text(TORCHATTACKS_STYLE)
    cls = find_attack.attack_named(f"{path}:Theirs")
    attack = shelf.make(cls, {"eps": "0.2", "loud": "true"})
    assert attack.settings() == {"eps": 0.2, "alpha": 2 / 255, "steps": 4, "loud": True}
    (row,) = compared(made, entry, str(path), eps=[0.2], settings={"steps": "6"})
    assert row.mine.flags == ("short_steps",)  # and told that it cannot reach the radius
    (row,) = compared(made, entry, str(path), eps=[0.2], settings={"steps": "6", "alpha": "0.05"})
    assert row.mine.accuracy < row.clean and row.mine.flags == ()
    assert row.mine.forwards == pytest.approx(6 * row.clean)


@pytest.mark.slow
def test_a_saved_perturbation_and_a_trainers_y_are_attacks(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    y = made.folders[1] / "perturbation.safetensors"
    for source in (y, entry.checkpoint):  # the run's file, and the zoo's, which holds the same y
        (row,) = compared(made, entry, str(source))
        assert row.eps == 0.2 and [rival.attack for rival in row.rivals] == ["uap"]
        assert row.mine.flags == ()
    (scaled,) = compared(made, entry, str(y), settings={"scale": "true"}, eps=[0.5])
    assert scaled.mine.accuracy <= row.mine.accuracy
    (clipped,) = compared(made, entry, str(y), eps=[0.01])
    assert clipped.mine.flags == ("budget",)
    safetensors.torch.save_file({"y": torch.zeros(3, 4, 4)}, tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match=r"shape \(1, 8, 8\), this one has \(3, 4, 4\)"):
        compared(made, entry, str(tmp_path / "other.safetensors"), eps=[0.1])


def test_an_attack_in_another_norm_needs_radii_and_has_no_rivals_among_linf(made: Made, entry: zoo.Entry) -> None:
    with pytest.raises(BadInput, match="no stored per-image attacks in L2"):
        compared(made, entry, "torchattacks:PGDL2")
    (row,) = compared(made, entry, "torchattacks:PGDL2", eps=[1.0], settings={"steps": "3"})
    assert row.rivals == () and row.p_value is None
    assert "no stored attack has this radius in L2" in compare.text([row])
    (again,) = [c.record for c in Results(made.results).cells() if c.record.submitted == "user"]
    assert again.norm == "L2" and again.attack == "torchattacks:PGDL2"


def test_a_limit_of_passes_is_in_the_cell_and_makes_another_cell(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    name = file_with(tmp_path / "mine.py", "[model(images) for _ in range(4)]; return images * 0")
    (free,) = compared(made, entry, name, eps=[0.3])
    (limited,) = compared(made, entry, name, eps=[0.3], limits=Limits(passes=3))
    assert free.mine.flags == ("budget",) and limited.mine.flags == ("passes",)
    assert limited.mine.accuracy == limited.clean
    stored = [cell.record for cell in Results(made.results).cells() if cell.record.submitted == "user"]
    assert {cell.max_passes for cell in stored} == {None, 3}


def test_own_work_goes_elsewhere_and_the_stored_results_are_only_read(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    name = file_with(tmp_path / "mine.py", "return (images + self.eps).clamp(0, 1)")
    before = {path: path.read_bytes() for path in made.results.rglob("*") if path.is_file()}
    for model in (entry, zoo.from_path(made.folders[1])):
        own = Results(tmp_path / "out")
        (row,) = compare.compare(
            Newcomer(name, {}),
            [model],
            own,
            compare.Terms(n_examples=40, progress=False),
            eps=[0.1],
            stored=Results(made.results),
        )
        assert [rival.attack for rival in row.rivals] == ["fgsm"]  # a stored one, not run again
        assert [cell.record.attack for cell in own.cells()] == ["mine.py:Mine"]
    assert {path: path.read_bytes() for path in made.results.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize("classes", [10, 2, 3])
@pytest.mark.parametrize("eps", [0.03, 0.1])
def test_strong_is_never_weaker_than_pgd(classes: int, eps: float, model: nn.Module, images: Tensor) -> None:
    class Fewer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(images)
            return logits[:, :classes]

    fewer = Fewer()
    labels = fewer(images).argmax(1)
    pgd = evaluate(PGD(eps), fewer, images, labels, seed=3)
    strong = evaluate(Strong(eps, steps=5, queries=20), fewer, images, labels, seed=3)
    assert not (strong.robust & ~pgd.robust).any()
    assert strong.flags == ()


# Bad attacks


@pytest.mark.slow
@pytest.mark.parametrize(
    "body, flags",
    [
        ("return torch.where(labels.view(-1, 1, 1, 1) == 3, float('nan'), images)", ("nan",)),
        ("return images + 3", ("box", "budget")),
        ("return images - self.eps", ("box",)),
    ],
)
def test_what_leaves_the_rules_is_told_in_the_table_and_in_the_csv(
    body: str, flags: tuple[str, ...], made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    output = command(made, "--attack", file_with(tmp_path / "mine.py", body), "--eps", "0.1")
    assert f"flags: {', '.join(flags)}" in output
    assert all(f"flag {flag}: " in output for flag in flags)
    rows = leaderboard.read(made.results / "leaderboard.csv")
    (noted,) = rows[rows["submitted"] == "user"]["reliability_flags"]
    assert set(flags) <= set(noted.split(";"))


FAILS_ONCE = """
        from pathlib import Path
        calls = Path(r"{folder}") / "calls"
        seen = calls.read_text().split() if calls.exists() else []
        key = str(round(float(images.double().sum()), 6))
        calls.write_text(" ".join([*seen, key]))
        if len(seen) == 6:
            raise RuntimeError("boom")
        return (images + self.eps).clamp(0, 1)
"""


@pytest.mark.slow
def test_a_failure_on_batch_7_of_10_keeps_the_others_and_the_rerun_starts_there(
    made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    name = file_with(tmp_path / "mine.py", FAILS_ONCE.format(folder=tmp_path).strip())
    calls = tmp_path / "calls"
    words = r"Mine failed on batch 7 of 10: it raised RuntimeError: boom \(mine\.py, line 16\); the results of 9"
    with pytest.raises(Failed, match=words):
        compared(made, entry, name, eps=[0.1], batch_size=4)
    assert len(calls.read_text().split()) == 10
    assert all(row["submitted"] != "user" for row in leaderboard.gather(Results(made.results)).to_dict("records"))
    (row,) = compared(made, entry, name, eps=[0.1], batch_size=4)
    done = calls.read_text().split()
    assert len(done) == 11 and done[10] == done[6]  # only batch 7, again
    file_with(tmp_path / "mine.py", "return (images + self.eps).clamp(0, 1)")
    (whole,) = compared(made, entry, name, eps=[0.1], batch_size=4)
    assert row.mine.right.equal(whole.mine.right)
    assert not list((made.folders[1] / "attacks").glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil, words",
    [
        (
            lambda tmp: file_with(tmp / "m.py", "return images[:1]"),
            r"batch 1 of 1.*return images of shape .*\(1, 1, 8, 8\)",
        ),
        (lambda tmp: file_with(tmp / "m.py", "return None"), "returned NoneType"),
        (
            lambda tmp: file_with(tmp / "m.py", "pass").replace(":Mine", ":Other"),
            "no class Other .* nor one like torchattacks'",
        ),
        (lambda tmp: str(tmp / "absent.py") + ":Mine", "no file .*absent.py"),
        (lambda tmp: str(tmp / "absent.safetensors"), "no file .*absent.safetensors"),
        (lambda tmp: "nope", "no attack 'nope'; there are: fgsm"),
        (lambda tmp: "torchattacks:NOPE", "torchattacks has no attack 'NOPE'"),
    ],
)
def test_an_attack_that_is_none_is_refused_with_a_sentence(
    spoil: Callable[[Path], str], words: str, made: Made, entry: zoo.Entry, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=words):
        command(made, "--attack", spoil(tmp_path), "--eps", "0.1")


def test_a_file_with_no_attack_in_it_is_refused(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("class Model:\n    def __init__(self, model):\n        pass\n")
    with pytest.raises(
        BadInput, match=r"has no class that is a subclass of robustbench_dec.attack.Attack, nor one like"
    ):
        command(made, "--attack", str(tmp_path / "m.py"))
    torch.save({"y": torch.zeros(1, 8, 8)}, tmp_path / "y.safetensors")
    with pytest.raises(BadInput, match=r"not a whole safetensors file .* pickles are not read"):
        command(made, "--attack", str(tmp_path / "y.safetensors"))


def test_models_that_cannot_be_compared_are_refused(made: Made, entry: zoo.Entry, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pt")
    for model, words in (
        (str(tmp_path / "model.pt"), "pickles .* are never read"),
        ("digits/k*", "no model of the zoo matches 'digits/k\\*'; there are: cifar10/.*, digits/dec_fedtrack"),
        ("", "--model is a pattern of the zoo such as mnist/"),
        (str(tmp_path / "absent.safetensors"), "no checkpoint"),
    ):
        with pytest.raises(BadInput, match=words):
            command(made, "--attack", "pgd", "--model", model)
    data = bytearray(entry.checkpoint.read_bytes())
    data[-1] ^= 1
    entry.checkpoint.write_bytes(data)
    with pytest.raises(BadInput, match="has not the sha256"):
        command(made, "--attack", "pgd")
    record = made.folders[1] / "run.json"
    files.write_sealed(record, files.read_sealed(record) | {"checkpoint_sha256": "0"})
    with pytest.raises(BadInput, match="about another checkpoint"):
        command(made, "--attack", "pgd")


@pytest.mark.slow
def test_a_run_folder_is_compared_like_a_model_of_the_zoo(made: Made, entry: zoo.Entry) -> None:
    from_zoo = compared(made, entry, "pgd", settings={"steps": "4"}, eps=[0.1])
    from_run = compared(made, zoo.from_path(made.folders[1]), "pgd", settings={"steps": "4"}, eps=[0.1])
    assert from_run[0].mine.right.equal(from_zoo[0].mine.right)
    assert len(list((made.folders[1] / "attacks").glob("pgd-*.json"))) == 1


@pytest.mark.slow
def test_an_attack_that_was_run_before_is_shown_in_a_new_folder_too(made: Made, tmp_path: Path) -> None:
    """Its only cells lie in the run's own folder; the leaderboard of the new one has them, as a user's."""
    run, mine = str(made.folders[0]), f"{EXAMPLE}:Momentum"
    runner, words = CliRunner(), ["--set", "steps=3", "--eps", "0.1", "--n-examples", "40"]
    answer = runner.invoke(cli.app, ["attack", run, "--attack", mine, *words])
    assert answer.exit_code == 0, answer.output
    new = tmp_path / "new"
    answer = runner.invoke(
        cli.app, ["compare", "--attack", mine, "--model", run, *words, "--results", str(new)], catch_exceptions=False
    )
    assert answer.exit_code == 0 and "1 rows, 1 of them of momentum.py:Momentum" in answer.output
    (row,) = leaderboard.read(Results(new).leaderboard).itertuples()
    (before,) = [cell for cell in Results(made.results).run(made.folders[0].name).cells() if "momentum" in cell.stem]
    assert (row.cell, row.n_correct, row.submitted) == (before.stem, before.record.n_correct, "user")
    assert before.record.submitted == "" and (new / "index.html").is_file()


def test_an_abstract_attack_is_no_attack() -> None:
    assert find_attack.adapt(Attack) is None

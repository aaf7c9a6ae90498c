"""Which numbers the audit flags, and which it leaves in peace; on cells, in tables, and on the paper's own."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from robustbench_dec import files
from robustbench_dec.commands import app as cli
from robustbench_dec.leaderboard import audit
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.leaderboard.audit import Point
from robustbench_dec.rendering import against_paper, blocks
from robustbench_dec.rendering import report as rendering
from robustbench_dec.specs import table as spec
from robustbench_dec.store.bits import pack
from robustbench_dec.store.results import Results
from tests.support import ROOT, by_path
from tests.support.tiny import Made


def point(attack: str, eps: float, accuracy: float, **more: Any) -> Point:
    usual: dict[str, Any] = {"model": "m", "n_examples": 1000}
    return Point(attack=attack, eps=eps, accuracy=accuracy, **usual | more)


def found(*points: Point) -> list[tuple[str, float, str]]:
    return [(finding.point.attack, finding.point.eps, finding.flag) for finding in audit.findings(points)]


def test_an_attack_by_queries_breaks_nothing_that_one_with_gradients_leaves() -> None:
    bits = [torch.tensor(each) for each in ([True, False], [False, True], [True, True])]
    pgd = point("pgd", 0.1, 0.5, right=bits[0], passes=(40, 40), steps=20)
    square = point("torchattacks:Square", 0.1, 0.5, right=bits[1], passes=(500, 0))
    assert found(pgd, square) == [("pgd", 0.1, "black_box_wins")]
    (finding,) = audit.findings([pgd, square])
    assert "torchattacks:Square, which asks for no gradient, breaks 1 images" in audit.sentence(finding)
    assert found(pgd, replace(square, right=bits[2])) == [] == found(pgd, replace(square, eps=0.2))
    assert found(pgd, replace(square, passes=(0, 0))) == []  # images that were only scored
    assert found(replace(pgd, passes=None), square) == [] == found(pgd, replace(square, universal=True))


def test_an_attack_without_bounds_reaches_0() -> None:
    assert found(point("pgd", 1.0, 0.01, steps=20, largest=1.0)) == [("pgd", 1.0, "unbounded")]
    assert found(point("pgd", 1.0, 0.0, steps=20, largest=1.0)) == [] == found(point("fgsm", 1.0, 0.3, largest=1.0))
    assert found(point("pgd", 0.9, 0.3, steps=20, largest=1.0)) == [] == found(point("pgd", 1.0, 0.3, steps=20))


@pytest.mark.parametrize(
    "points, flags",
    [
        ([point("fgsm", 0.1, 0.8), point("fgsm", 0.2, 0.801)], [("fgsm", 0.2, "rises")]),
        ([point("fgsm", 0.1, 0.8), point("fgsm", 0.2, 0.8)], []),
        ([point("fgsm", 0.1, 0.8), point("other", 0.2, 0.9)], []),
        ([point("fgsm", 0.1, 0.95, clean=0.9)], [("fgsm", 0.1, "rises")]),
        ([point("fgsm", 0.1, 0.8), point("fgsm", 0.2, 0.9, model="another")], []),
        ([point("pgd", 0.1, 0.806), point("fgsm", 0.1, 0.8)], [("pgd", 0.1, "weaker_than_one_step")]),
        ([point("pgd", 0.1, 0.805), point("fgsm", 0.1, 0.8)], []),
        ([point("mine", 0.1, 0.9, steps=10), point("fgsm", 0.1, 0.8)], [("mine", 0.1, "weaker_than_one_step")]),
        ([point("mine", 0.1, 0.9, steps=1), point("fgsm", 0.1, 0.8)], []),
        ([point("uap", 0.1, 0.9, steps=500, universal=True), point("fgsm", 0.1, 0.8)], []),
        ([point("mine", 0.1, 0.9, steps=10, norm="L2"), point("fgsm", 0.1, 0.8)], []),
        (
            [point("uap", 0.1, 0.7, steps=5, universal=True), point("uap", 0.1, 0.8, steps=50, universal=True)],
            [("uap", 0.1, "weaker_with_more_steps")],
        ),
        (
            [point("uap", 0.1, 0.72, steps=250, universal=True), point("uap", 0.1, 0.7, steps=500, universal=True)],
            [("uap", 0.1, "not_converged")],
        ),
        ([point("uap", 0.1, 0.71, steps=250, universal=True), point("uap", 0.1, 0.7, steps=500, universal=True)], []),
        ([point("uap", 0.1, 0.8, steps=300, universal=True), point("uap", 0.1, 0.7, steps=500, universal=True)], []),
        ([point("uap", 0.1, 0.8, steps=250, universal=True), point("uap", 0.2, 0.7, steps=500, universal=True)], []),
        ([point("x", 0.1, 0.7, steps=5, settings="a"), point("x", 0.1, 0.8, steps=50, settings="b")], []),
        ([point("fgsm", 0.1, 0.8, zeros=0.3)], [("fgsm", 0.1, "zero_gradients")]),
        ([point("fgsm", 0.1, 0.8, zeros=0.1)], []),
        ([point("fgsm", 0.1, 0.8, flags=("budget", "box"))], [("fgsm", 0.1, "budget"), ("fgsm", 0.1, "box")]),
        ([point("uap", 0.1, 0.44, universal=True, classes=2, rarest=0.5)], [("uap", 0.1, "below_chance")]),
        ([point("uap", 0.1, 0.47, universal=True, classes=2, rarest=0.5)], []),
        ([point("uap", 0.1, 0.47, universal=True, classes=2)], []),
        ([point("uap", 0.1, 0.05, universal=True, classes=10)], [("uap", 0.1, "below_chance")]),
        ([point("pgd", 0.1, 0.0, classes=2, rarest=0.5)], []),
    ],
)
def test_what_is_flagged(points: list[Point], flags: list[tuple[str, float, str]]) -> None:
    assert found(*points) == flags
    assert found(*reversed(points)) == list(reversed(flags)) or len(flags) > 1


def test_a_longer_search_belongs_to_more_steps(made: Made) -> None:
    """Twice the steps of a UAP are twice its search too: the same attack, longer."""
    (run,) = (run for run in Results(made.results).runs() if run.id == made.folders[0].name)
    (cell,) = list(run.cells())[:1]
    longer = cell.record.model_copy(update={"settings": cell.record.settings | {"search": 60, "steps": 500}})
    other = cell.record.model_copy(update={"settings": cell.record.settings | {"batch": 7}})
    assert audit.of_cell(run.record, longer).settings == audit.of_cell(run.record, cell.record).settings
    assert audit.of_cell(run.record, other).settings != audit.of_cell(run.record, cell.record).settings


def test_attacks_on_different_numbers_of_images_are_compared_on_those_of_both() -> None:
    """The short one is right on all of its 10 images, the long one on the same 10 and on few others."""
    few, many = torch.ones(10, dtype=torch.bool), torch.arange(100) < 10
    weak = point("pgd", 0.1, 1.0, n_examples=10, right=few)
    fgsm = point("fgsm", 0.1, 0.1, n_examples=100, right=many)
    assert found(weak, fgsm) == []
    assert found(weak, replace(fgsm, right=~many)) == [("pgd", 0.1, "weaker_than_one_step")]
    assert found(replace(weak, right=None), replace(fgsm, right=None)) == []  # nothing to pair


@pytest.mark.slow
def test_findings_stand_in_the_leaderboard_and_as_marks_in_the_table(made: Made) -> None:
    path = next((made.folders[0] / "attacks").glob("fgsm-0.1-*.json"))
    cell = files.read_json(path)
    n = cell["n_examples"]
    right = pack(torch.ones(n, dtype=torch.bool))
    clean = {"clean_acc": 1.0, "clean_bits": right}
    all_right = {"robust_acc": 1.0, "n_correct": n, "bits": right} | clean
    files.write_sealed(path, cell | all_right | {"zero_gradients": 0.5, "flags": ["box"]})
    for other in (made.folders[0] / "attacks").glob("*.json"):
        files.write_sealed(other, files.read_json(other) | clean)
    by_path.report(made.specification, "tiny", made.results, made.file.parent)
    rows = leaderboard.read(made.results / "leaderboard.csv")
    this = (rows["cell"] == path.stem) & (rows["run_id"] == made.folders[0].name)
    assert rows[this]["reliability_flags"].item() == "box;rises;zero_gradients"
    assert (rows[~this]["reliability_flags"] == "").all()
    text = (made.file.parent / "tiny.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| K-GT")]
    assert line.count("†") == 1 and "**100.0**†" in line
    assert "† flagged by the audit; see docs/flags.md" in text
    latex = (made.file.parent / "tiny.tex").read_text()
    assert r"\textbf{100.0}$^\dagger$" in latex


def test_every_flag_is_explained() -> None:
    text = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert all(f"| `{flag}` |" in text for flag in audit.FLAGS)


def test_the_papers_own_table_is_flagged_where_pgd_is_weaker_than_fgsm() -> None:
    wanted = spec.read(ROOT / "tables" / "table2.toml")
    findings = blocks.audit(rendering.blocks(wanted), against_paper.percent_of(wanted.paper))
    assert [line.split(":")[0] for line in findings] == [
        "MNIST, K-GT, PGD δ=0.05",
        "MNIST, K-GT, PGD δ=0.1",
        "MNIST, Dec-FedTrack, PGD δ=0.05",
        "MNIST, Dec-FedTrack, PGD δ=0.1",
        "CIFAR-10, K-GT, PGD δ=0.01",
        "CIFAR-10, Dec-FedTrack, PGD δ=0.01",
    ]
    assert all("FGSM" in line for line in findings)


def test_the_command_prints_findings_of_cells_and_of_the_paper(made: Made) -> None:
    path = next((made.folders[0] / "attacks").glob("uap-*.json"))
    none = {"robust_acc": 0.0, "n_correct": 0, "bits": pack(torch.zeros(4000, dtype=torch.bool)), "clean_bits": ""}
    files.write_sealed(path, files.read_json(path) | none | {"rarest_class": 0.1, "n_examples": 4000})
    arguments = ["audit", str(ROOT / "tables" / "table2.toml"), "--results", str(made.results)]
    output = CliRunner().invoke(cli.app, arguments).output
    assert "6 cells in" in output and "1 findings" in output
    assert "below_chance: " in output and "uap at eps 0.2: 0.00 is below 8.58" in output
    assert "the paper's numbers in" in output and "6 findings" in output

"""Verify: stored networks under stored perturbations come out as stored, and what does not is named."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robustbench_dec import files
from robustbench_dec.commands.app import app
from robustbench_dec.running.verify import MOST_FLIPS, Checked, verify
from robustbench_dec.store import zoo
from robustbench_dec.store.bits import pack
from robustbench_dec.store.results import Results
from tests.support.tiny import Made


def test_a_table_that_was_made_here_has_no_difference(made: Made) -> None:
    store = Results(made.results)
    found = list(verify(store.runs(), progress=False))
    assert len(found) == 2 and {checked.run_id for checked in found} == {folder.name for folder in made.folders}
    assert all(checked.flipped == checked.flipped_clean == 0 for checked in found)


def test_the_average_network_that_a_run_keeps_is_enough(made: Made) -> None:
    store = Results(made.results)
    for run in store.runs():
        zoo.keep(run)
        (run.folder / "checkpoint.safetensors").unlink()
    found = list(verify(store.runs(), progress=False))
    assert len(found) == 2 and all(checked.flipped == checked.flipped_clean == 0 for checked in found)


@pytest.mark.slow
def test_a_flipped_image_is_named_and_ends_in_exit_code_1(made: Made) -> None:
    (path,) = (made.folders[0] / "attacks").glob("uap-*.json")
    content = files.read_json(path)
    cell = Results(made.results).run(made.folders[0].name).cell(path.stem).record
    wrong = cell.right.clone()
    wrong[3] = ~wrong[3]
    right = int(wrong.sum())  # else the record contradicts itself
    counts = {"n_correct": right, "robust_acc": right / len(wrong)}
    files.write_sealed(path, content | counts | {"bits": pack(wrong)})
    answer = CliRunner().invoke(app, ["verify", str(made.file), "--results", str(made.results)])
    assert answer.exit_code == 1
    assert f"{made.folders[0].name} {path.stem}: 1 of {cell.n_examples} images differ" in answer.output
    assert "1 cells beyond the bound" in answer.output


def test_nothing_to_verify_is_said(made: Made, tmp_path: Path) -> None:
    for folder in made.folders:
        shutil.rmtree(folder)
    answer = CliRunner().invoke(app, ["verify", str(made.file), "--results", str(made.results)])
    assert answer.exit_code != 0 and "no network of" in str(answer.exception)


@pytest.mark.parametrize("flips, passes", [(0, True), (10, True), (11, False)])
def test_a_few_flips_pass(flips: int, passes: bool) -> None:
    assert MOST_FLIPS == 0.001
    assert Checked("run", "cell", 10_000, flips, 0).passes is passes
    assert Checked("run", "cell", 10_000, 0, flips).passes is passes

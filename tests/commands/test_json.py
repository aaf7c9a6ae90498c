"""--json: one document on standard output; and specifications by their names, whose files go to the current folder."""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import safetensors.torch
from typer.main import get_command

from robustbench_dec import shipped
from robustbench_dec.attack import as_floats
from robustbench_dec.commands.app import app
from robustbench_dec.commands.options import Place
from robustbench_dec.commands.telling import tell
from robustbench_dec.errors import BadInput
from robustbench_dec.store import zoo
from tests.support import ROOT
from tests.support.tiny import Made


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    capsys.readouterr()
    app([str(word) for word in words], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_numbers_are_told_to_programs(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.folders[0]
    (cell,) = said(capsys, "attack", run, "--attack", "fgsm", "--eps", "0.05", "--n-examples", "50", "--json")
    assert cell["eps"] == 0.05 and 0 <= cell["robust_acc"] <= cell["clean_acc"] <= 1 and "bits" not in cell
    words = ("compare", "--attack", "fgsm", "--model", run, "--eps", "0.06", "--n-examples", "50")
    (row,) = said(capsys, *words, "--results", made.results.parent / "out", "--json")
    assert row["mine"]["robust_acc"] <= cell["robust_acc"] and row["n_examples"] == 50
    found = said(capsys, "audit", "table2", "--results", made.results, "--json")
    assert found["cells"] > 0 and found["findings_in_the_paper"]


@pytest.mark.slow
def test_what_there_is_is_told_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    parts, networks = said(capsys, "list", "--json"), said(capsys, "zoo", "list", "--json")
    assert "dec_fedtrack" in parts["trainers"] and "mnist" in parts["data_sets"]
    assert "mnist/k_gt" in [entry["name"] for entry in networks]


SILENT = {
    "table": "says which files it wrote; the numbers are in them",
    "render": "as table",
    "tune": "as table",
    "page": "as table",
    "zoo add": "as table",
    "zoo cards": "as table",
    "export": "prints the leaderboard itself, in the format that is asked for, json too",
    "publish": "says what to add to git",
    "withdraw": "says what to take from git",
    "flags": "prints docs/flags.md",
}
"""Commands without --json, and why."""


def commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    found: dict[str, Any] = {}
    root: Any = get_command(app)
    for name, command in root.commands.items():
        inside = getattr(command, "commands", None)
        found |= {name: command} if inside is None else {f"{name} {each}": inside[each] for each in inside}
    return found


def test_every_command_that_prints_numbers_has_json() -> None:
    known = commands()
    assert len(known) > 20 and set(SILENT) <= set(known)
    for name, command in known.items():
        has = any("--json" in parameter.opts for parameter in command.params)
        assert has != (name in SILENT), f"{name}: --json, or a reason why not"


@pytest.mark.slow
def test_a_diagnosis_is_told_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = said(capsys, "diagnose", "--lemmas", "--nodes", "4", "--rounds", "3", "--json")
    assert facts["constants"]["kappa"] == pytest.approx(facts["constants"]["l"] / facts["constants"]["mu"])
    assert facts["last"]["round"] == 3 and all("holds" in condition for condition in facts["conditions"])
    assert {verdict["lemma"] for verdict in facts["lemmas"]} >= {"A.5", "A.11"}
    assert all(Path(path).is_file() for path in facts["files"])


@pytest.mark.slow
def test_what_is_scored_again_is_told_to_programs(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "verify", made.file, "--results", made.results, "--json")
    assert found["runs"] == 2 and found["differences"] == found["beyond"] == 0
    assert {cell["flipped"] for cell in found["cells"]} == {0} and all(cell["passes"] for cell in found["cells"])
    entry = zoo.from_path(made.folders[0])
    images = made.results.parent / "images.safetensors"
    safetensors.torch.save_file({"images": as_floats(entry.problem().images.test_images[:30])}, images)
    words = ("score", images, "--model", made.folders[0], "--eps", "0.1", "--n-examples", "30")
    scored = said(capsys, *words, "--results", made.results.parent / "out", "--stored", made.results, "--json")
    assert scored["cell"]["robust_acc"] == scored["cell"]["clean_acc"] and "bits" not in scored["cell"]
    assert scored["cells"] == 3 and scored["worst_case"] <= scored["cell"]["robust_acc"]  # fgsm at 0.05 and 0.1, these
    assert scored["broken_alone"] == 0


def test_who_holds_what_is_told_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (digits,) = said(capsys, "data", "digits", "--split", "classes(2)", "--nodes", "5", "--json")
    held = digits["holdings"]
    assert len(held) == 5 and all(len(row) == len(digits["classes"]) == 10 for row in held)
    assert all(sum(count > 0 for count in row) == 2 for row in held) and digits["pictures"] == []


def test_what_is_no_number_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    tell([], {"loss": float("nan"), "rows": [1.5, float("inf")]}, True)
    assert json.loads(capsys.readouterr().out) == {"loss": None, "rows": [1.5, None]}


@pytest.mark.parametrize("name", ["table2", "table2.toml", "tables/table2.toml"])
def test_a_specification_is_found_by_its_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = shipped.specification(name)
    assert found == ROOT / "tables" / "table2.toml"
    assert Place().home(found) == Path("tables")  # beside ./results
    assert Place(results=Path("out")).home(found) == Path("out")
    monkeypatch.chdir(ROOT)
    assert Place().home(shipped.specification(name)).resolve() == ROOT / "tables"


def test_a_users_own_file_comes_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table2.toml").write_text("")
    assert shipped.specification("table2.toml") == Path("table2.toml")
    assert shipped.specification("elsewhere/table2.toml") == Path("elsewhere/table2.toml")


def test_flags_are_told_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    app(["flags", "budget"], standalone_mode=False)
    assert "outside its ball" in capsys.readouterr().out
    app(["flags"], standalone_mode=False)
    assert capsys.readouterr().out == (ROOT / "docs" / "flags.md").read_text()
    with pytest.raises(BadInput, match="no flag 'bugdet'; there are: rises, "):
        app(["flags", "bugdet"], standalone_mode=False)


# TensorBoard


@pytest.mark.slow
def test_tensorboard_is_shown_the_curve(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    home = made.results.parent / "out"
    (run,) = said(capsys, "train", "--rounds", "3", "--results", home, "--log", "tensorboard", "--json")
    seen = EventAccumulator(str(home / "tensorboard" / run["id"])).Reload()
    curve = pd.read_csv(Path(run["folder"]) / "curve.csv")
    assert set(seen.Tags()["scalars"]) == set(curve.columns) - {"round"}
    for name in ("clean_acc", "sfo"):
        events = seen.Scalars(name)
        assert [event.step for event in events] == list(curve["round"])
        assert [event.value for event in events] == pytest.approx(list(curve[name]))


def test_another_log_is_refused() -> None:
    with pytest.raises(BadInput, match="--log takes tensorboard, not 'wandb'"):
        app(["train", "--log", "wandb"], standalone_mode=False)


def test_without_tensorboard_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(BadInput, match=r"pip install 'robustbench-dec\[tensorboard\]'"):
        app(["train", "--log", "tensorboard"], standalone_mode=False)

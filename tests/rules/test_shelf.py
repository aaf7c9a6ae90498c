"""Shelves: what is found, by name or by path; and a file that is broken breaks itself alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.testing import CliRunner

import attacks
import trainers
from robustbench_dec import files, parts, shelf, titles
from robustbench_dec.attack import Attack
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.problem import Problem
from robustbench_dec.theory import check_attack
from robustbench_dec.trainer import Trainer
from tests.support import ROOT

FUTURE = "from __future__ import annotations\n"
CONTRACTS: dict[str, type[parts.Part]] = {"trainer": Trainer, "attack": Attack, "problem": Problem}

PROBLEM = """
from dataclasses import dataclass
from typing import ClassVar

from robustbench_dec.parts import Count
from robustbench_dec.problems.quadratic import Quadratic as Base

@dataclass(frozen=True)
class Mine(Base):
    title: ClassVar[str] = "Mine"
    copies: Count = 2
"""


def text_of(kind: str) -> str:
    examples = {"trainer": "mine.py", "attack": "momentum.py"}
    return (ROOT / "examples" / examples[kind]).read_text() if kind in examples else PROBLEM


def put_on(monkeypatch: pytest.MonkeyPatch, folder: Path, shelf_package: Any, **texts: str) -> None:
    """More files on a shelf, as if they lay in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, f"{shelf_package.__name__}.{name}", raising=False)
    monkeypatch.setattr(shelf_package, "__path__", [*shelf_package.__path__, str(folder)])


# --- users' own files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_file_may_begin_with_annotations_from_the_future(kind: str, tmp_path: Path) -> None:
    text = text_of(kind)
    docstring = '"""Mine."""\n'
    (tmp_path / "late.py").write_text(docstring + FUTURE + text)
    cls = shelf.find(kind, str(tmp_path / "late.py"), CONTRACTS[kind])
    name, value = {"trainer": ("batch", "7"), "attack": ("steps", "7"), "problem": ("copies", "7")}[kind]
    made = shelf.make(cls, {name: value} | ({"eps": "1/10"} if kind == "attack" else {}))
    assert made.settings()[name] == 7
    with pytest.raises(BadInput, match=f"setting '{name}' cannot be True"):
        shelf.make(cls, {name: True} | ({"eps": 0.1} if kind == "attack" else {}))


def test_files_of_the_same_name_do_not_meet(tmp_path: Path) -> None:
    found = []
    for folder, size in (("a", 3), ("b", 5)):
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir()
        file.write_text(FUTURE + text_of("trainer").replace("batch: int = 32", f"batch: int = {size}"))
        found.append(shelf.find("trainer", str(file), Trainer))  # type: ignore[type-abstract]
    assert [shelf.make(cls, {}).settings()["batch"] for cls in found] == [3, 5]
    assert len({cls.__module__ for cls in found}) == 2


def test_an_edited_file_is_loaded_anew_and_what_was_loaded_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text_of("trainer"))
    digest = files.sha256(file)
    before = shelf.find("trainer", f"{file}:Mine", Trainer)  # type: ignore[type-abstract]
    file.write_text(text_of("trainer").replace("batch: int = 32", "batch: int = 64"))
    assert before.source.sha256 == digest != files.sha256(file)
    assert shelf.make(before, {}).settings()["batch"] == 32
    after = shelf.find("trainer", f"{file}:Mine", Trainer)  # type: ignore[type-abstract]
    assert shelf.make(after, {}).settings()["batch"] == 64
    assert after.source.sha256 == files.sha256(file)


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_source_is_the_stem_the_class_and_the_bytes_not_the_path_as_typed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.py"
    file.write_text(text_of(kind))
    monkeypatch.chdir(tmp_path)
    sources = [shelf.find(kind, typed, CONTRACTS[kind]).source for typed in ("own.py", "./own.py", str(file))]
    assert sources[0] == sources[1] == sources[2]
    name = "Momentum" if kind == "attack" else "Mine"
    assert sources[0].identity() == {"name": f"own.py:{name}", "source_sha256": files.sha256(file)}


def test_a_part_on_a_shelf_is_its_name(tmp_path: Path) -> None:
    for kind, contract in CONTRACTS.items():
        for name in shelf.names(kind):
            assert shelf.find(kind, name, contract).source.identity() == {"name": name}


BAD_FILES = {
    "half-written": ("x = 1\nclass Mine(", "SyntaxError", "line 2"),
    "raises": ("import math\n\nmath.sqrt(-1)\n", "ValueError: math domain error", "line 3"),
    "leaves": ("import sys\nsys.exit(0)\n", "SystemExit: 0", "line 2"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_broken_file_of_a_user_is_told_with_its_line(case: str, tmp_path: Path) -> None:
    text, what, line = BAD_FILES[case]
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BadInput, match="cannot be imported") as refusal:
        shelf.find("trainer", str(file), Trainer)  # type: ignore[type-abstract]
    assert what in str(refusal.value) and f"mine.py, {line}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


# --- broken files on a shelf ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("kind, package", [("trainer", trainers), ("attack", attacks)], ids=["trainer", "attack"])
def test_a_broken_file_on_a_shelf_breaks_itself_alone(
    kind: str, package: Any, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, what, line = BAD_FILES[case]
    good = shelf.names(kind)
    put_on(monkeypatch, tmp_path / "more", package, half=text)
    assert shelf.names(kind) == sorted([*good, "half"])
    assert [shelf.find(kind, name, CONTRACTS[kind]).source.name for name in good] == good
    with pytest.raises(BadInput, match=f"the {kind} 'half' on the shelf cannot be imported: {what}") as refusal:
        shelf.find(kind, "half", CONTRACTS[kind])
    assert f"half.py, {line}" in str(refusal.value)
    assert titles.method("half") == titles.attack("half") == "half"
    shown = CliRunner().invoke(app, ["list"])
    assert shown.exit_code == 0 and f"BROKEN: {refusal.value}\n" in shown.output
    assert f"{kind}s: {', '.join(good)}" in shown.output


@pytest.mark.slow
def test_commands_go_on_beside_broken_files(tmp_path: Path) -> None:
    """In copies of the shelves, as processes of their own: nothing imports all parts before anything is asked for."""
    for name in ("robustbench_dec", "architectures"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("trainers", "attacks"):
        shutil.copytree(ROOT / name, tmp_path / name)
        (tmp_path / name / "half.py").write_text(BAD_FILES["half-written"][0])
    help_, listed = (
        subprocess.run(
            [sys.executable, "-m", "robustbench_dec", word], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        for word in ("--help", "list")
    )
    assert help_.returncode == listed.returncode == 0, help_.stderr + listed.stderr
    assert listed.stdout.count("BROKEN: the ") == 2 and "trainers: dec_fedtrack, " in listed.stdout


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_of(kind: str) -> list[tuple[str, str, Any]]:
    """(part, setting, its type) for every part of a kind."""
    found = []
    for name in shelf.names(kind):
        cls = shelf.find(kind, name, CONTRACTS[kind])
        hints = get_type_hints(cls, include_extras=True)
        found += [(name, setting, hints[setting]) for setting in parts.settable(cls)]
    return found


def needed_by(cls: type[parts.Part]) -> dict[str, Any]:
    return dict.fromkeys(parts.needed(cls), 0.1)


@pytest.mark.parametrize("kind", CONTRACTS)
def test_true_is_no_number_nowhere(kind: str) -> None:
    numbers = [(part, name) for part, name, hint in settings_of(kind) if {int, float} & {hint, *get_args(hint)}]
    assert len(numbers) > 4
    for part, name in numbers:
        cls = shelf.find(kind, part, CONTRACTS[kind])
        for build in (cls.make, lambda settings, cls=cls: cls(**settings)):
            with pytest.raises(BadInput, match=f"{cls.__name__}'s setting '{name}' cannot be True: true and false are"):
                build(needed_by(cls) | {name: True})


@pytest.mark.parametrize("name", shelf.names("trainer"))
def test_no_trainer_takes_a_number_below_zero_by_name_or_by_hand(name: str) -> None:
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    for setting, value in shelf.make(cls, needed_by(cls)).settings().items():
        if isinstance(value, int | float):
            for build in (cls.make, lambda settings: cls(**settings)):
                with pytest.raises(BadInput, match=rf"{setting}\b.* must be .*, not -1"):
                    build(needed_by(cls) | {setting: -1})


def test_every_missing_setting_is_told_by_name() -> None:
    cls = shelf.find("trainer", "dec_fedtrack", Trainer)  # type: ignore[type-abstract]
    with pytest.raises(BadInput, match=r"^DecFedTrack needs eta_c and eta_d; its settings are: eta_c, eta_d, eta_s"):
        shelf.make(cls, {"K": 3})


def test_a_part_built_by_hand_has_the_types_that_it_declares() -> None:
    cls: Any = shelf.find("trainer", "fed_norm_sgda", Trainer)
    by_hand, by_name = cls(eta_x=1, eta_y=1, K=[1, 2]), cls.make({"eta_x": "1", "eta_y": "2/2", "K": [1, 2]})
    assert by_hand == by_name
    assert by_hand.settings()["eta_x"] == 1.0 and type(by_hand.settings()["eta_x"]) is float
    assert by_hand.settings()["K"] == (1, 2)


def test_a_part_that_is_not_finished_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text_of("trainer").replace("def step(", "def stop("))
    cls = shelf.find("trainer", str(tmp_path / "mine.py"), Trainer)  # type: ignore[type-abstract]
    with pytest.raises(BadInput, match=r"^Mine has no step, without which it cannot be used$"):
        shelf.make(cls, {})


def test_what_an_own_check_of_settings_raises_is_told_with_its_line(tmp_path: Path) -> None:
    own = "    def __post_init__(self):\n        assert self.batch < 3, 'too many'\n\n    def init("
    (tmp_path / "mine.py").write_text(text_of("trainer").replace("    def init(", own))
    cls = shelf.find("trainer", str(tmp_path / "mine.py"), Trainer)  # type: ignore[type-abstract]
    with pytest.raises(BadInput, match=r"^Mine cannot be built: AssertionError: too many \(mine.py, line 30\)$"):
        shelf.make(cls, {"batch": 8})


# --- a shelf is a folder ----------------------------------------------------------------------------------------------

BIB = """@misc{nobody2026new,
  title = {A New {Part}},
  author = {Nobody, Ann and M{\\"u}ller, Bo},
  year = {2026},
}
"""


@pytest.mark.slow
def test_a_file_dropped_on_a_shelf_is_all_it_takes(tmp_path: Path) -> None:
    """In copies of the shelves, as a process of its own: promises, titles, a table and BibTeX of two new files."""
    for name in ("robustbench_dec", "architectures"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name, text in (("trainers", text_of("trainer")), ("attacks", text_of("attack"))):
        shutil.copytree(ROOT / name, tmp_path / name)
        (tmp_path / name / "brand_new.py").write_text(text.replace("steps: int", "title = 'New-FGM'\n    steps: int"))
        (tmp_path / name / "brand_new.bib").write_text(BIB)
    (tmp_path / "tries.py").write_text(
        """
from robustbench_dec import shelf, titles
from robustbench_dec.attack import Attack
from robustbench_dec.leaderboard import audit, references
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.rendering import attacks_table as table
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.theory import check, check_attack
from robustbench_dec.trainer import Trainer

trainer = shelf.make(shelf.find("trainer", "brand_new", Trainer), {})
attack = shelf.make(shelf.find("attack", "brand_new", Attack), {"eps": 0.25})
assert {v.outcome for v in check.verdicts(trainer)} == {"kept"}
assert {v.outcome for v in check_attack.verdicts(attack)} == {"kept"}
assert titles.method("brand_new") == "Mine" and titles.attack("brand_new") == "New-FGM"
assert titles.methods()[:3] == ["k_gt", "dec_fedtrack", "brand_new"]
assert titles.attacks()[:3] == ["clean", "fgsm", "brand_new"]
assert audit.Point("m", "brand_new", 0.1, 0.5).iterated
for kind in ("trainer", "attack"):
    (paper,) = references.of(kind, "brand_new")
    assert (paper.key, paper.authors, paper.title) == ("nobody2026new", "Ann Nobody, Bo M\u00fcller", "A New Part")
block = Block("MNIST", "mnist", ("brand_new",), (("brand_new", 0.1),))
entries = {block.key("brand_new", column): Mean(0.5, 0.1, 2) for column in block.all_columns}
shown = table._markdown([block], entries, "", [], frozenset(), frozenset())
assert "| Mine |" in shown and "New-FGM" in shown, shown
print("all follows")
"""
    )
    there = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "tries.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, env=there
    )
    assert done.stdout == "all follows\n", done.stderr


# --- check takes an attack too, and examples work anywhere ------------------------------------------------------------


def checked(*words: str) -> Any:
    return CliRunner().invoke(app, ["check", *words])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "fgsm")) for name in shelf.names("attack")]
)
def test_attacks_of_the_shelf_keep_the_promises_that_check_asks_for(name: str) -> None:
    quick = {
        "uap": ["--set", "steps=40", "--set", "search=0", "--set", "sga=0"],
        "uap_annealed": [word for name in ("steps=20", "search=5", "starts=1", "kept=1") for word in ("--set", name)],
        "strong": ["--set", "steps=5", "--set", "queries=20"],
    }
    result = checked(name, *quick.get(name, []))
    assert result.exit_code == 0, result.output
    assert [line[:6] for line in result.output.splitlines()] == ["kept  "] * len(check_attack.PROMISES)


GRADIENTS = "        a, m = images.clone(), torch.zeros_like(images)\n"
BAD_ATTACKS = {
    "it lowers the accuracy": "        return images\n",
    "it stays in its ball": "        return images + 2 * self.eps\n",
    "weights, gradients, flags": "        next(model.parameters()).data.mul_(0)\n",
    "same seed, same bits": "        return (images + self.eps * (hash(object()) % 97) / 97).clamp(0, 1)\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("promise", BAD_ATTACKS)
def test_check_sees_every_broken_promise_of_an_attack(promise: str, tmp_path: Path) -> None:
    text = text_of("attack")
    assert GRADIENTS in text
    file = tmp_path / "mine.py"
    file.write_text(text.replace(GRADIENTS, BAD_ATTACKS[promise] + GRADIENTS))
    result = checked(f"{file}:Momentum")
    assert result.exit_code == 1, result.output
    assert any(line.startswith(f"BROKEN  {promise}") for line in result.output.splitlines()), result.output


def test_check_names_what_there_is() -> None:
    error = checked("adam").exception
    assert isinstance(error, BadInput) and "no trainer or attack 'adam'; there are trainers: dec_fedtrack" in str(error)


@pytest.mark.slow
def test_the_examples_are_short_and_work_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, name in (("trainer", "mine.py:Mine"), ("attack", "momentum.py:Momentum")):
        assert len(text_of(kind).splitlines()) <= 40
        Path(name.partition(":")[0]).write_text(text_of(kind))
        result = checked(name)
        assert result.exit_code == 0 and "BROKEN" not in result.output and "lacks" not in result.output, result.output


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [["-m"], ["-m", "torch.distributed.run", "--nproc-per-node", "1", "-m"]])
def test_a_users_own_attacks_and_trainers_are_not_taken_for_ours(launcher: list[str], tmp_path: Path) -> None:
    (tmp_path / "attacks.py").write_text("raise RuntimeError('read')")
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "__init__.py").write_text("raise RuntimeError('read')")
    command = [sys.executable, *launcher, "robustbench_dec", "list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attacks: fgsm, pgd" in done.stdout and "dec_fedtrack" in done.stdout

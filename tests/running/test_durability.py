"""Nothing lost, nothing done twice: damage, kills, several processes in one folder, full disks, read-only folders."""

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from attacks.fgsm import FGSM
from robustbench_dec import files, page
from robustbench_dec.attacking.evaluate import Part
from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.problems.universal import Universal
from robustbench_dec.rendering import figures
from robustbench_dec.running import pool, suite
from robustbench_dec.running import train as training
from robustbench_dec.running.attack_journal import Kept
from robustbench_dec.specs import table as spec
from robustbench_dec.store import locks
from robustbench_dec.store.results import Results
from tests.support import ROOT, by_path, processes
from tests.support.tiny import Made

pytestmark = pytest.mark.slow  # kills, workers and retrainings


def _by_path(path: Path) -> Any:
    """A script as a module, under a name that its child processes find too."""
    sys.path.insert(0, str(path.parent))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


faults = _by_path(ROOT / "benchmarks" / "faults.py")
faults.context = processes.context


def tiny(made: Made, method: int = 1) -> spec.RunSpec:
    """A run of the tiny table, shortened."""
    return replace([run for _, run in made.specification.runs()][method], rounds=4)


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftovers(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*") if path.name.startswith((".", "resume")) and path.is_file()]


# Damage


def flipped(data: bytes, place: float) -> bytes:
    index = int(place * (len(data) - 1))
    return data[:index] + bytes([data[index] ^ 1 << index % 8]) + data[index + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "last byte lost": lambda data: data[:-1],
    **{f"bit flipped at {place:.0%}": partial(flipped, place=place) for place in (0, 0.03, 0.4, 0.7, 1)},
}
RUN_FILES = ["run.json", "curve.csv", "checkpoint.safetensors", "perturbation.safetensors"]


def test_every_damaged_file_of_a_run_is_named_and_trained_to_the_same_content(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    results = made.results.parent / "other"
    folder = by_path.train(tiny(made), results)
    before = faults.contents(results)
    assert sorted(path.name for path in folder.iterdir()) == sorted(RUN_FILES)
    for name in RUN_FILES:
        whole = (folder / name).read_bytes()
        for damage, spoil in DAMAGES.items():
            (folder / name).write_bytes(spoil(whole))
            by_path.train(tiny(made), results)
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and f"{folder / name} has n" in said and "trained again" in said, damage
            assert faults.contents(results) == before, (name, damage)
    (folder / "checkpoint.safetensors").unlink()
    by_path.train(tiny(made), results)
    assert not (folder / "checkpoint.safetensors").exists()  # a fresh clone is not damaged


def test_every_damaged_file_of_a_cell_is_named_and_computed_to_the_same_content(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    before = faults.contents(made.results)
    for path in sorted((made.folders[1] / "attacks").glob("uap*")):
        whole = path.read_bytes()
        for damage, spoil in DAMAGES.items():
            path.write_bytes(spoil(whole))
            by_path.make(made.specification, made.results)
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and f"{path} has n" in said and "computed again" in said, damage
            assert faults.contents(made.results) == before, (path.name, damage)


def test_what_only_renders_refuses_damage_by_name(made: Made, tmp_path: Path) -> None:
    by_path.rebuild(made.results)
    report = (made.specification, "tiny", made.results, tmp_path)
    cell, y = sorted((made.folders[1] / "attacks").glob("uap*"))
    readers: dict[Path, list[Callable[[], Any]]] = {
        made.folders[1] / "run.json": [
            lambda: by_path.report(*report),
            lambda: leaderboard.gather(Results(made.results)),
            lambda: page.render(Results(made.results)),
            lambda: figures.gather(suite.listed(made.specification), Results(made.results)),
        ],
        made.folders[1] / "curve.csv": [lambda: by_path.report(*report), lambda: page.render(Results(made.results))],
        made.folders[1] / "perturbation.safetensors": [
            lambda: by_path.report(*report),
            lambda: page.render(Results(made.results)),
        ],
        cell: [lambda: leaderboard.gather(Results(made.results)), lambda: page.render(Results(made.results))],
        y: [lambda: by_path.report(*report), lambda: page.render(Results(made.results))],
    }
    for path, reading in readers.items():
        whole = path.read_bytes()
        for spoil in (DAMAGES["truncated"], DAMAGES["bit flipped at 70%"]):
            path.write_bytes(spoil(whole))
            for read in reading:
                with pytest.raises(files.Damaged, match=f"{path.name} has n.*; delete it, and the command"):
                    read()
        path.write_bytes(whole)


def stopped(made: Made, results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with both journals that was stopped just before it was finished."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training, "finish", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        by_path.train(tiny(made), results, save_rounds=1)
    return results / "runs" / tiny(made).id


def test_a_damaged_journal_costs_the_rounds_since_the_former_one(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = by_path.train(tiny(made), tmp_path / "whole")
    trainer = type(tiny(made).build_trainer())
    step, rounds = trainer.step, []

    def counted(self: Any, state: Any, oracle: Any, net: Any) -> Any:
        rounds.append(net.ledger.rounds)
        return step(self, state, oracle, net)

    monkeypatch.setattr(trainer, "step", counted)
    stopped(made, tmp_path / "first", monkeypatch)
    capsys.readouterr()
    for number, spoil in enumerate(DAMAGES.values()):
        for both in (False, True):
            results = tmp_path / f"{number}-{both}"
            shutil.copytree(tmp_path / "first", results)
            folder = results / "runs" / tiny(made).id
            spoilt = ["resume.safetensors", "resume-former.safetensors"][: 1 + both]
            for name in spoilt:
                (folder / name).write_bytes(spoil((folder / name).read_bytes()))
            rounds.clear()
            by_path.train(tiny(made), results)
            assert rounds == ([0, 1, 2, 3] if both else [3])
            said = capsys.readouterr().err
            assert said.count("\n") == len(spoilt) and all(str(folder / name) in said for name in spoilt)
            assert not leftovers(results)
            for name in RUN_FILES[1:]:
                assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_damaged_batches_are_named_and_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".cell-batches.json"
    bits = torch.tensor([True, False])
    Kept(path, "key")[0] = Part(bits, bits, 1, 1, 1, 0, ())
    whole = path.read_bytes()
    assert len(Kept(path, "key")) == 1 and len(Kept(path, "another")) == 0
    for spoil in DAMAGES.values():
        path.write_bytes(spoil(whole))
        assert len(Kept(path, "key")) == 0
        assert str(path) in capsys.readouterr().err


def test_threads_used_tells_all_thread_counts(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        stopped(made, tmp_path, monkeypatch)
        torch.set_num_threads(2)
        record = files.read_sealed(by_path.train(tiny(made), tmp_path) / "run.json")
    finally:
        torch.set_num_threads(threads)
    assert (record["threads"], record["threads_used"]) == (2, [1, 2])


def test_work_that_is_left_over_gets_the_threads_that_it_would_have_had(made: Made) -> None:
    """Two workers share the cores, and so does the only one that a second start needs for the last run."""
    shutil.rmtree(made.folders[1])
    before = torch.get_num_threads()
    by_path.make(made.specification, made.results, jobs=2)
    assert torch.get_num_threads() == before
    assert files.read_sealed(made.folders[1] / "run.json")["threads_used"] == [max(1, pool.cores() // 2)]


def test_a_run_that_another_machine_trains_to_other_bits_is_attacked_anew(made: Made) -> None:
    """A fresh clone has cells of a checkpoint that it has not, and one cell is missing."""
    folder = made.folders[1]
    record, cells = folder / "run.json", sorted((folder / "attacks").glob("*.json"))
    expected = faults.contents(folder)
    for path in (record, *cells):
        content = files.read_sealed(path)
        files.write_sealed(path, content | {"checkpoint_sha256": "of another machine"})
    (folder / "checkpoint.safetensors").unlink()
    cells[0].unlink()
    by_path.make(made.specification, made.results)
    assert faults.contents(folder) == expected


def test_save_rounds_saves_at_these_rounds_alone(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr(training.Journal, "save", lambda self, at, curve, effort: saved.append(at.costs["rounds"]))
    by_path.train(replace(tiny(made), rounds=7), tmp_path, save_rounds=3, save_seconds=1e9)
    assert saved == [3, 6]


# Temporary files and claims


def test_of_files_that_are_written_together_none_is_replaced_where_one_cannot_be(tmp_path: Path) -> None:
    first, second = tmp_path / "leaderboard.csv", tmp_path / "README.md" / "index.html"
    first.write_bytes(b"before")
    second.parent.write_bytes(b"a file where a folder should be")
    with pytest.raises(BadInput, match=r"cannot write .*index.html \((File exists|Not a directory)\)"):
        files.write_all({first: b"after", second: b"page"})
    assert first.read_bytes() == b"before" and sorted(tmp_path.iterdir()) == [second.parent, first]


def test_a_sweep_removes_the_temporaries_of_dead_processes_only(tmp_path: Path) -> None:
    dead, others = dead_process(), tmp_path / "runs" / "one"
    others.mkdir(parents=True)
    names = {
        f".run.tmp-{files.HOST}-{dead}-0123abcd.json": False,
        f".curve.tmp-{files.HOST}-{dead}-0123abcd.csv": False,
        f".run.tmp-{files.HOST}-{os.getpid()}-0123abcd.json": True,
        f".run.tmp-elsewhere-{dead}-0123abcd.json": True,
        ".fgsm-0.1-batches.json": True,
        "run.json": True,
    }
    for name in names:
        (others / name).write_text("")
    files.sweep(tmp_path)
    assert {name: (others / name).exists() for name in names} == names


def test_a_held_claim_is_busy_and_none_stays_behind(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    with locks.claim(path):
        with pytest.raises(locks.Busy, match=f"being made by process {os.getpid()} on"), locks.claim(path, wait=False):
            pass
        locks.sweep(tmp_path)
        assert (path.parent / ".run.json.lock").exists()
    assert list(path.parent.iterdir()) == []


def test_who_waits_for_a_claim_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, looks = tmp_path / "run.json", []
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    holder = contextlib.ExitStack()
    holder.enter_context(locks.claim(path))

    def released_at_the_third_look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            holder.close()

    monkeypatch.setattr(locks.time, "sleep", released_at_the_third_look)
    with locks.claim(path):
        pass
    assert capsys.readouterr().err.count(f"waiting for {path}, which is being made by process {os.getpid()}") == 1


def test_locks_of_dead_processes_block_nobody_and_are_swept(tmp_path: Path) -> None:
    lock = tmp_path / ".run.json.lock"
    lock.write_text(f'{{"host": "{files.HOST}", "pid": {dead_process()}, "since": "yesterday"}}')
    with locks.claim(tmp_path / "run.json", wait=False):
        pass
    assert not lock.exists()
    lock.write_text("")
    locks.sweep(tmp_path)
    assert not lock.exists()


def test_what_others_hold_is_left_to_them_and_the_rest_is_done(made: Made, digits: Universal) -> None:
    folder = made.folders[1]
    work = suite.listed(made.specification)[1]
    attacks = [(request.name, request.attack) for request in work.cells]
    paths = [folder / "attacks" / f"{request.key.stem}.json" for request in work.cells]
    for path in paths:
        path.unlink()
    with locks.claim(paths[1]), pytest.raises(locks.Busy):
        by_path.attack(folder, attacks, problem=digits, n_examples=40, wait=False)
    assert [path.exists() for path in paths] == [True, False, True]
    with locks.claim(made.results / "runs" / tiny(made).id / "run.json"), pytest.raises(locks.Busy):
        by_path.train(tiny(made), made.results, wait=False)


def test_journals_and_batches_of_finished_work_are_tidied_away(made: Made) -> None:
    folder = made.folders[0]
    cell = next((folder / "attacks").glob("fgsm*.json"))
    (folder / "resume.safetensors").write_text("")
    cell.with_name(f".{cell.stem}-batches.json").write_text("")
    by_path.make(made.specification, made.results)
    assert not leftovers(made.results)


def test_an_attack_tidies_up_after_killed_ones(made: Made, digits: Universal) -> None:
    folder = made.folders[0]
    cell = next((folder / "attacks").glob("fgsm*.json"))
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [
        f".{cell.stem}-batches.json",
        f".{cell.name}.lock",
        f".{cell.stem}.tmp-{files.HOST}-{dead.pid}-00000000.json",
    ]
    for name in left:
        cell.with_name(name).write_text("")
    by_path.attack(folder, [("fgsm", FGSM(0.12))], problem=digits, n_examples=40)
    assert not leftovers(made.results)


def test_a_journal_of_another_run_is_not_gone_on_from(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(tiny(made), seed=7)
    folder = tmp_path / "runs" / other.id
    folder.mkdir(parents=True)
    shutil.copy(stopped(made, tmp_path / "first", monkeypatch) / "resume.safetensors", folder)
    by_path.train(other, tmp_path)
    assert "is of another run" in capsys.readouterr().err
    clean = by_path.train(other, tmp_path / "clean")
    assert (folder / "checkpoint.safetensors").read_bytes() == (clean / "checkpoint.safetensors").read_bytes()


# Whole processes


def test_a_sweep_that_is_killed_five_times_ends_with_the_files_of_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed, home = faults.prepare(tmp_path / "undisturbed"), faults.prepare(tmp_path / "killed")
    faults.finish(undisturbed)
    assert not leftovers(undisturbed)
    randomness = random.Random(5)
    kills = [faults.kill(home, 0.4, randomness) for _ in range(5)]
    assert sum(kill["killed"] for kill in kills) >= 3, kills  # some machines may be done before
    faults.finish(home)
    assert faults.differences(home, undisturbed) == [], kills
    assert not leftovers(home)


def test_eight_processes_in_one_folder_do_everything_once(tmp_path: Path) -> None:
    log, radii = tmp_path / "log", [0.05, 0.1, 0.15, 0.2]
    attack = f'[[blocks.attacks]]\nname = "fgsm"\neps = {radii}\n'
    home = faults.prepare(tmp_path / "home", faults.TABLE.split("[[blocks.attacks]]")[0] + attack)
    words = ("table", home / "tables" / "faults.toml", "--results", home / "results", "--jobs", 1)
    eight = [processes.logging_command(log, *words) for _ in range(8)]
    path, reads, most = home / "results" / "leaderboard.csv", 0, 0
    inodes: dict[str, set[int]] = {}
    while any(process.is_alive() for process in eight):
        with contextlib.suppress(FileNotFoundError):
            for written in (home / "results").glob("runs/*/run.json"):
                inodes.setdefault(written.parent.name, set()).add(written.stat().st_ino)
        if path.is_file():
            rows = leaderboard.read(path)
            assert list(rows.columns) == list(leaderboard.COLUMNS) and len(rows) >= most
            reads, most = reads + 1, len(rows)
        time.sleep(0.02)  # the readers' share of the cores is small
    assert [process.exitcode for process in eight] == [0] * 8
    computed = log.read_text().split()
    assert sorted(computed) == sorted(str(eps) for eps in radii * 2)  # on two runs
    assert [len(seen) for seen in inodes.values()] == [1, 1]  # run.json was written once
    assert reads and len(leaderboard.read(path)) == 2 * len(radii)
    assert not leftovers(home)


FAILING = """
from robustbench_dec.attack import Attack

class Mine(Attack):
    def perturb(self, model, images, labels):
        raise RuntimeError("boom")
"""


def test_a_failure_of_one_worker_ends_all(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(FAILING)
    attack = f'[[blocks.attacks]]\nname = "{mine}:Mine"\neps = [0.1]\n'
    home = faults.prepare(tmp_path / "home", faults.TABLE.split("[[blocks.attacks]]")[0] + attack)
    wanted = spec.read(home / "tables" / "faults.toml")
    with pytest.raises(BadInput, match="boom"):
        by_path.make(wanted, home / "results", jobs=2)
    assert not list((home / "results").rglob("attacks/[!.]*.json"))


def beside_progress(err: str) -> list[str]:
    """What a command says off a terminal that is not about its progress."""
    return [line for line in err.splitlines() if " so far" not in line]


LONGER = faults.TABLE.replace("rounds = 40", "rounds = 100")
"""Long enough to be stopped in the middle."""


def first_lock(home: Path, begun: processes.Command) -> Path:
    """The lock of the first run that a worker trains; the other worker trains too or is about to."""
    while not begun.ended():
        for lock in (home / "results").glob("runs/*/.run.json.lock"):
            if lock.read_text():
                return lock
        time.sleep(0.01)
    raise AssertionError(f"nobody trains: {begun.result(0)}")


def table_with_two_workers(home: Path) -> processes.Command:
    words = (home / "tables" / "faults.toml", "--results", home / "results", "--jobs", 2)
    return processes.Command(home.parent, "table", *words)


def test_a_killed_worker_is_told_in_one_sentence_and_the_same_command_goes_on(tmp_path: Path) -> None:
    home = faults.prepare(tmp_path / "home", LONGER)
    begun = table_with_two_workers(home)
    os.kill(json.loads(first_lock(home, begun).read_text())["pid"], signal.SIGKILL)
    code, out, err = begun.result(300)
    assert (code, out) == (2, ""), err
    (sentence,) = beside_progress(err)
    assert sentence.startswith("robustbench-dec: one of the workers was killed"), err
    code, _, err = table_with_two_workers(home).result(600)
    assert (code, beside_progress(err)) == (0, [])
    assert not leftovers(home)


def test_ctrl_c_ends_all_workers_and_the_same_command_goes_on(tmp_path: Path) -> None:
    undisturbed, home = (faults.prepare(tmp_path / name, LONGER) for name in ("undisturbed", "stopped"))
    begun = table_with_two_workers(home)
    first_lock(home, begun)
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: to the command and its workers alike
    code, out, err = begun.result(300)
    assert code == 130, err
    assert out == ""
    assert beside_progress(err) == ["robustbench-dec: stopped; the same command goes on where this one was"]
    assert not list((home / "results").glob("runs/*/run.json"))  # it was in the middle of its work
    given_up = time.monotonic() + 300
    while is_there(begun.pid) and time.monotonic() < given_up:
        time.sleep(0.02)  # what multiprocessing starts beside the workers ends by itself, after them
    assert not is_there(begun.pid)
    code, _, err = table_with_two_workers(home).result(600)
    assert (code, beside_progress(err)) == (0, [])
    faults.finish(undisturbed)
    assert faults.differences(home, undisturbed) == []
    assert not leftovers(home)


def is_there(group: int) -> bool:
    """Whether a process group has any process left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# Disks


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of our own can be mounted here ({error})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def refusal(words: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a command ends."""
    monkeypatch.setattr(sys, "argv", ["robustbench-dec", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    *before, said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2, said
    assert all(" so far" in line for line in before), before  # progress, on a machine that is slow enough to tell it
    return said


@pytest.mark.parametrize("kilobytes", [4, 24, 64, 120])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(
    kilobytes: int, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = made.file.read_text().replace("rounds = 24", "rounds = 6")
    made.file.write_text(table)
    with mounted(tmp_path / "disk", f"size={kilobytes}k") as disk:
        words = ["table", made.file, "--results", disk / "results", "--jobs", 1, "--save-rounds", 1]
        said = refusal(words, monkeypatch, capsys)
        assert "cannot write" in said and "No space left on device" in said and "free space" in said
        hidden = [name for name in leftovers(disk) if not name.startswith("resume")]
        assert [name for name in hidden if not name.endswith("-batches.json")] == []
        for path in disk.rglob("*.json"):
            files.read_sealed(path)  # whole
        for path in disk.rglob("resume*.safetensors"):
            files.unseal(path)


def test_a_read_only_folder_is_one_sentence(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        shutil.copytree(made.results, disk / "results")
        gone = next((disk / "results").rglob("fgsm-0.05-*.json"))
        gone.unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for words in (["table", made.file, "--jobs", 1], ["render", made.file], ["train", "--rounds", 1]):
            said = refusal([*words, "--results", disk / "results"], monkeypatch, capsys)
            assert "cannot write" in said and "Read-only file system" in said
        whole = [path for path in disk.rglob("*") if path.is_file()]
        assert gone not in whole and not leftovers(disk)

"""Runs and tables on disk: whole or absent, never computed twice, never mistaken for one another."""

import base64
import csv
import json
import pickle
import shutil
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from attacks.fgsm import FGSM
from attacks.pgd import PGD
from attacks.uap import UAP
from robustbench_dec import data, files, shelf
from robustbench_dec.attack import Attack, as_floats
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput, Diverged
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.networks import topology
from robustbench_dec.networks.crew import Alone
from robustbench_dec.problems.universal import Universal
from robustbench_dec.rendering import curves as plots
from robustbench_dec.rendering import pictures
from robustbench_dec.running import cells, pool
from robustbench_dec.running import train as training
from robustbench_dec.running.curve import FIXED
from robustbench_dec.running.journal import Effort, Journal
from robustbench_dec.running.loop import At
from robustbench_dec.specs import table as spec
from robustbench_dec.store.bits import pack
from robustbench_dec.store.checkpoint import load_checkpoint
from robustbench_dec.store.results import CellKey, Results, Run
from robustbench_dec.trainer import Trainer
from tests.support import by_path
from tests.support.tiny import Made

NETWORK = spec.NetworkSpec(nodes=4)  # a ring of 3 would mix to the exact mean
STEPS: dict[str, dict[str, Any]] = {"dec_fedtrack": {"eta_c": 0.1, "eta_d": 1.0}, "k_gt": {"eta_c": 0.1}}
"""Step sizes by trainer; one without an entry gets 0.05 for every setting that has no default."""


def tiny(trainer: str = "dec_fedtrack", **changes: Any) -> spec.RunSpec:
    """Six rounds of two local steps on digits, four nodes, a curve of four points."""
    known = {field.name: field.default is MISSING for field in fields(class_of(trainer)) if field.init}
    settings = STEPS.get(trainer) or {name: 0.05 for name, required in known.items() if required}
    settings = settings | {name: 8 for name in known if name.endswith("batch")} | ({"K": 2} if "K" in known else {})
    settings |= changes.pop("trainer_settings", {})
    problem = {"dataset": "digits", "eps": 0.1} | changes.pop("problem", {})
    curve = [spec.AttackSpec(name="fgsm", eps=[0.1])]
    run = spec.RunSpec(problem, NETWORK, trainer, settings, 6, 0, curve, curve_points=3, curve_examples=20)
    return replace(run, **changes)


def train(run: spec.RunSpec, results: Path, **settings: Any) -> Path:
    return by_path.train(run, results, progress=False, **settings)


def class_of(name: str) -> type[Trainer]:
    return shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]


def must_not(*arguments: Any, **settings: Any) -> Any:
    raise AssertionError("this was done before and must not be done again")


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    return {
        str(p.relative_to(folder)): (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


# Interrupted runs


@pytest.mark.slow
@pytest.mark.parametrize("name", shelf.names("trainer"))
def test_a_killed_run_ends_with_the_bits_of_an_undisturbed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny(name, problem={"classes": ["0", "1"]})
    undisturbed = train(run, tmp_path / "undisturbed")
    cls = class_of(name)
    step, steps = cls.step, []

    def killed(self: Trainer, state: Any, oracle: Any, net: Any) -> Any:
        steps.append(net.ledger.rounds)
        if steps.count(4) == 1 and steps[-1] == 4:
            raise KeyboardInterrupt
        return step(self, state, oracle, net)

    monkeypatch.setattr(cls, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "killed", save_seconds=0)
    folder = tmp_path / "killed" / "runs" / run.id
    assert sorted(path.name for path in folder.iterdir()) == ["resume-former.safetensors", "resume.safetensors"]
    torch.manual_seed(1234)  # whatever happened in between
    assert train(run, tmp_path / "killed", save_seconds=0) == folder
    assert steps == [0, 1, 2, 3, 4, 4, 5]  # no round was trained twice
    for file in ("checkpoint.safetensors", "curve.csv"):
        assert (folder / file).read_bytes() == (undisturbed / file).read_bytes(), file
    ours, theirs = (files.read_json(where / "run.json") for where in (folder, undisturbed))
    for key in ("ledger", "classifier", "checkpoint_sha256", "settings", "final"):
        assert ours[key] == theirs[key], key
    assert not list(folder.glob("resume*"))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 5, 0.5, 0.99], ids=["empty", "few-bytes", "half", "almost-all"])
def test_a_truncated_resume_file_is_ignored(keep: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny(rounds=3)
    expected = (train(run, tmp_path / "undisturbed") / "checkpoint.safetensors").read_bytes()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training, "finish", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        train(run, tmp_path, save_seconds=0)
    resume = tmp_path / "runs" / run.id / "resume.safetensors"
    content = resume.read_bytes()
    resume.write_bytes(content[: int(keep if keep >= 1 else keep * len(content))])
    assert (train(run, tmp_path) / "checkpoint.safetensors").read_bytes() == expected


def test_a_finished_run_is_not_trained_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in shelf.names("trainer"):
        monkeypatch.setattr(class_of(name), "init", must_not)
    before = stamps(made.results)
    assert [train(run, made.results) for _, run in made.specification.runs()] == made.folders
    assert stamps(made.results) == before


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_checkpoint_is_detected_and_trained_again(damage: str, tmp_path: Path) -> None:
    run = tiny(rounds=2)
    folder = train(run, tmp_path)
    checkpoint = folder / "checkpoint.safetensors"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[:-100] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BadInput, match=r"checkpoint\.safetensors has not the sha256 that run\.json tells"):
        by_path.attack(folder, [("fgsm", FGSM(0.1))], problem=Universal(), n_examples=5)
    train(run, tmp_path)
    assert checkpoint.read_bytes() == whole


@pytest.mark.slow
def test_a_run_whose_folder_was_never_finished_is_not_taken_for_finished(tmp_path: Path) -> None:
    run = tiny(rounds=2)
    folder = train(run, tmp_path)
    (folder / "run.json").unlink()
    train(run, tmp_path)
    assert (folder / "run.json").is_file()


# Names


def test_a_changed_setting_gets_another_id(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.csv", topology.build("ring", 4), delimiter=",")
    np.savetxt(tmp_path / "b.csv", topology.build("ring", 4, "lazy", 0.5), delimiter=",")
    run = tiny()
    variants = [
        run,
        replace(run, rounds=7),
        replace(run, seed=1),
        replace(run, curve_points=2),
        replace(run, curve_examples=30),
        replace(run, curve=[spec.AttackSpec(name="fgsm", eps=[0.2])]),
        tiny("k_gt"),
        *(tiny(trainer_settings={name: value}) for name, value in [("eta_c", 0.2), ("eta_d", 0.5), ("eta_s", 0.5)]),
        *(tiny(trainer_settings={name: value}) for name, value in [("eta_r", 0.5), ("K", 3), ("batch", 16)]),
        tiny(trainer_settings={"correction": "zero"}),
        *(tiny(problem={name: value}) for name, value in [("eps", 0.2), ("clamp", True), ("split", "label")]),
        *(tiny(problem={name: value}) for name, value in [("kernel", 3), ("validation", 0.2), ("mirrored", True)]),
        tiny(problem={"classes": ["1", "2"]}),
        tiny(problem={"classes": ["2", "1"]}),
        *(
            replace(run, network=spec.NetworkSpec.model_validate({"nodes": 4, name: value}))
            for name, value in [("pi", 0.5), ("seed", 1)]
        ),
        replace(run, network=spec.NetworkSpec(nodes=3)),
        replace(run, network=spec.NetworkSpec(nodes=4, graph="complete")),
        replace(run, network=spec.NetworkSpec(nodes=4, weights="metropolis")),
        *(
            replace(run, network=spec.NetworkSpec(nodes=4, graph="file", matrix=tmp_path / f))
            for f in ("a.csv", "b.csv")
        ),
    ]
    assert len({variant.id for variant in variants}) == len(variants)


def test_a_default_that_is_spelt_out_changes_no_id() -> None:
    spelt = tiny(trainer_settings={"eta_s": 1.0, "correction": "lemma"}, problem={"split": "iid", "name": "universal"})
    assert spelt.id == tiny().id
    assert tiny(problem={"eps": "1/10"}).id == tiny().id


def test_an_edited_matrix_file_is_another_network(tmp_path: Path) -> None:
    network = spec.NetworkSpec(nodes=4, graph="file", matrix=tmp_path / "W.csv")
    ids = set()
    for pi in (1 / 3, 0.5):
        np.savetxt(tmp_path / "W.csv", topology.build("ring", 4, "lazy", pi), delimiter=",")
        ids.add(replace(tiny(), network=network).id)
    assert len(ids) == 2


def test_the_radius_of_y_is_nothing_to_a_method_without_y() -> None:
    radii = [0.0, 0.1, 0.2]
    assert len({tiny("k_gt", problem={"eps": eps, "clamp": eps > 0.1}).id for eps in radii}) == 1
    assert len({tiny("dec_fedtrack", problem={"eps": eps}).id for eps in radii}) == 3


# What a finished run tells


@pytest.mark.slow
@pytest.mark.parametrize("name, blocks, split", [("dec_fedtrack", 1, 1), ("k_gt", 0, 0)])
def test_run_json_has_the_costs_of_the_formulas(name: str, blocks: int, split: int, tmp_path: Path) -> None:
    folder = train(tiny(name), tmp_path)
    record = files.read_json(folder / "run.json")
    T, K, b, n, edges, d, q = 6, 2, 8, 4, 8, record["parameters"], 64
    sfo = (T * K + 1) * b
    assert record["ledger"] == {
        "nodes": n,
        "directed_edges": edges,
        "sfo": sfo,
        "sfo_x": sfo,
        "sfo_y": split * sfo,
        "rounds": T,
        "exchanges": T,
        "messages": T * edges,
        "bytes_per_edge": T * 2 * (d + blocks * q) * 4,
        "all_reduces": 1,
        "server_bytes": 2 * (d + blocks * q) * 4,
    }
    curve = rows_of(folder / "curve.csv")
    assert [int(row["round"]) for row in curve] == [0, 2, 4, 6]
    assert [int(row["sfo"]) for row in curve] == [(t * K + 1) * b for t in (0, 2, 4, 6)]
    assert {key: int(curve[-1][key]) for key in ("exchanges", "messages", "bytes_per_edge")} == {
        key: record["ledger"][key] for key in ("exchanges", "messages", "bytes_per_edge")
    }
    assert all(0 <= float(row["fgsm@0.1"]) <= float(row["clean_acc"]) <= 1 for row in curve)
    assert (folder / "perturbation.safetensors").is_file() == (name == "dec_fedtrack")
    clean = record["classifier"]["clean"]
    assert clean["node_min"] <= clean["node_mean"] <= clean["node_max"]
    assert clean["n_examples"] == 360


@pytest.mark.slow
def test_the_model_attacked_is_the_average_of_the_nodes(tmp_path: Path) -> None:
    folder = train(tiny(rounds=2), tmp_path)
    X = safetensors.torch.load_file(folder / "checkpoint.safetensors")["X"]
    assert not X[0].equal(X[1])
    parameters = torch.cat([p.detach().flatten() for p in Run(folder).model().parameters()])
    assert parameters.equal(X.mean(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_divergence_names_the_round_and_the_step_sizes(name: str, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"in round 1 \(loss .*eta_c = 1e\+09.*; smaller step sizes") as caught:
        train(tiny(name, trainer_settings={"eta_c": 1e9, "batch": 64}), tmp_path)
    assert all(f"{size} = " in str(caught.value) for size in STEPS[name])
    assert not list(tmp_path.rglob("run.json"))


def test_a_loss_that_explodes_without_leaving_the_finite_numbers_is_divergence(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"in round \d+ \(loss \d"):
        train(tiny("k_gt", trainer_settings={"eta_c": 30.0}, rounds=30), tmp_path)


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        ({"name": "quadratic"}, {"phi", "grad_phi"}),
        ({"name": "robust_logistic"}, {"phi", "grad_phi", "train_acc", "test_acc"}),
    ],
)
def test_problems_with_a_known_phi_are_runs_too(problem: dict[str, Any], shown: set[str], tmp_path: Path) -> None:
    steps = {"eta_x": 0.05, "eta_y": "0.05/450" if "robust" in problem["name"] else 0.05}
    run = spec.RunSpec(problem, NETWORK, "gt_gda", steps, 5, 0, [], curve_points=5, curve_examples=1)
    folder = train(run, tmp_path)
    curve = pd.read_csv(folder / "curve.csv")
    assert shown <= {*curve.columns}
    assert list(curve["round"]) == [0, 1, 2, 3, 4, 5]
    assert curve["phi"].iloc[-1] < curve["phi"].iloc[0]
    record = files.read_json(folder / "run.json")
    assert record["final"]["phi"] == curve["phi"].iloc[-1]
    assert record["dataset"] == {"quadratic": "quadratic", "robust_logistic": "breast_cancer"}[problem["name"]]
    X = safetensors.torch.load_file(folder / "checkpoint.safetensors")["X"]
    built = run.build_problem()
    assert built.gauge(built.shards(4, 0))(X.mean(0))["phi"] == record["final"]["phi"]


def test_a_users_own_trainer_gets_a_new_id_when_its_file_changes(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    text = Path(shelf.importlib.import_module("trainers.k_gt").__file__ or "").read_text()
    mine.write_text(text)
    run = replace(tiny("k_gt"), trainer=f"{mine}:KGT")
    before = run.id
    assert before != tiny("k_gt").id and "-mine_KGT-s0-" in before
    mine.write_text(text + "\n# another version\n")
    assert run.id == before and replace(run).id != before
    mine.write_text(text)
    assert run.id == before


def test_a_profile_changes_settings_of_attacks_and_blocks() -> None:
    block = {"title": "B", "problem": {}, "rounds": 9, "trainers": {"k_gt": {}}}
    block["attacks"] = [{"name": "fgsm", "eps": [0.1]}, {"name": "uap", "eps": [0.2], "steps": 500, "restarts": 3}]
    profiles = {"quick": {"rounds": 2, "attacks": {"uap": {"steps": 10}}}}
    full = spec.Spec.model_validate({"title": "T", "blocks": [block], "profiles": profiles})
    smoke = full.with_profile("quick")
    assert "Profile 'quick', a smoke test" in smoke.caption and "no result" in smoke.caption and not smoke.paper
    quick = smoke.blocks[0]
    assert quick.rounds == 2 and full.blocks[0].rounds == 9
    assert [attack.settings()["steps"] for attack in quick.attacks[1].build()] == [10]
    assert quick.attacks[1].build()[0].settings()["restarts"] == 3
    assert quick.attacks[0] == full.blocks[0].attacks[0]
    assert full.blocks[0].attacks[1].build()[0].settings()["steps"] == 500


def test_a_run_goes_on_until_every_budget_is_spent(tmp_path: Path) -> None:
    problem = {"name": "quadratic", "m": 10, "noise": 0.1}
    for trainer, settings in {"gt_gda": {}, "dm_hsgd": {"batch": 1}}.items():
        steps = {"eta_x": 0.01, "eta_y": 0.01, **settings}
        run = spec.RunSpec(problem, NETWORK, trainer, steps, None, 0, [], 4, 1, sfo=40, exchanges=20)
        record = files.read_json(train(run, tmp_path) / "run.json")
        spent = record["ledger"]
        assert spent["sfo"] >= 40 and spent["exchanges"] >= 20
        curve = pd.read_csv(tmp_path / "runs" / run.id / "curve.csv")
        before = curve.iloc[-2]
        assert before["sfo"] < 40 or before["exchanges"] < 20  # it did not go on for longer
        for cost, most in (("sfo", 40), ("exchanges", 20)):  # a point within a step's cost of every quarter
            step = curve[cost].iloc[-1] / curve["round"].iloc[-1]
            for k in range(5):
                assert (curve[cost] - most * k / 4).abs().min() <= step
    with pytest.raises(BadInput, match="needs an end"):
        spec.RunSpec(problem, NETWORK, "dm_hsgd", steps, None, 0, [], 4, 1).id  # noqa: B018 (the id is made here)


def test_an_interrupted_run_with_two_budgets_measures_the_same_points(tmp_path: Path) -> None:
    problem = {"name": "quadratic", "m": 10, "noise": 0.1}
    steps = {"eta_x": 0.01, "eta_y": 0.01, "batch": 1}
    run = spec.RunSpec(problem, NETWORK, "dm_hsgd", steps, None, 0, [], 4, 1, sfo=40, exchanges=20)
    whole = train(run, tmp_path / "whole")
    cut = replace(run, sfo=20, exchanges=10)
    trainer, net = cut.build_trainer(), cut.network.connect(0)
    oracle = training.Oracle(cut.build_problem(), net.nodes, 0, net.ledger)
    state, curve = trainer.init(oracle, net), []
    measure = oracle.problem.gauge(oracle.shards)
    growing = {name: count for name, count in net.ledger.row().items() if name not in FIXED}
    curve.append({"round": 0, **growing, "train_loss": oracle.last_loss, **measure(state.X[0])})
    for _ in range(2):
        state = trainer.step(state, oracle, net)
        net.ledger.rounds += 1
    path = tmp_path / "cut" / "runs" / run.id / "resume.safetensors"
    path.parent.mkdir(parents=True)
    journal = Journal(path, run.id, trainer, oracle, net, Alone())
    loss, effort = oracle.last_loss, Effort(seconds=1.0, threads=(1,), processes=(1,))
    at = At(state, net.ledger.row(), loss, 0.9 * loss)
    journal.save(at, curve, effort)
    restored = journal.restore()
    assert restored.at is not None and restored.at[1:] == at[1:]  # all but the state, which the end compares
    assert (restored.curve, restored.effort) == (curve, effort)
    folder = train(run, tmp_path / "cut")
    assert (folder / "curve.csv").read_bytes() == (whole / "curve.csv").read_bytes()
    assert (folder / "checkpoint.safetensors").read_bytes() == (whole / "checkpoint.safetensors").read_bytes()


# Checkpoints


def checkpoint(path: Path, tensors: dict[str, torch.Tensor], card: Any) -> Path:
    metadata = {} if card is None else {"architecture": json.dumps(card)}
    path.write_bytes(safetensors.torch.save(tensors, metadata))
    return path


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    card = Universal().architecture.as_json()
    X = torch.zeros(2, 1498)
    path = tmp_path / "checkpoint.safetensors"
    assert load_checkpoint(checkpoint(path, {"X": X}, card)) is not None
    changes: list[tuple[dict[str, object], str]] = [
        ({"name": "cnn1", "classes": 2}, "1,498; it belongs to another architecture"),
        ({"kernel": 3}, "it belongs to another architecture"),
        ({"name": "resnet"}, "no architecture 'resnet'; there are: cnn1"),
        ({"depth": 3}, "cnn1 has no setting 'depth'; there are: kernel"),
    ]
    for bad, words in changes:
        with pytest.raises(BadInput, match=words):
            load_checkpoint(checkpoint(path, {"X": X}, card | bad))
    for other in ({"name": "cnn1"}, ["cnn1"], None):
        with pytest.raises(BadInput, match="network card"):
            load_checkpoint(checkpoint(path, {"X": X}, other))
    with pytest.raises(BadInput, match="not a whole"):
        load_checkpoint(checkpoint(path, {"weights": X}, card))


def test_a_checkpoint_of_another_run_is_refused(made: Made) -> None:
    k_gt, dec_fedtrack = made.folders
    shutil.copy(k_gt / "checkpoint.safetensors", dec_fedtrack / "checkpoint.safetensors")
    with pytest.raises(BadInput, match="sha256"):
        Run(dec_fedtrack).model()


class Bomb:
    """What a malicious checkpoint could hold: unpickling it fails the test."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a checkpoint was unpickled",)


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match="pickles are not read"):
        load_checkpoint(path)
    torch.save({"X": torch.zeros(1)}, path)
    with pytest.raises(BadInput, match="pickles are not read"):
        load_checkpoint(path)
    with pytest.raises(BadInput, match="no checkpoint"):
        load_checkpoint(tmp_path / "missing.safetensors")


# Cells


def test_cells_that_exist_are_not_computed_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stamps(made.results)
    monkeypatch.setattr(cells, "attacked", must_not)
    monkeypatch.setattr(Run, "model", must_not)
    assert by_path.make(made.specification, made.results) == made.folders
    assert stamps(made.results) == before
    with pytest.raises(AssertionError, match="must not be done again"):  # a new radius is new work
        by_path.attack(made.folders[0], [("fgsm", FGSM(0.07))], problem=Universal(), n_examples=40)


@pytest.mark.slow
def test_a_cell_tells_all_that_decides_its_number(made: Made, digits: Universal) -> None:
    folder = made.folders[1]
    attacks = [("pgd", PGD(0.1, steps=5)), ("uap", UAP(0.2, steps=5, batch=16, search=1, restarts=1))]
    pgd, uap = by_path.attack(folder, attacks, problem=digits, n_examples=30)
    assert pgd.settings == {"eps": 0.1, "steps": 5, "alpha": 0.025, "random_start": True}
    bits = np.unpackbits(np.frombuffer(base64.b64decode(pgd.bits), np.uint8))[:30]
    assert pgd.right.tolist() == bits.astype(bool).tolist()
    assert bits.sum() == pgd.n_correct == round(30 * pgd.robust_acc)
    assert pgd.n_examples == 30 and pgd.robust_acc <= pgd.clean_acc
    assert pgd.forwards == pgd.backwards == 5 * round(30 * pgd.clean_acc)
    assert pgd.checkpoint_sha256 == files.sha256(folder / "checkpoint.safetensors")
    assert pgd.perturbation_sha256 is None and not pgd.universal
    (path,) = [
        path for path in folder.glob("attacks/uap-*.safetensors") if files.sha256(path) == uap.perturbation_sha256
    ]
    y = safetensors.torch.load_file(path)["y"]
    assert uap.universal and y.shape == (1, 8, 8) and 0 < y.abs().max() <= 0.2 + 1e-6
    on_disk = sorted(path.name for path in (folder / "attacks").glob("*-0.[12]-*.json"))
    assert len(on_disk) == 4  # these two beside the table's fgsm at 0.1 and uap at 0.2


@pytest.mark.slow
def test_universal_attacks_of_a_run_see_the_training_part_only(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, seen = Universal(), []
    fit = UAP.fit

    def spied(self: UAP, model: Any, images: torch.Tensor, labels: torch.Tensor) -> Any:
        seen.append((images, labels))
        return fit(self, model, images, labels)

    monkeypatch.setattr(UAP, "fit", spied)
    by_path.attack(made.folders[0], [("uap", UAP(0.1, steps=1, search=1))], problem=problem, n_examples=5)
    ((images, labels),) = seen
    assert images.equal(as_floats(problem.images.train_images)) and labels.equal(problem.images.train_labels)


def key(name: str, attack: Attack, seed: int = 0, **more: Any) -> CellKey:
    return cells.Request(name, attack, seed, **more).key


@pytest.mark.parametrize(
    "other",
    [
        ("fgsm", FGSM(0.2)),
        ("fgsm", FGSM(0.1), {"n_examples": 10}),
        ("fgsm", FGSM(0.1), {"seed": 1}),
        ("fgsm", FGSM(0.1), {"part": "validation"}),
        ("fgsm", FGSM(0.1), {"batch_size": 10}),
        ("pgd", PGD(0.1)),
    ],
)
def test_cells_of_different_numbers_have_different_files(other: tuple[Any, ...]) -> None:
    name, attack, *more = other
    assert key(name, attack, **dict(*more)) != key("fgsm", FGSM(0.1))


def test_a_given_alpha_and_the_same_alpha_by_default_are_one_cell() -> None:
    default, given = PGD(0.1, rel_alpha=0.25), PGD(0.1, alpha=0.025)
    assert key("pgd", default) == key("pgd", given)


def test_a_cell_of_another_checkpoint_is_not_used(made: Made) -> None:
    path = next((made.folders[0] / "attacks").glob("fgsm-0.1-*.json"))
    cell = files.read_json(path)
    others = {"robust_acc": 0.0, "n_correct": 0, "bits": pack(torch.zeros(cell["n_examples"], dtype=torch.bool))}
    files.write_sealed(path, cell | others | {"checkpoint_sha256": "0" * 64})
    rows = leaderboard.gather(Results(made.results))
    assert len(rows) == 5 and 0.0 not in set(rows["robust_acc"])
    by_path.make(made.specification, made.results)
    again = files.read_json(path)
    assert (again["robust_acc"], again["bits"]) == (cell["robust_acc"], cell["bits"])
    assert again["checkpoint_sha256"] == cell["checkpoint_sha256"]


# Tables


RENDERED = ["tiny.csv", "tiny.md", "tiny.tex", "tiny-curves.png", "tiny-curves.pdf", "tiny-perturbations.png"]


@pytest.mark.slow
def test_a_table_is_rendered_from_cells_alone_and_always_to_the_same_bytes(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in made.folders:
        (folder / "checkpoint.safetensors").unlink()
    for module, name in [(data, "load"), (data, "fetch"), (training, "train"), (cells, "attack")]:
        monkeypatch.setattr(module, name, must_not)
    contents = []
    for tables, names in [(made.file.parent, RENDERED), (tmp_path / "elsewhere", RENDERED[:3])]:
        written = by_path.report(made.specification, "tiny", made.results, tables)
        assert sorted(path.name for path in written) == sorted([*names, "leaderboard.csv", "tiny.json"])
        assert all(path.stat().st_size > 100 for path in written)
        contents.append({path.name: path.read_bytes() for path in written if path.suffix in (".csv", ".md", ".tex")})
        monkeypatch.setattr(plots, "curves", lambda *arguments: {})  # slow, and its bytes are shown in test_report
        monkeypatch.setattr(pictures, "perturbations", lambda *arguments: {})
    first, second = contents
    assert first == second and len(first) == 4
    rows = leaderboard.read(made.results / "leaderboard.csv")
    there = list(made.results.rglob("attacks/*.json"))
    assert len(rows) == len(there) == 6
    assert set(rows["table"]) == {"tiny"} and set(rows["method"]) == {"k_gt", "dec_fedtrack"}
    assert set(zip(rows["attack"], rows["eps"], strict=True)) == {("fgsm", 0.05), ("fgsm", 0.1), ("uap", 0.2)}
    frame = pd.read_csv(made.file.with_suffix(".csv"))
    assert len(frame) == 2 * (1 + 3)  # clean accuracy and three attacked columns of two methods


def test_numbers_of_a_table_are_those_of_its_cells(made: Made, tmp_path: Path) -> None:
    rows = leaderboard.gather(Results(made.results))
    there = [files.read_json(path) for path in made.results.rglob("attacks/*.json")]
    keys = ("method", "attack", "eps", "robust_acc", "clean_acc", "n_correct")
    assert sorted(tuple(cell[key] for key in keys) for cell in there) == sorted(
        tuple(row) for row in rows[list(keys)].itertuples(index=False)
    )


def test_a_table_without_perturbations_is_rendered_without_their_picture(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "curves", lambda *arguments: {})  # slow, and shown above
    whole = made.specification
    block = whole.blocks[0].model_copy(
        update={"trainers": {"k_gt": whole.blocks[0].trainers["k_gt"]}, "attacks": whole.blocks[0].attacks[:1]}
    )
    written = by_path.report(whole.model_copy(update={"blocks": [block]}), "plain", made.results, tmp_path / "plain")
    assert {path.name for path in written} == {"leaderboard.csv", "plain.json", "plain.csv", "plain.md", "plain.tex"}


@pytest.mark.slow
def test_runs_side_by_side_are_the_runs_one_after_the_other_bit_for_bit(
    finished: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool.os, "cpu_count", lambda: 2)  # one thread for each of two workers
    smaller = finished.specification.with_profile("smaller")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the number of threads decides the order of sums, so it must be the workers'
    try:
        alone = by_path.make(smaller, tmp_path / "alone", jobs=1)
    finally:
        torch.set_num_threads(threads)
    beside = by_path.make(smaller, tmp_path / "beside", jobs=2)
    assert [folder.name for folder in beside] == [folder.name for folder in alone]
    for first, second in zip(alone, beside, strict=True):
        for file in ("checkpoint.safetensors", "curve.csv"):
            assert (first / file).read_bytes() == (second / file).read_bytes()
        ours, theirs = (
            {p.name: files.read_json(p)["bits"] for p in where.glob("attacks/*.json")} for where in (first, second)
        )
        assert ours == theirs and len(ours) == 3


def test_nothing_to_render_is_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no finished run of this table"):
        by_path.report(made.specification, "tiny", tmp_path / "empty", tmp_path)


def test_a_profile_changes_what_it_names_and_gets_its_own_runs(finished: Made) -> None:
    whole = finished.specification
    smaller = whole.with_profile("smaller")
    assert (smaller.n_examples, smaller.blocks[0].rounds, smaller.seeds) == (10, 2, whole.seeds)
    assert {run.id for _, run in smaller.runs()}.isdisjoint(run.id for _, run in whole.runs())


@pytest.mark.slow
def test_a_missing_checkpoint_is_trained_again_only_when_a_cell_is_missing(made: Made) -> None:
    folder = made.folders[0]
    whole = (folder / "checkpoint.safetensors").read_bytes()
    for emptied in made.folders:
        (emptied / "checkpoint.safetensors").unlink()
    next((folder / "attacks").glob("fgsm-0.05-*.json")).unlink()
    by_path.make(made.specification, made.results)
    assert (folder / "checkpoint.safetensors").read_bytes() == whole
    assert not (made.folders[1] / "checkpoint.safetensors").exists()
    assert len(list((folder / "attacks").glob("*.json"))) == 3


def test_more_nodes_than_samples_are_refused_before_a_graph_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a graph was built")

    monkeypatch.setattr("robustbench_dec.networks.topology.build", never)
    answer = CliRunner().invoke(app, ["train", "--nodes", "5000", "--results", str(tmp_path / "new")])
    assert isinstance(answer.exception, BadInput) and "more than the 1293 samples" in str(answer.exception)
    assert not (tmp_path / "new").exists()

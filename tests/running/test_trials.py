"""A protocol carried out on 8x8 digits: equal trials, one rule, every trial a row, no test image looked at."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.rendering.trials_picture import best_so_far
from robustbench_dec.running import suite, trials, under_protocol
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs import table as specs
from robustbench_dec.specs.protocol import Protocol
from robustbench_dec.store.results import Results
from tests.support.by_path import QUIET

TINY = """
layout = "protocol"
text = "rules.md"
trials_file = "rules-trials.csv"
seed = 1000
table_seeds = [0, 1]
radius_seeds = [0]
baseline = "k_gt"
candidate_trials = 2
trials = 4
sequence_seed = 2405
digits = 3
short = 0.5
best = 2
clean_within = 0.01

[box]
eta_c = [0.01, 1.0]
eta_s = [0.1, 2.0]
eta_d = [0.01, 10.0]

[network]
nodes = 3

[methods.k_gt]
K = 2
batch = 32
[methods.dec_fedtrack]
K = 2
batch = 32

[[blocks]]
title = "Digits"
rounds = 4
near = 0.01
radii = [0.05, 0.1]
problem = { dataset = "digits", clamp = true }
[[blocks.candidates]]
title = "as they are"
problem = { normalised = false }
[[blocks.candidates]]
title = "normalised"
problem = { normalised = true }
[[blocks.attacks]]
name = "fgsm"
eps = [0.1]
[[blocks.tuning]]
name = "fgsm"
eps = [0.05, 0.1]
images = 40
"""


@pytest.fixture
def protocol(tmp_path: Path) -> tuple[Protocol, Path]:
    (tmp_path / "rules.md").write_text("# Rules\n")
    path = tmp_path / "rules.toml"
    path.write_text(TINY)
    return protocols.read(path), tmp_path / "rules-trials.csv"


def test_points_come_from_one_sequence_and_a_method_uses_what_it_has(protocol: tuple[Protocol, Path]) -> None:
    rules, _ = protocol
    block = rules.blocks[0]
    plain, robust = (rules.points(block, method, 4) for method in ("k_gt", "dec_fedtrack"))
    assert [point.keys() for point in plain] == [{"eta_c", "eta_s"}] * 4
    assert [point.keys() for point in robust] == [{"eta_c", "eta_s", "eta_d", "radius"}] * 4
    assert plain == [{name: point[name] for name in ("eta_c", "eta_s")} for point in robust]
    assert plain == rules.points(block, "k_gt", 4) and plain[:2] == rules.points(block, "k_gt", 2)
    for name, (low, high) in rules.box.items():
        values = [point[name] for point in robust]
        assert low <= min(values) and max(values) <= high and len({*values}) == 4
        geometric = (low * high) ** 0.5
        assert sum(value < geometric for value in values) == 2  # a Sobol sequence is balanced
    assert {point["radius"] for point in robust} <= {0.05, 0.1}


@pytest.mark.slow
def test_trials_are_equal_and_go_on_where_they_were(protocol: tuple[Protocol, Path], tmp_path: Path) -> None:
    rules, path = protocol
    results = Results(tmp_path / "tune")
    done = trials.carry_out(rules, path, results, QUIET)
    counts = done.groupby(["stage", "method"]).size().to_dict()
    assert counts == {
        **{("candidate", "k_gt"): 4, ("short", "k_gt"): 4, ("short", "dec_fedtrack"): 4},
        **{("full", "k_gt"): 2, ("full", "dec_fedtrack"): 2},
    }
    assert {*done["protocol_sha256"]} == {rules.sha256} == {hashlib.sha256(b"# Rules\n").hexdigest()}
    assert done[done["stage"] == "short"]["rounds"].eq(2).all() and done[done["stage"] == "full"]["rounds"].eq(4).all()
    for run in results.runs():
        record = run.record
        assert record.seed == 1000 and record.protocol_sha256 == rules.sha256
        assert record.classifier is not None and record.classifier.clean.part == "validation"
        assert {cell.record.part for cell in run.cells()} <= {"validation"}
    taken = trials.choice(rules, done)
    assert taken.keys() == {("Digits", "k_gt"), ("Digits", "dec_fedtrack")}
    stands = [("candidate", 4, 4, ""), ("short", 8, 8, ""), ("full", 4, 4, "")]
    assert trials.standing(rules, done) == stands and str(trials.standing(rules, done)[1]) == "short: 8 of 8"

    asked = ["trials", str(path.with_name("rules.toml")), "--results", str(results.root), "--json"]
    facts = json.loads(CliRunner().invoke(app, asked).stdout)
    assert facts["trials"] == len(done) and facts["choice"][0]["settings"] == taken["Digits", "k_gt"].point
    drawn = path.with_suffix(".png").read_bytes()
    assert drawn.startswith(b"\x89PNG") and path.with_suffix(".pdf").is_file()
    listed = json.loads(CliRunner().invoke(app, [*asked, "--list"]).stdout)
    assert listed[1] == {"stage": "short", "done": 8, "trials": 8, "waits": ""}

    # A row that is lost is made again, also where no run is left, and the others are not.
    before = path.read_bytes()
    frame = trials.read(path)
    path.write_text(frame.drop(index=frame.index[-1]).to_csv(index=False, lineterminator="\n"))
    elsewhere = Results(tmp_path / "other")
    trials.carry_out(rules, path, elsewhere, QUIET)
    assert len(elsewhere.runs()) == 1
    again = trials.read(path).drop(columns="seconds")
    pd.testing.assert_frame_equal(again, frame.drop(columns="seconds"))
    assert before.count(b"\n") == path.read_bytes().count(b"\n")


@pytest.mark.slow
def test_what_diverges_is_a_trial_too(protocol: tuple[Protocol, Path], tmp_path: Path) -> None:
    rules, path = protocol
    wild = rules.model_copy(update={"box": rules.box | {"eta_c": (1e3, 1e9)}})
    with pytest.raises(BadInput, match="came to its end"):
        trials.carry_out(wild, path, Results(tmp_path / "tune"), QUIET)
    assert trials.read(path)["diverged"].all()


def rows(*entries: tuple[str, int, float | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(entries, columns=["method", "trial", "clean", "score"])


@pytest.mark.parametrize(
    "entries, order",
    [
        ([("a", 0, 0.90, 0.1), ("a", 1, 0.895, 0.5), ("a", 2, 0.88, 0.9)], [1, 0, 2]),  # within a point by score
        ([("a", 0, 0.80, 0.9), ("a", 1, 0.85, 0.1), ("b", 2, 0.99, 0.2)], [2, 1, 0]),  # the best of either counts
        ([("a", 0, None, None), ("a", 1, 0.5, 0.1)], [1, 0]),  # what diverged comes last
        ([("a", 1, 0.9, 0.3), ("a", 0, 0.9, 0.3)], [0, 1]),  # of equals, the one drawn first
        ([("a", 0, 0.90, 0.1), ("a", 1, 0.89, 0.5)], [1, 0]),  # exactly a point is within
    ],
)
def test_one_rule_ranks_all(
    entries: list[tuple[str, int, float | None, float | None]], order: list[int], protocol: tuple[Protocol, Path]
) -> None:
    assert trials.ranked(protocol[0], rows(*entries))["trial"].tolist() == order


def test_the_best_so_far_is_what_the_rule_takes_of_the_first_trials(protocol: tuple[Protocol, Path]) -> None:
    """A trial that is more accurate by more than a point puts those before it aside, whatever they scored."""
    seen = rows(
        *(("k_gt", 0, 0.80, 0.7), ("k_gt", 1, 0.80, 0.6), ("k_gt", 2, 0.95, 0.2), ("k_gt", 3, 0.95, 0.3)),
        *(("dec_fedtrack", 0, None, 0.0), ("dec_fedtrack", 1, 0.80, 0.5), ("dec_fedtrack", 2, 0.94, 0.4)),
        ("dec_fedtrack", 3, 0.5, 0.9),
    )
    assert best_so_far(protocol[0], seen, "k_gt") == [0.7, 0.7, 0.2, 0.3]
    assert best_so_far(protocol[0], seen, "dec_fedtrack")[1:] == [0.5, 0.4, 0.4]


def test_the_first_way_to_handle_data_that_is_near_the_best_is_taken(protocol: tuple[Protocol, Path]) -> None:
    rules, _ = protocol
    block = rules.blocks[0]

    def taken(first: float, second: float) -> str:
        found = [("as they are", 0.1), ("as they are", first), ("normalised", second), ("normalised", None)]
        frame = pd.DataFrame(found, columns=["candidate", "clean"]).assign(stage="candidate", block="Digits")
        return trials.handling(rules, block, frame).title

    assert taken(0.9, 0.905) == "as they are"
    assert taken(0.9, 0.92) == "normalised"


def test_a_stage_waits_for_the_one_before(protocol: tuple[Protocol, Path]) -> None:
    rules, path = protocol
    with pytest.raises(BadInput, match="0 of 4 candidate trials on Digits are done"):
        trials.listed(rules, "short", trials.read(path))


def test_a_text_is_as_old_as_the_first_commit_of_what_it_says_now(tmp_path: Path) -> None:
    text = tmp_path / "rules.md"

    def commit(content: str, day: int) -> None:
        text.write_text(content)
        date = f"2026-01-{day:02}T00:00:00+00:00"
        who = {
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b",
        }
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        for words in (["add", "."], ["commit", "-qm", "rules"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True, env=os.environ | who | dates)

    text.write_text("one\n")
    assert under_protocol.committed(text) is None and not under_protocol.under_git(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert under_protocol.committed(text) is None and under_protocol.under_git(text)
    commit("one\n", 1)
    commit("two\n", 2)
    assert (when := under_protocol.committed(text)) is not None and when.day == 2
    commit("one\n", 3)  # taken back: it stood there before
    assert (when := under_protocol.committed(text)) is not None and when.day == 1
    text.write_text("three\n")
    assert under_protocol.committed(text) is None


TABLE = """
title = "Under rules"
protocol = "rules.md"
seeds = [0]
curve_points = 1
[network]
nodes = 3
[[blocks]]
title = "Digits"
rounds = 4
problem = { dataset = "digits", clamp = true, normalised = NORMALISED, eps = RADIUS }
trainers.k_gt = { K = 2, batch = 32, eta_c = PLAIN_C, eta_s = PLAIN_S }
trainers.dec_fedtrack = { K = 2, batch = 32, eta_c = ROBUST_C, eta_s = ROBUST_S, eta_d = ROBUST_D }
[[blocks.attacks]]
name = "fgsm"
eps = [0.1]
"""


@pytest.mark.slow
def test_what_the_protocol_does_not_give_is_found(protocol: tuple[Protocol, Path], tmp_path: Path) -> None:
    rules, path = protocol
    table = tmp_path / "table.toml"
    table.write_text(TABLE.replace("NORMALISED", "true"))
    done = trials.carry_out(rules, path, Results(tmp_path / "tune"), QUIET)
    choice = trials.choice(rules, done)
    plain, robust = choice["Digits", "k_gt"], choice["Digits", "dec_fedtrack"]
    values = {
        "NORMALISED": str(plain.candidate.problem["normalised"]).lower(),
        **{"RADIUS": robust.point["radius"], "PLAIN_C": plain.point["eta_c"], "PLAIN_S": plain.point["eta_s"]},
        **{"ROBUST_C": robust.point["eta_c"], "ROBUST_S": robust.point["eta_s"], "ROBUST_D": robust.point["eta_d"]},
    }
    results = Results(tmp_path / "results")

    def found(**changes: str) -> list[str]:
        text = TABLE
        for name, value in (values | changes).items():
            text = text.replace(name, str(value))
        table.write_text(text)
        wanted = specs.read(table)
        work = suite.listed(wanted)
        suite.make(work, results, QUIET)
        return under_protocol.findings(wanted, table, work, results)

    assert found() == []
    other_radius = next(radius for radius in rules.blocks[0].radii if radius != robust.point["radius"])
    assert any("does not give" in sentence for sentence in found(RADIUS=str(other_radius)))
    by_radius = {'title = "Under rules"': 'layout = "radius"\ntitle = "Under rules"'}
    assert found(RADIUS=str(other_radius), **by_radius) == []  # there the radius is what is varied,
    assert any("does not give" in sentence for sentence in found(RADIUS="0.07", **by_radius))  # among those of the box
    (other,) = found(PLAIN_C="0.0123")
    assert other.startswith("digits-k_gt-s0-") and "does not give its settings" in other
    (tmp_path / "later.md").write_text("# PGD\n")
    later = {'protocol = "rules.md"': 'protocol = "rules.md"\nredefined = { pgd = "later.md" }'}
    with_pgd = later | {"eps = [0.1]\n": 'eps = [0.1]\n[[blocks.attacks]]\nname = "pgd"\neps = [0.1]\n'}
    assert found(**with_pgd) == []
    (weaker,) = found(**{'name = "fgsm"\neps = [0.1]\n': 'name = "fgsm"\neps = [0.05]\n'})
    assert weaker == "Digits, fgsm: the protocol does not give it with these settings and radii"
    (weaker,) = found(**with_pgd | {"eps = [0.1]\n": with_pgd["eps = [0.1]\n"] + "steps = 4\n"})
    assert weaker == "Digits, pgd: its rules do not give the settings ['steps']"
    (fewer,) = found(**{'[[blocks.attacks]]\nname = "fgsm"\neps = [0.1]\n': ""})
    assert fewer == "Digits: it has 1 attacks fewer than the protocol"
    (tmp_path / "later.md").write_text("# Another PGD\n")  # cells that stand are not made again
    sentences = found(**with_pgd)
    assert len(sentences) == 2 and all(
        "pgd-0.1-" in sentence and "not made under later.md as it is now" in sentence for sentence in sentences
    )
    (tmp_path / "rules.md").write_text("# Other rules\n")
    sentences = found()
    assert len(sentences) == 4 and all("not made under rules.md as it is now" in sentence for sentence in sentences)
    path.unlink()
    (unknown,) = found()
    assert "candidate trials on Digits are done" in unknown

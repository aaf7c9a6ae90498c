"""Table 1: measured end to end on two cheap methods, resumed, rendered, judged; and the committed one rebuilt."""

import math
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from robustbench_dec import files, shelf
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.specs import claims as claim_specs
from robustbench_dec.specs.claims import Task
from robustbench_dec.specs.run import NetworkSpec
from robustbench_dec.store.results import Results
from robustbench_dec.theory import claims as table1
from robustbench_dec.theory import claims_report as table1_report
from robustbench_dec.theory import claims_runs as measure
from tests.support import ROOT

TABLE = """
title = "Tiny"
layout = "claims"
caption = "Two methods & 100 % of the rules_of_the_game."
seeds = [0, 1]
goals = [0.5, 0.1]
heterogeneity = [0.0, 1.0]
budget = 2000
[bench]
m = 4
noise = 0.1
[network]
graph = "ring"
nodes = 4
[server]
graph = "complete"
nodes = 4
weights = "uniform"
[tune]
seed = 7
budget = 400
ratio = [0.5]
eta_y = [0.4, 0.2]
[judge]
window = 5
LU = ["K = 1", "K = 3"]
HR = "K = 3"
[[methods]]
name = "local_sgda"
sfo = '\\frac{\\kappa^4}{n}'
decentralized = false
objective = "NC-SC"
LU = true
HR = false
AR = true
variants = { "K = 1" = { K = 1, batch = 2 }, "K = 3" = { K = 3, batch = 4 } }
note = "A note with 50 % & an_underscore."
[[methods]]
name = "gt_gda"
in_paper = false
decentralized = true
objective = "NC-SC"
LU = false
HR = true
AR = true
variants = { "" = {} }
"""
RING = NetworkSpec(graph="ring", nodes=10)


def written(folder: Path, text: str = TABLE) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


def make(specification: Path, results: Path) -> None:
    """Tune, measure and render by the command line."""
    for words in (["tune", "--results", str(results / "tune")], ["table", "--results", str(results)]):
        outcome = CliRunner().invoke(app, [words[0], str(specification), *words[1:]])
        assert outcome.exit_code == 0, outcome.output


def task(trainer: str = "gt_gda", **changes: object) -> Task:
    fields: dict[str, object] = {
        "trainer": trainer,
        "trainer_settings": {"eta_x": 0.1, "eta_y": 0.4},
        "bench": {"m": 4, "noise": 0.1},
        "network": RING,
        "seed": 0,
        "goals": (1e-1, 1e-2),
        "budget": 4000,
    }
    return Task(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the specification, tuned, measured and rendered by the command line; read only."""
    home = tmp_path_factory.mktemp("tiny")
    make(written(home), home / "results")
    return home


@pytest.mark.slow
def test_a_rerun_computes_nothing_and_writes_the_same_bytes(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tiny.rglob("*.json")}
    rendered = {path: path.read_bytes() for path in tiny.glob("tiny*.*")}
    assert len(list((tiny / "results" / "tiny").glob("*.json"))) == 2 * 2 * 3  # seeds, heterogeneities, variants
    monkeypatch.setattr(measure, "run", lambda task, device: pytest.fail(f"computed {task.id} again"))
    make(tiny / "tiny.toml", tiny / "results")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tiny.rglob("*.json")} == before
    assert {path: path.read_bytes() for path in tiny.glob("tiny*.*")} == rendered


def test_every_method_and_variant_has_its_row_in_every_format(tiny: Path) -> None:
    markdown, latex = (tiny / "tiny.md").read_text(), (tiny / "tiny.tex").read_text()
    for text in (markdown, latex):
        assert text.count("Local SGDA") >= 3 and text.count("GT-GDA") >= 3  # claims, and one for each heterogeneity
        assert "K = 1" in text and "K = 3" in text
    assert r"50 \% \& an\_underscore" in latex and r"\frac{\kappa^4}{n}" in latex and r"\dag" in latex
    assert "†" not in latex
    table = pd.read_csv(tiny / "tiny.csv", keep_default_na=False)
    assert len(table) == 3 * 2 * 2
    assert set(table["method"]) == {"local_sgda", "gt_gda"}


def test_the_latex_is_balanced(tiny: Path) -> None:
    for path in (tiny / "tiny.tex", ROOT / "tables" / "table1.tex"):
        latex = path.read_text()
        body = re.sub(r"\\[{}\\&%$#_]", "", latex.split("\n", 1)[1])
        assert body.count("{") == body.count("}") and body.count("$") % 2 == 0
        assert sorted(re.findall(r"\\begin\{(.*?)\}", latex)) == sorted(re.findall(r"\\end\{(.*?)\}", latex))
        for tabular in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", latex, re.S):
            rows = [line for line in tabular.splitlines() if line.endswith(r"\\")]
            wide = [sum(int(size) - 1 for size in re.findall(r"multicolumn\{(\d)", line)) for line in rows]
            assert len({line.count(" & ") + more for line, more in zip(rows, wide, strict=True)}) == 1


def test_costs_are_those_of_the_first_round_that_reaches_the_goal() -> None:
    wanted = task()
    record = measure.run(wanted)
    oracle, net = _stage(wanted)
    trainer, exact = wanted.build_trainer(), wanted.build_problem().exact(oracle.shards)
    state = trainer.init(oracle, net)
    reached: dict[float, tuple[int, int, int]] = {}
    for t in range(1, record.ledger.rounds + 1):
        state = trainer.step(state, oracle, net)
        for goal in wanted.goals:
            if exact.grad_phi(state.X.mean(0)).norm() <= goal:
                reached.setdefault(goal, (t, net.ledger.sfo, net.ledger.exchanges))
    for goal in wanted.goals:
        costs = record.reached[f"{goal:g}"]
        assert costs is not None and (costs["rounds"], costs["sfo"], costs["exchanges"]) == reached[goal]
    assert record.ended == "reached" and record.ledger.rounds == reached[1e-2][0]


def _stage(wanted: Task) -> tuple[Oracle, Network]:
    net = SimulatedNetwork(wanted.network.build())
    return Oracle(wanted.build_problem(), net.nodes, wanted.seed, net.ledger), net


def test_remembered_draws_are_the_oracles_own() -> None:
    wanted = task("dm_hsgd", trainer_settings={"eta_x": 0.1, "eta_y": 0.4, "batch": 2}, budget=200)
    first, again = measure.run(wanted), measure.run(wanted)
    assert first.curve == again.curve
    oracle, net = _stage(wanted)
    trainer, exact = wanted.build_trainer(), wanted.build_problem().exact(oracle.shards)
    state = trainer.init(oracle, net)
    for _ in range(first.ledger.rounds):
        state = trainer.step(state, oracle, net)
    assert float(f"{exact.grad_phi(state.X.mean(0)).norm().item():.4g}") == first.curve[-1][-1]


@pytest.mark.slow
def test_a_run_is_never_stopped_as_stalled_and_its_goals_are_those_of_a_running_median() -> None:
    local = {"eta_x": 0.05, "eta_y": 0.2, "K": 5, "batch": 2}
    judged = measure.run(task("local_sgda", trainer_settings=local, budget=6000, window=9))
    assert judged.ended == "budget" and judged.ledger.sfo == 6000 and judged.reached["0.01"] is None
    assert judged.floor is not None and judged.floor > 0.05  # without a correction, different nodes drift
    noisy: dict[str, object] = {
        "trainer_settings": {"eta_c": 0.1, "eta_d": 0.4, "K": 1, "batch": 1},
        "bench": {"m": 8, "noise": 0.5},
        "budget": 1500,
    }
    floor = measure.run(task("dec_fedtrack", **noisy, goals=(1e-9,), window=25)).floor
    assert floor is not None
    below = round(0.3 * floor, 3)
    hit = measure.run(task("dec_fedtrack", **noisy, goals=(below,)))
    held = measure.run(task("dec_fedtrack", **noisy, goals=(below,), window=25))
    assert hit.reached[f"{below:g}"] is not None  # by chance
    assert held.reached[f"{below:g}"] is None and held.ended == "budget"
    assert len({task(window=5).id, task(window=6).id, task().id}) == 3


@pytest.mark.slow
def test_an_unstable_point_is_refused_in_tuning_even_if_it_hits_the_goal_first(tmp_path: Path) -> None:
    path = written(tmp_path, re.sub(r"eta_y = .*", "eta_y = [6.4, 0.2]", TABLE))
    specification = claim_specs.read(path)
    home = Results(tmp_path / "tune").claims("tiny")
    frame = pd.read_csv(table1.tune(specification, "tiny", home, tmp_path, progress=False))
    assert {"unstable"} < set(frame["ended"])
    assert (frame.loc[frame["ended"] == "unstable", "radius"] >= 1).all()
    assert (frame.loc[frame["ended"] != "unstable", "radius"] < 1).all()
    assert not (frame.loc[frame["taken"] == "yes", "ended"] == "unstable").any()


@pytest.mark.slow
def test_the_grid_grows_at_the_sides_where_a_best_point_lies(tmp_path: Path) -> None:
    text = re.sub(r"ratio = .*\neta_y = .*", "ratio = [0.25, 0.5]\neta_y = [0.1, 0.05]\nextensions = 2", TABLE)
    text = text.replace('"K = 1" = { K = 1, batch = 2 }, ', "").replace('["K = 1", "K = 3"]', '["K = 3", "K = 3"]')
    home = Results(tmp_path / "tune").claims("tiny")
    frame = pd.read_csv(table1.tune(claim_specs.read(written(tmp_path, text)), "tiny", home, tmp_path, progress=False))
    assert {0.2, 0.4} <= {*frame["eta_y"]}  # twice up: the best of a coarse grid of small steps is the largest
    boxes = frame.groupby(["method", "variant", "heterogeneity"], dropna=False).apply(len, include_groups=False)
    assert boxes.nunique() == 1  # equal trials
    assert frame["taken"].eq("yes").sum() == len(boxes)


def test_the_specification_is_whole(tracked: Path) -> None:
    judged = claim_specs.read(tracked / "tables" / "table1.toml")
    assert judged.tune.seed not in judged.seeds and len(judged.seeds) >= 3
    assert judged.heterogeneity[0] > 0
    for method in judged.methods:
        if "K = 5, full" in method.variants:
            assert "K = 1, full" in method.variants


def test_the_device_is_where_it_trains() -> None:
    with pytest.raises(RuntimeError, match="meta"):  # tensors there have no values to tell
        measure.run(task(), device="meta")


def test_a_diverging_run_says_so_and_has_no_floor() -> None:
    record = measure.run(task(trainer_settings={"eta_x": 3.0, "eta_y": 3.0}))
    assert record.ended == "diverged" and record.floor is None


def test_a_method_without_y_is_measured_by_what_it_minimises() -> None:
    record = measure.run(task("k_gt", trainer_settings={"eta_c": 0.05, "K": 2, "batch": 4}))
    assert record.measure == "||grad f(., 0)||" and record.settings.bench["coercive"]
    assert record.reached["0.01"] is not None


def test_every_setting_that_decides_the_numbers_changes_the_id() -> None:
    changed = [
        task(seed=1),
        task(budget=4001),
        task(goals=(1e-1,)),
        task(bench={"m": 4, "noise": 0.2}),
        task(network=NetworkSpec(graph="complete", nodes=10)),
        task(trainer_settings={"eta_x": 0.1, "eta_y": 0.41}),
    ]
    assert len({wanted.id for wanted in [task(), *changed]}) == 7
    assert task().id == task().id


def test_a_users_trainer_is_known_by_what_is_in_its_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text((ROOT / "trainers" / "gt_gda.py").read_text())
    before = task(f"{mine}:GTGDA").id
    mine.write_text(mine.read_text() + "# changed\n")
    assert before.startswith("mine-s0-") and task(f"{mine}:GTGDA").id != before


def test_a_seed_that_misses_the_goal_makes_it_not_reached() -> None:
    specification = table1.Spec.model_validate(tomllib.loads(TABLE))
    rows = []
    for seed, reached in ((0, True), (1, False)):
        for place in specification.places():
            for goal in specification.goals:
                costs = {name: 10.0 if reached else None for name in table1.MEASURED}
                rows.append({**place._asdict(), "goal": goal, "seed": seed, "eta_x": 0.1, "eta_y": 0.2, **costs,
                             "reached": reached, "floor": 0.3, "ended": "x", "run_id": "x"})  # fmt: skip
    cells = table1_report.summary(specification, pd.DataFrame(rows))
    assert not cells["reached"].any() and (cells["seeds_reached"] == 1).all() and cells["sfo_median"].isna().all()


def test_verdicts_follow_their_rules() -> None:
    """HR is no where the first nodes' goal is missed on very different ones, LU is yes where rounds fall enough."""
    specification = table1.Spec.model_validate(tomllib.loads(TABLE))
    local, tracking = specification.methods
    rows = []
    for place in specification.places():
        for goal in specification.goals:
            stuck = place == ("local_sgda", "K = 3", 1.0)
            rounds = {"K = 1": 90.0, "K = 3": 30.0, "": 50.0 + 30 * place.heterogeneity}[place.variant]
            rows.append({**place._asdict(), "goal": goal, "seed": 0, "eta_x": 0.1, "eta_y": 0.2, "reached": not stuck,
                         "sfo": None if stuck else 2 * rounds, "rounds": None if stuck else rounds, "exchanges": 0.0,
                         "all_reduces": 1.0, "floor": 0.07, "ended": "x", "run_id": "x"})  # fmt: skip
    cells = table1_report.summary(specification, pd.DataFrame(rows))
    assert table1_report.seen_LU(specification, local, cells) == (True, "3.0x, 3.0 to 3.0; not reached")
    assert table1_report.seen_HR(specification, local, cells) == (False, "1e-1: floor 0.07")
    assert table1_report.seen_LU(specification, tracking, cells).verdict is None
    assert table1_report.seen_HR(specification, tracking, cells) == (True, "1e-1: 1.6x, 1.6 to 1.6")
    assert not list(table1_report.contradictions(specification, cells))
    claimed = specification.model_copy(update={"methods": [local.model_copy(update={"HR": True}), tracking]})
    ((method, sentence),) = table1_report.contradictions(claimed, cells)
    assert method.name == "local_sgda" and "HR yes, seen is no" in sentence


# --- the committed table ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed(tracked: Path) -> claim_specs.Spec:
    return claim_specs.read(tracked / "tables" / "table1.toml")


def test_table_1_has_methods_of_the_shelf_and_all_rows_of_the_paper(committed: table1.Spec) -> None:
    assert {method.name for method in committed.methods} <= {*shelf.names("trainer")}
    rows = [method.title for method in committed.methods if method.in_paper]
    assert rows == [
        "MLSGDA", "SAGDA", "Fed-Norm-SGDA", "DM-HSGD", "DREAM", "DGDA-VR", "K-GT", "Dec-FedTrack",
    ]  # fmt: skip
    assert all(method.sfo and method.communication for method in committed.methods if method.in_paper)


@pytest.mark.slow
def test_committed_table_1_is_rebuilt_from_committed_results(
    committed: table1.Spec, tracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "run", lambda task, device: pytest.fail(f"{task.id} is not committed"))
    choice = table1.chosen(committed, tracked / "tables" / "table1-tune.csv")
    rows = table1.make(committed, choice, Results(tracked / "results").claims("table1"), progress=False)
    for path in files.write_all(table1_report.report(committed, rows, tmp_path / "table1")):
        assert path.read_bytes() == (tracked / "tables" / path.name).read_bytes(), path.suffix
    assert {path.stem for path in (tracked / "results" / "table1").glob("*.json")} == set(rows["run_id"])


def test_every_contradiction_in_table_1_has_a_footnote(committed: table1.Spec, tracked: Path) -> None:
    cells = pd.read_csv(tracked / "tables" / "table1.csv").fillna({"variant": ""})
    found = list(table1_report.contradictions(committed, cells))
    assert "sagda" in {method.name for method, _ in found}  # its control variates do what the paper's tick denies
    assert all(method.note for method, _ in found)


def test_step_sizes_are_the_best_of_the_committed_grid(committed: table1.Spec, tracked: Path) -> None:
    frame = pd.read_csv(tracked / "tables" / "table1-tune.csv").fillna({"variant": ""})
    for _, group in frame.groupby(["method", "variant", "heterogeneity"]):
        taken = group[group["taken"] == "yes"]
        assert len(taken) == 1
        best = group["sfo"].min()
        measure_of = "sfo" if not math.isnan(best) else "floor"
        assert taken[measure_of].item() == group[measure_of].min()
    assert committed.tune.seed not in committed.seeds


@pytest.mark.slow
def test_the_grids_file_is_what_the_command_writes_where_its_runs_give_these_values(
    committed: table1.Spec, tracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command goes through the grid again with the file's values in place of runs, and writes the same bytes."""
    path = tracked / "tables" / "table1-tune.csv"
    rows = pd.read_csv(path, dtype={"sfo": "Int64"}).fillna({"variant": ""})
    keys = ["method", "variant", "heterogeneity", "eta_x", "eta_y"]
    known = {tuple(row[key] for key in keys): row for row in rows.to_dict("records")}
    asked: list[Any] = []

    def task(specification: table1.Spec, place: claim_specs.Place, steps: claim_specs.Steps, seed: int) -> Task:
        sizes = (float(f"{size:.6g}") for size in steps)
        asked.append(known[place.method, place.variant, place.heterogeneity, *sizes])
        return real(specification, place, steps, seed)

    def record(*_: object) -> SimpleNamespace:
        row = asked[-1]
        costs = None if pd.isna(row["sfo"]) else {"sfo": int(row["sfo"])}
        ended = "budget" if row["ended"] == "beaten" else row["ended"]
        ledger = SimpleNamespace(rounds=int(row["rounds"]))
        return SimpleNamespace(reached={"0.01": costs}, ended=ended, ledger=ledger, floor=row["floor"])

    def radius(*_: object) -> float:
        row = asked[-1]
        rounded = float(row["radius"])  # to 6 digits: what ran was below 1, if only by less than that
        return math.nextafter(1, 0) if rounded == 1 and row["ended"] != "unstable" else rounded

    real = table1.Spec.task
    monkeypatch.setattr(table1.Spec, "task", task)
    monkeypatch.setattr(table1, "measured", record)
    monkeypatch.setattr(table1, "spectral_radius", radius)
    table1.tune(committed, "table1", Results(tmp_path).claims("table1"), tmp_path, progress=False)
    assert (tmp_path / "table1-tune.csv").read_text() == path.read_text()
    assert len(asked) == len(rows)


# --- bad input --------------------------------------------------------------------------------------------------------

BAD = {
    "unknown method": (('"gt_gda"', '"adam"'), "no trainer 'adam'; there are: .*dec_fedtrack"),
    "K below 1": (("K = 3, batch", "K = 0, batch"), "K must be at least 1 local step, not 0"),
    "goal of 0": (("goals = [0.5, 0.1]", "goals = [0.5, 0]"), "'goals.1': input should be greater than 0"),
    "negative goal": (("goals = [0.5, 0.1]", "goals = [-1.0]"), "'goals.0': input should be greater than 0"),
    "unknown setting": (("K = 3, batch", "tau = 3, batch"), "LocalSGDA has no setting 'tau'; there are: .*K"),
    "unknown key": (
        ('title = "Tiny"', 'title = "Tiny"\nheight = 3'),
        "'height': no such setting; there are: title, caption",
    ),
    "a method twice": (('"gt_gda"', '"local_sgda"'), "comes twice"),
    "bad bench": (("noise = 0.1", "noise = -0.1"), "noise must be 0 or a positive number, not -0.1"),
    "no TOML": (('title = "Tiny"', "title ="), "is not valid TOML"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_specifications_are_refused_with_one_sentence(what: str, tmp_path: Path) -> None:
    change, sentence = BAD[what]
    path = written(tmp_path, TABLE.replace(*change))
    with pytest.raises(BadInput, match=sentence) as caught:
        claim_specs.read(path)
    assert str(caught.value).count("\n") == 0
    assert not (tmp_path / "results").exists()


def test_a_task_refuses_goals_and_budgets_that_make_no_sense() -> None:
    with pytest.raises(BadInput, match=r"a goal for .* must be a positive number such as 1e-2, not 0"):
        task(goals=(0,))
    with pytest.raises(BadInput, match="a budget must be at least 1 SFO call per node, not 0"):
        task(budget=0)


def test_missing_step_sizes_say_how_to_get_them(tmp_path: Path) -> None:
    specification = claim_specs.read(written(tmp_path))
    with pytest.raises(BadInput, match=r"no step sizes in .*`robustbench-dec tune"):
        table1.chosen(specification, tmp_path / "tiny-tune.csv")
    (tmp_path / "tiny-tune.csv").write_text("method,variant,heterogeneity,eta_x,eta_y,taken\ngt_gda,,0,0.1,0.2,yes\n")
    with pytest.raises(BadInput, match=r"no step sizes for local_sgda 'K = 1' at heterogeneity 0; .*tune tables"):
        table1.chosen(specification, tmp_path / "tiny-tune.csv")

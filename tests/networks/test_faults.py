"""Unreliable networks: what one round loses, what gossip keeps all the same, and the table by network."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from typer.testing import CliRunner

from robustbench_dec import files, shelf
from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.networks.faults import RELIABLE, Faults
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.specs import table as spec
from robustbench_dec.trainer import Trainer
from tests.support import ROOT, by_path
from tests.support.matrices import DIRECTED, usual_graphs
from trainers.dec_fedtrack import DecFedTrack

ALL = Faults(loss=0.3, stragglers=0.2, varying=True)
KINDS = [Faults(loss=0.3), Faults(stragglers=0.3), Faults(varying=True), ALL]

matrices = st.one_of(
    usual_graphs,
    st.builds(topology.build, st.just("ring"), st.sampled_from([3, 5, 7]), st.just("lazy"), st.just(0.0)),
)
probabilities = st.floats(0, 0.95)
anything = st.builds(Faults, probabilities, probabilities, st.booleans())
keys = st.tuples(st.integers(0, 2**63), st.integers(-5, 2**63))
rounds = st.integers(0, 2**40)


def links(W: np.ndarray) -> np.ndarray:
    return (W != 0) & ~np.eye(len(W), dtype=bool)


# One round's matrix


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(W=matrices, faults=anything, key=keys, round=rounds)
def test_what_faults_leave_is_symmetric_non_negative_and_doubly_stochastic(
    W: np.ndarray, faults: Faults, key: tuple[int, int], round: int
) -> None:
    before = W.copy()
    W_t = faults.matrix(W, key, round)
    assert W_t.shape == W.shape and W_t.min() >= 0
    assert np.array_equal(W_t, W_t.T)
    assert np.abs(W_t.sum(1) - 1).max() < 1e-14 * len(W)
    assert np.array_equal(W, before)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(W=matrices, faults=anything, key=keys, round=rounds)
def test_faults_take_links_of_the_relabelled_graph_and_add_none(
    W: np.ndarray, faults: Faults, key: tuple[int, int], round: int
) -> None:
    W_t = faults.matrix(W, key, round)
    whole = replace(faults, loss=0.0, stragglers=0.0).matrix(W, key, round)
    there = links(W_t)
    assert (W_t[there] == whole[there]).all()
    assert (np.diag(W_t) >= np.diag(whole) - 1e-15).all()
    assert np.array_equal(np.sort(np.linalg.eigvalsh(whole)).round(9), np.sort(np.linalg.eigvalsh(W)).round(9))
    assert np.array_equal(np.sort(links(whole).sum(0)), np.sort(links(W).sum(0)))  # the same degrees, elsewhere
    if not faults.varying:
        assert whole is W


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(faults=anything, key=keys, round=rounds)
def test_same_key_and_round_give_the_same_matrix(faults: Faults, key: tuple[int, int], round: int) -> None:
    W = topology.build("exponential", 12, "uniform")
    assert np.array_equal(faults.matrix(W, key, round), faults.matrix(W.copy(), key, round))


@pytest.mark.parametrize("faults", KINDS, ids=str)
def test_other_rounds_and_other_keys_give_other_matrices(faults: Faults) -> None:
    W = topology.build("complete", 30, "lazy") if not faults.varying else topology.build("ring", 30)
    drawn = [faults.matrix(W, key, t).tobytes() for key in ((0, 0), (0, 1), (1, 0)) for t in range(20)]
    assert len(set(drawn)) == 60


def test_links_are_lost_at_the_rate_asked_for_each_by_itself() -> None:
    W = topology.build("complete", 6, "uniform")
    kept = np.array([links(Faults(loss=0.3).matrix(W, (0, 0), t))[np.triu_indices(6, 1)] for t in range(2000)])
    deviation = (0.3 * 0.7 / 2000) ** 0.5
    assert np.abs(1 - kept.mean(0) - 0.3).max() < 5 * deviation  # every link
    assert abs(1 - kept.mean() - 0.3) < 5 * deviation / 15**0.5
    assert np.abs(np.corrcoef(kept.T) - np.eye(15)).max() < 5 / 2000**0.5


def test_stragglers_come_at_the_rate_asked_for_and_their_rows_are_the_identitys() -> None:
    W = topology.build("complete", 6, "lazy")
    late = np.zeros((2000, 6), dtype=bool)
    for t in range(2000):
        W_t = Faults(stragglers=0.3).matrix(W, (0, 0), t)
        late[t] = ~links(W_t).any(1)
        if late[t].sum() == 5:  # who is in time, but alone, looks the same
            late[t] = True
        punctual = np.flatnonzero(~late[t])
        assert np.array_equal(W_t[late[t]], np.eye(6)[late[t]])
        assert np.array_equal(W_t[:, late[t]], np.eye(6)[:, late[t]])
        assert links(W_t)[np.ix_(punctual, punctual)].sum() == len(punctual) * (len(punctual) - 1)
    expected = 0.3 + 0.7 * 0.3**5
    assert np.abs(late.mean(0) - expected).max() < 5 * (expected * (1 - expected) / 2000) ** 0.5


def test_a_varying_graph_puts_every_node_in_every_place() -> None:
    W = topology.build("star", 5, "metropolis")
    centres = [int(links(Faults(varying=True).matrix(W, (0, 0), t)).sum(1).argmax()) for t in range(1000)]
    assert np.abs(np.bincount(centres, minlength=5) - 200).max() < 5 * (1000 * 0.2 * 0.8) ** 0.5


def test_more_loss_loses_the_same_links_and_more_and_faults_do_not_decide_each_other() -> None:
    W = topology.build("complete", 8, "uniform")
    for t in range(20):
        few, many, both = (links(Faults(*two).matrix(W, (3, 0), t)) for two in ((0.1,), (0.3,), (0.3, 0.2)))
        late = links(Faults(stragglers=0.2).matrix(W, (3, 0), t))
        assert (many <= few).all()
        assert np.array_equal(both, many & late)


@pytest.mark.parametrize("name", ["loss", "stragglers"])
@pytest.mark.parametrize("probability", [1.0, 1.5, -0.1, float("nan")])
def test_what_is_no_probability_is_refused(name: str, probability: float) -> None:
    with pytest.raises(
        BadInput, match=f"{name} must be a probability of at least 0 and less than 1.* not {probability}"
    ):
        replace(RELIABLE, **{name: probability})  # type: ignore[arg-type]


@pytest.mark.parametrize("faults", [Faults(loss=0.1), Faults(stragglers=0.1)], ids=str)
def test_an_asymmetric_matrix_that_loses_links_is_refused_and_may_vary(faults: Faults) -> None:
    with pytest.raises(BadInput, match=r"symmetric mixing matrix.* W\[0, 1\] = 0.5 and W\[1, 0\] = 0; metropolis"):
        SimulatedNetwork(DIRECTED, faults=faults)
    W_t = SimulatedNetwork(DIRECTED, faults=Faults(varying=True)).matrix()
    assert np.array_equal(W_t.sum(0), np.ones(4)) and np.array_equal(W_t.sum(1), np.ones(4))


# Gossip


def in_order(W: np.ndarray, Z: Tensor, fused: bool = True) -> Tensor:
    """W Z, every row's sum over its senders in ascending order; fused: a product is not rounded before it is added."""
    mixed = []
    for row in W:
        first, *others = np.flatnonzero(row)
        total = torch.tensor(row[first]).to(Z) * Z[first]
        for j in others:
            weight = torch.tensor(row[j]).to(Z)
            total = torch.addcmul(total, weight, Z[j]) if fused else total + weight * Z[j]
        mixed.append(total)
    return torch.stack(mixed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("faults", [RELIABLE, *KINDS], ids=str)
def test_gossip_adds_in_the_order_of_the_nodes_with_and_without_faults(faults: Faults, dtype: torch.dtype) -> None:
    for W in (topology.build("ring", 7), topology.build("star", 6, "metropolis")):
        net = SimulatedNetwork(W, faults=faults, key=(4, 2))
        Z = torch.randn(len(W), 33, dtype=dtype, generator=torch.Generator().manual_seed(0))
        for t in range(5):
            W_t = faults.matrix(W, (4, 2), t)
            assert np.array_equal(net.matrix(), W_t)
            assert net.mix(Z).equal(in_order(W_t, Z))
            net.ledger.rounds += 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2**12, 28_938, 2**15 - 1, 2**15])
def test_long_rows_are_added_in_the_order_of_the_nodes_too(size: int, dtype: torch.dtype) -> None:
    for W in (topology.build("ring", 5, "lazy", pi=1 / 3), topology.build("star", 6, "metropolis")):
        Z = torch.randn(len(W), size, dtype=dtype, generator=torch.Generator().manual_seed(0))
        mixed = SimulatedNetwork(W).mix(Z)
        assert any(mixed.equal(in_order(W, Z, fused)) for fused in (True, False))  # which one, CPU and size decide


def test_without_faults_every_round_has_w_itself() -> None:
    net = SimulatedNetwork(topology.build("ring", 5))
    first = net.matrix()
    net.ledger.rounds = 17
    assert first is net.matrix() and np.array_equal(first, net.W)
    assert list(net.rows) == [0, 1, 2, 3, 4]


def test_all_exchanges_of_a_round_see_one_matrix_and_lost_messages_are_charged() -> None:
    net = SimulatedNetwork(topology.build("ring", 8), faults=ALL, key=(1, 0))
    reliable = SimulatedNetwork(net.W)
    Z = torch.eye(8, dtype=torch.float64)
    for t in range(10):
        W_t = torch.from_numpy(ALL.matrix(net.W, (1, 0), t))
        assert net.mix(Z).equal(W_t) and net.mix(Z, Z)[1].equal(W_t)
        root = net.spectral_rate**0.5
        eta = (1 - root) / (1 + root)  # W's own, whatever W_t is
        once = (1 + eta) * W_t - eta * Z
        twice = (1 + eta) * W_t @ once - eta * Z
        assert (net.fastmix(Z, rounds=2) - twice).abs().max() < 1e-14
        reliable.mix(Z), reliable.mix(Z, Z), reliable.fastmix(Z, rounds=2)
        net.ledger.rounds += 1
        reliable.ledger.rounds += 1
    assert net.ledger == reliable.ledger


def test_exact_means_are_reliable() -> None:
    Z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    W = topology.build("ring", 8)
    assert SimulatedNetwork(W, faults=Faults(stragglers=0.9)).mean(Z).equal(SimulatedNetwork(W).mean(Z))


# Trainers


def walk(trainer: Trainer, problem: Quadratic, faults: Faults, length: int) -> list[Any]:
    net = SimulatedNetwork(topology.build("ring", 10), faults=faults)
    oracle = Oracle(problem, 10, 0, net.ledger)
    path = [trainer.init(oracle, net)]
    for _ in range(length):
        path.append(trainer.step(path[-1], oracle, net))
        net.ledger.rounds += 1
    return path


def small(name: str) -> Trainer:
    """A trainer of the shelf with small steps and minibatches of 4 samples."""
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    wanted = {name: 0.02 for name in ("eta_c", "eta_d", "eta_x", "eta_y")} | {"batch": 4, "big_batch": 8}
    return shelf.make(cls, {key: value for key, value in wanted.items() if key in cls.__dataclass_fields__})


def kept(name: str) -> set[str]:
    """The fields of a trainer's state."""
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    return set(get_type_hints(cls.init)["return"]._fields)


CORRECTED = [name for name in shelf.names("trainer") if "C" in kept(name)]
TRACKED = {name: ("U", "G") for name in shelf.names("trainer") if "Ux" in kept(name)} | {"dgda_vr": ("D", "V")}
"""Trackers and the estimates they follow, by the first letters of their names."""


def test_methods_with_corrections_and_with_trackers_are_found() -> None:
    assert {"dec_fedtrack", "k_gt", "lu_gt"} <= {*CORRECTED}
    assert {"gt_gda", "gt_da", "gt_srvr", "dm_hsgd", "dream", "dgda_vr"} <= {*TRACKED}


@pytest.mark.slow
@pytest.mark.parametrize("faults", KINDS, ids=str)
@pytest.mark.parametrize("name", CORRECTED)
def test_corrections_average_to_zero_under_faults(name: str, faults: Faults) -> None:
    for state in walk(small(name), Quadratic(m=8, noise=0.3), faults, 30):
        for correction in {"C", "D"} & {*state._fields}:
            assert getattr(state, correction).mean(0).abs().max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("faults", KINDS, ids=str)
@pytest.mark.parametrize("name", TRACKED)
def test_trackers_average_to_the_mean_gradient_under_faults(name: str, faults: Faults) -> None:
    tracker, estimate = TRACKED[name]
    for state in walk(small(name), Quadratic(m=8, noise=0.3), faults, 30):
        for block in ("x", "y"):
            U, G = getattr(state, tracker + block), getattr(state, estimate + block)
            assert U.isfinite().all() and (U.mean(0) - G.mean(0)).abs().max() < 1e-12


@pytest.mark.slow
# Rounds that it needs here: 310 with no fault, 530, 1192, 251 and 253 with those of KINDS.
@pytest.mark.parametrize(
    "faults, most", list(zip([RELIABLE, *KINDS], [400, 700, 1500, 400, 400], strict=True)), ids=str
)
def test_dec_fedtrack_finds_the_stationary_point_of_a_heterogeneous_quadratic_under_faults(
    faults: Faults, most: int
) -> None:
    problem = Quadratic(instance=4)
    net = SimulatedNetwork(topology.build("ring", 10), faults=faults)
    oracle = Oracle(problem, 10, 0, net.ledger)
    gradient = problem.exact(oracle.shards).grad_phi
    trainer = DecFedTrack(eta_c=0.02, eta_d=0.04, K=5, batch=1)
    state = trainer.init(oracle, net)
    while net.ledger.rounds < most and gradient(state.X.mean(0)).norm() > 1e-6:
        state = trainer.step(state, oracle, net)
        net.ledger.rounds += 1
    assert gradient(state.X.mean(0)).norm() <= 1e-6


# Runs


def asked(network: spec.NetworkSpec, trainer: str = "dec_fedtrack", **changes: Any) -> spec.RunSpec:
    problem = {"dataset": "digits", "classes": ["0", "1"], "eps": 0.1}
    steps = (
        {"eta_c": 0.1, "eta_d": 1.0, "K": 2, "batch": 8}
        if trainer == "dec_fedtrack"
        else {"eta_x": 0.05, "eta_y": 0.05}
    )
    run = spec.RunSpec(problem, network, trainer, steps, 6, 0, [], curve_points=2, curve_examples=20)
    return replace(run, **changes)


UNRELIABLE = spec.NetworkSpec(nodes=4, loss=0.3, stragglers=0.2, varying=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dec_fedtrack", "gt_gda"])  # one exchange a round, and two
def test_a_resumed_run_under_faults_ends_with_the_bits_of_an_undisturbed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(UNRELIABLE, name)
    undisturbed = by_path.train(run, tmp_path / "undisturbed", progress=False)
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    step, seen = cls.step, []

    def killed(self: Trainer, state: Any, oracle: Any, net: Any) -> Any:
        seen.append((net.ledger.rounds, net.matrix().tobytes()))
        if len(seen) == 4:
            raise KeyboardInterrupt
        return step(self, state, oracle, net)

    monkeypatch.setattr(cls, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        by_path.train(run, tmp_path / "killed", progress=False, save_seconds=0)
    folder = by_path.train(run, tmp_path / "killed", progress=False, save_seconds=0)
    assert [t for t, _ in seen] == [0, 1, 2, 3, 3, 4, 5] and seen[3] == seen[4]
    for file in ("checkpoint.safetensors", "curve.csv"):
        assert (folder / file).read_bytes() == (undisturbed / file).read_bytes(), file


@pytest.mark.slow
def test_faults_decide_the_numbers_and_the_id_and_the_record_tells_them(tmp_path: Path) -> None:
    networks = [spec.NetworkSpec(nodes=4), spec.NetworkSpec(nodes=4, seed=1)]
    networks += [
        spec.NetworkSpec(nodes=4, **change) for change in ({"loss": 0.3}, {"stragglers": 0.3}, {"varying": True})
    ]
    networks += [UNRELIABLE, UNRELIABLE.model_copy(update={"seed": 1})]
    runs = [asked(network) for network in networks]
    assert len({run.id for run in runs}) == len(runs)
    folders = [by_path.train(run, tmp_path, progress=False) for run in runs]
    records = [files.read_json(folder / "run.json") for folder in folders]
    sums = [record["checkpoint_sha256"] for record in records]
    assert sums[0] == sums[1]  # nothing random in a ring
    assert len(set(sums)) == len(sums) - 1
    assert [record["settings"]["network"]["loss"] for record in records] == [0, 0, 0.3, 0, 0, 0.3, 0.3]
    assert len({str(record["ledger"]) for record in records}) == 1  # lost messages were sent
    assert all(0 < record["classifier"]["consensus"] < 1 for record in records)


def test_every_setting_of_a_network_is_told_and_the_committed_runs_have_their_ids(tracked: Path) -> None:
    settings = spec.NetworkSpec().settings()
    faults = ["loss", "stragglers", "varying"]
    assert list(settings) == ["graph", "nodes", "weights", "pi", "probability", "seed", *faults, "matrix_sha256"]
    assert spec.NetworkSpec(loss=0, stragglers=0.0, varying=False).settings() == settings
    here = {folder.name for folder in (tracked / "results" / "runs").iterdir()}
    for name in ("table2", "robust-network"):
        assert {run.id for _, run in spec.read(tracked / "tables" / f"{name}.toml").runs()} <= here


def test_the_command_line_takes_faults_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    arguments = ["train", "--rounds", "2", "--results", str(tmp_path)]
    outcome = CliRunner().invoke(cli.app, [*arguments, "--loss", "0.2", "--stragglers", "0.1", "--varying"])
    assert outcome.exit_code == 0, outcome.output
    (record,) = [files.read_json(path) for path in tmp_path.glob("runs/*/run.json")]
    settings = record["settings"]["network"]
    assert (settings["loss"], settings["stragglers"], settings["varying"]) == (0.2, 0.1, True)
    outcome = CliRunner().invoke(cli.app, [*arguments, "--loss", "1"])
    assert isinstance(outcome.exception, BadInput) and "less than 1" in str(outcome.exception)


# Tables


TABLE = """
title = "Tiny networks"
caption = "Two methods on digits * by network."
layout = "networks"
n_examples = 30
curve_points = 1
curve_examples = 20

[network]
nodes = 4

[defaults]
rounds = 2
[defaults.problem]
dataset = "digits"
eps = 0.1
[defaults.trainers.k_gt]
eta_c = 0.2
batch = 32
[defaults.trainers.dec_fedtrack]
eta_c = 0.2
eta_d = 1.0
batch = 32
[[defaults.attacks]]
name = "fgsm"
eps = [0.1]

[[blocks]]
title = "Ring"

[[blocks]]
title = "Bad ring"
network = { loss = 0.3, stragglers = 0.1, varying = true }

[[blocks]]
title = "Complete"
network = { graph = "complete", weights = "uniform", nodes = 3 }
trainers.k_gt.batch = 16
"""


@pytest.mark.slow
def test_a_table_by_network_is_made_and_rendered(tmp_path: Path) -> None:
    file = tmp_path / "tables" / "tiny.toml"
    file.parent.mkdir()
    file.write_text(TABLE)
    wanted, results = spec.read(file), tmp_path / "results"
    folders = by_path.make(wanted, results, progress=False)
    assert len(set(folders)) == 6
    old = files.read_sealed(folders[0] / "run.json")
    old["classifier"]["consensus"] = None  # a run in which it was not measured
    files.write_sealed(folders[0] / "run.json", old)
    written = by_path.report(wanted, "tiny", results, file.parent)
    assert [path.name for path in written] == ["leaderboard.csv", "tiny.json", "tiny.csv", "tiny.md", "tiny.tex"]
    table = pd.read_csv(file.with_suffix(".csv"))
    assert len(table) == 3 * 2 * 5
    records = {folder.name: files.read_json(folder / "run.json") for folder in folders}
    bad = records[wanted.run(wanted.blocks[1], "dec_fedtrack", 0).id]
    means = table[(table["loss"] == 0.3) & (table["method"] == "dec_fedtrack")].set_index("measure")["mean"]
    assert means["clean"] == pytest.approx(bad["classifier"]["clean"]["mean_model"], abs=1e-6)
    assert means["node_min"] == pytest.approx(bad["classifier"]["clean"]["node_min"], abs=1e-6)
    assert means["consensus"] == pytest.approx(bad["classifier"]["consensus"], abs=1e-6)
    (cell,) = [files.read_json(path) for path in (results / "runs" / bad["id"] / "attacks").glob("*.json")]
    assert means["fgsm@0.1"] == pytest.approx(cell["robust_acc"], abs=1e-6)
    text = file.with_suffix(".md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [len(line) for line in lines] == [4 + 2 * 4] * 5
    assert lines[2][:4] == ["ring", "4", "0.889", "none"] and lines[2][7] == "--"  # K-GT's spread
    assert lines[3][:4] == ["ring", "4", "0.889", "30 % of links lost, 10 % of nodes late, new places every round"]
    assert lines[4][:4] == ["complete", "3", "1.000", "none"]
    assert text.startswith("Two methods on digits \\* by network.") and "1 of 30 entries are missing" in text
    latex = file.with_suffix(".tex").read_text()
    assert "30 \\% of links lost" in latex and latex.count(r"\multicolumn{4}") == 2


def test_a_block_changes_of_the_network_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(TABLE)
    wanted = spec.read(file)
    ring, bad, complete = (wanted.network_of(block) for block in wanted.blocks)
    assert ring is wanted.network
    assert bad == spec.NetworkSpec(nodes=4, loss=0.3, stragglers=0.1, varying=True)
    assert (complete.graph, complete.nodes, complete.loss) == ("complete", 3, 0.0)
    assert [run.network for _, run in wanted.runs()] == [ring, ring, bad, bad, complete, complete]
    batches = [run.trainer_settings["batch"] for _, run in wanted.runs()]
    assert batches == [32, 32, 32, 32, 16, 32]  # and of the defaults likewise
    file.write_text(TABLE.replace("loss = 0.3", "lost = 0.3"))
    with pytest.raises(BadInput, match=r"'blocks.1.network.lost': no such setting; there are: graph, nodes, .*loss"):
        spec.read(file)
    file.write_text(TABLE.replace("[[blocks]]", "[[block]]"))
    with pytest.raises(BadInput, match="'blocks': field required"):
        spec.read(file)


def test_the_table_of_networks_gives_every_network_the_same_total_batch_and_the_same_problem() -> None:
    wanted = spec.read(ROOT / "tables" / "robust-network.toml")
    ids = set()
    steps: dict[str, dict[str, Any]] = {}
    for block, run in wanted.runs():
        ids.add(run.id)
        assert run.network.nodes * run.trainer_settings["batch"] == 640
        assert run.problem == wanted.blocks[0].problem
        rest = {**run.trainer_settings, "batch": 0}
        assert steps.setdefault(run.trainer, rest) == rest  # the same step sizes on all networks
        W = run.network.build()
        assert set(W[W > 0].round(12)) == {round(1 / (W[0] > 0).sum(), 12)}, block.title  # one weight in all of W
    assert len(ids) == 18

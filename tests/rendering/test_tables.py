"""What is committed under tables/ can be rebuilt, byte for byte, from what is committed under results/.

The figures' points are in tests/commands/test_command_line.py, which renders them.
"""

from pathlib import Path

import pandas as pd
import pytest

from robustbench_dec.commands.options import Part
from robustbench_dec.commands.tables import chosen
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.rendering import style
from robustbench_dec.specs import table as spec
from robustbench_dec.store.results import Results
from tests.support import ROOT, asked_by, by_path, repository

TABLES = [ROOT / path for path in repository.tracked("tables")]
SPECIFIED = [path for path in TABLES if path.suffix == ".toml" and spec.layout(path) not in ("claims", "protocol")]
ATTACKED = [path for path in SPECIFIED if spec.read(path).blocks[0].attacks]
RENDERED = [path for path in ATTACKED if path.with_suffix(".csv") in TABLES]
BY_NETWORK = [path.stem for path in RENDERED if spec.read(path).layout == "networks"]
BY_METHOD = [path.stem for path in RENDERED if spec.read(path).layout == "methods"]
BY_RADIUS = [path.stem for path in RENDERED if spec.read(path).layout == "radius"]
BY_ATTACK = [path.stem for path in RENDERED if path.stem not in (*BY_NETWORK, *BY_METHOD, *BY_RADIUS)]


def test_table_2_and_its_rows_by_radius_are_committed() -> None:
    assert "table2" in BY_ATTACK and "table2-radius" in BY_RADIUS


@pytest.mark.slow
@pytest.mark.parametrize("stem", [*BY_ATTACK, *BY_NETWORK, *BY_METHOD, *BY_RADIUS])
def test_committed_tables_are_rebuilt_from_committed_results(
    stem: str, tracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "drawn", lambda figure, kind: b"")  # tests/docs/test_commands.py has them drawn
    path = tracked / "tables" / f"{stem}.toml"
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "runs").symlink_to(tracked / "results" / "runs")
    by_path.report(chosen(path, Part())[0], path.stem, tmp_path / "results", tmp_path)
    for ending in (".csv", ".md", ".tex", "-vs-paper.md", "-vs-paper.csv"):
        committed = path.with_name(path.stem + ending)
        if committed.is_file():
            assert (tmp_path / committed.name).read_bytes() == committed.read_bytes(), ending


@pytest.mark.parametrize("stem", [*BY_ATTACK, *BY_NETWORK, *BY_METHOD, *BY_RADIUS])
def test_the_committed_results_tell_the_runs_of_every_table(stem: str, tracked: Path) -> None:
    path = tracked / "tables" / f"{stem}.toml"
    assert set(Results(tracked / "results").tables()[stem].networks) == {
        run.id for _, run in chosen(path, Part())[0].runs()
    }


@pytest.mark.parametrize("stem", BY_ATTACK)
def test_every_number_of_a_committed_table_is_in_the_leaderboard(stem: str, tracked: Path) -> None:
    path = tracked / "tables" / f"{stem}.toml"
    rows = leaderboard.read(tracked / "results" / "leaderboard.csv")
    asked = Results(tracked / "results").tables()[stem].cells
    pairs = zip(rows["run_id"], rows["cell"], strict=True)
    rows = rows[[cell in asked.get(run_id, ()) for run_id, cell in pairs]]  # not what others have added
    assert asked_by(rows, path.stem).all()
    means = rows.groupby(["dataset", "method", "attack", "eps"])["robust_acc"].mean()
    table = pd.read_csv(path.with_suffix(".csv"))
    table = table[(table["attack"] != "clean") & (table["seeds"] > 0)].set_index(["dataset", "method", "attack", "eps"])
    assert len(table) == len(means) > 0
    assert (table["mean"] - means).abs().max() < 1e-5


@pytest.mark.parametrize("stem", BY_NETWORK)
def test_every_attacked_number_of_a_committed_table_by_network_is_in_the_leaderboard(stem: str, tracked: Path) -> None:
    path = tracked / "tables" / f"{stem}.toml"
    names = ["graph", "nodes", "loss", "stragglers", "varying"]
    networks = {run.id: run.network.model_dump(include={*names}) for _, run in spec.read(path).runs()}
    rows = leaderboard.read(tracked / "results" / "leaderboard.csv")
    rows = rows[rows["run_id"].isin(networks) & (rows["submitted"] == "")].reset_index(drop=True)
    rows = rows.join(pd.DataFrame([networks[run_id] for run_id in rows["run_id"]]))
    rows["measure"] = [f"{attack}@{eps:g}" for attack, eps in zip(rows["attack"], rows["eps"], strict=True)]
    means = rows.groupby([*names, "method", "measure"])["robust_acc"].mean()
    table = pd.read_csv(path.with_suffix(".csv"))
    table = table[table["measure"].str.contains("@") & (table["seeds"] > 0)].set_index([*names, "method", "measure"])
    assert len(table) == len(means) > 0
    assert (table["mean"] - means).abs().max() < 1e-5


def test_attacks_of_the_committed_table_are_sound(tracked: Path) -> None:
    """Accuracy falls with the radius, and PGD leaves at most half a point more than FGSM, in the mean over seeds."""
    rows = leaderboard.read(tracked / "results" / "leaderboard.csv")
    rows = rows[asked_by(rows, "table2") & (rows["submitted"] == "")]
    means = rows.groupby(["dataset", "method", "attack", "eps"])["robust_acc"].mean()
    for (dataset, method), _ in means.groupby(["dataset", "method"]):
        for attack in ("fgsm", "pgd", "uap_annealed"):
            curve = means[dataset, method, attack].sort_index()
            assert curve.is_monotonic_decreasing, (dataset, method, attack)
        assert (means[dataset, method, "pgd"] <= means[dataset, method, "fgsm"] + 0.005).all()

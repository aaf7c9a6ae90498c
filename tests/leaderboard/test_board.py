"""What the board promises: one row per network, its numbers those of the cells, the worst case a join of their bits."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import board, labelled_rows
from robustbench_dec.leaderboard.worst_case import beside, within, worst_case
from robustbench_dec.store.bits import pack
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Results
from tests.support import asked_by


@pytest.fixture(scope="module")
def results(tracked: Path) -> Results:
    return Results(tracked / "results")


@pytest.fixture(scope="module")
def rows(results: Results) -> pd.DataFrame:
    return labelled_rows.read(results).reset_index(drop=True)


@pytest.fixture(scope="module")
def tables(results: Results, rows: pd.DataFrame) -> list[board.Table]:
    return board.tables(rows, labelled_rows.runs(results, rows["run_id"]), labelled_rows.tables(results))


def cell(attack: str, eps: float, right: list[bool], **more: object) -> CellRecord:
    fields: dict[str, object] = {
        **{"versions": {}, "threads": 1, "wall_s": 0.0, "created_utc": "", "git_commit": None, "schema_version": 1},
        **{"run_id": "r", "dataset": "mnist", "method": "k_gt", "seed": 0, "submitted": "", "source_sha256": None},
        **{"settings": {}, "norm": "Linf", "universal": False, "part": "test", "batch_size": 1, "rarest_class": 0.1},
        **{"clean_acc": 1.0, "attack_seed": 0, "forwards": 0, "backwards": 0, "zero_gradients": None, "flags": ()},
        **{"checkpoint_sha256": "00", "perturbation_sha256": None, "attack": attack, "eps": eps},
        **{"n_examples": len(right), "n_correct": sum(right), "robust_acc": sum(right) / len(right)},
    }
    given = {name: value for name, value in (fields | more).items() if name in CellRecord.model_fields}
    return CellRecord(**given, bits=pack(torch.tensor(right)))  # type: ignore[arg-type]


outcomes = st.lists(st.lists(st.booleans(), min_size=5, max_size=9), min_size=1, max_size=5)


@pytest.mark.slow
@given(outcomes)
def test_the_worst_case_is_never_above_an_attack_on_its_images(rights: list[list[bool]]) -> None:
    cells = [cell(f"attack{place}", 0.1, right) for place, right in enumerate(rights)]
    worst = worst_case(cells)
    count = min(map(len, rights))
    assert len(worst.right) == count
    assert worst.right.tolist() == [all(right[image] for right in rights) for image in range(count)]
    assert all(worst.accuracy <= each.right[:count].double().mean() for each in cells)
    alone = {place: sum(not right[image] and all(other[image] for k, other in enumerate(rights) if k != place)
             for image in range(count)) for place, right in enumerate(rights)}  # fmt: skip
    assert dict(worst.alone) == {f"attack{place}": broken for place, broken in alone.items()}


def test_beside_each_cell_stands_the_worst_case_on_its_own_images() -> None:
    """A cell on fewer images says nothing beside one on more; it would count on some of them and on others not."""
    cells = [
        cell("fgsm", 0.1, [True, True, False, True]),
        cell("pgd", 0.1, [False, True]),
        cell("pgd", 0.2, [True, True, True, False]),
        cell("mine", 0.1, [False] * 4, norm="L2"),
    ]
    assert beside(cells) == [0.75, 0.5, 0.5, 0.0]  # TTFT, FT, TTFF, FFFF


def test_the_column_is_below_every_attack_of_the_stored_results(rows: pd.DataFrame) -> None:
    assert (rows["worst_case"] <= rows["robust_acc"] + 1e-12).all()
    key = ["checkpoint_sha256", "norm", "n_examples"]
    pairs = rows[[*key, "eps", "worst_case"]].merge(rows[[*key, "eps", "robust_acc"]], on=key, suffixes=("", "_other"))
    pairs = pairs[pairs["eps_other"] <= pairs["eps"]]
    assert len(pairs) > 2 * len(rows) and (pairs["worst_case"] <= pairs["robust_acc"] + 1e-12).all()
    same = rows.groupby(["checkpoint_sha256", "norm", "eps", "n_examples"])["worst_case"]
    assert (same.nunique() == 1).all()
    falling = rows.sort_values("eps").groupby(["checkpoint_sha256", "norm", "n_examples"])["worst_case"]
    assert falling.apply(lambda worst: worst.is_monotonic_decreasing).all()


def test_a_worst_case_has_radii_up_to_its_own_in_its_norm_and_one_network() -> None:
    cells = [cell("pgd", 0.1, [True]), cell("pgd", 0.3 - 0.2, [True]), cell("fgsm", 0.2, [True])]
    cells.append(cell("cw", 0.1, [False], norm="L2"))
    assert within(cells, "Linf", 0.1) == cells[:2] and within(cells, "L2", 0.5) == cells[3:]
    with pytest.raises(BadInput, match="one network"):
        worst_case([cells[0], cell("pgd", 0.1, [True], checkpoint_sha256="11")])


@pytest.mark.slow
def test_what_is_bold_on_the_page_has_an_interval_without_0_in_the_table(
    tables: list[board.Table], tracked: Path
) -> None:
    margins = pd.read_csv(tracked / "tables" / "table2-vs-paper.csv").set_index(["dataset", "attack", "eps"])
    bold = [
        margins.loc[(block.dataset, column.attack, column.eps)]
        for block in tables[0].blocks
        for column in block.columns
        for network in block.networks
        if column.attack != "strong" and network.attacks[column.key].best  # the table has no such column
    ]
    assert bold and all(row["low"] > 0 or row["high"] < 0 for row in bold)


def test_table_2_comes_first_with_the_papers_numbers(tables: list[board.Table], rows: pd.DataFrame) -> None:
    first = tables[0]
    assert (first.stem, first.title) == ("table2", "Table 2")
    mnist = first.blocks[0]
    assert (mnist.dataset, mnist.norm) == ("mnist", "Linf")
    assert {network.title for network in mnist.networks} == {"K-GT", "Dec-FedTrack"}
    by_method = {network.method: network for network in mnist.networks}
    entry = by_method["k_gt"].attacks["pgd@0.1"]
    own = rows[asked_by(rows, "table2") & (rows["dataset"] == "mnist") & (rows["method"] == "k_gt")]
    here = own[(own["attack"] == "pgd") & (own["eps"] == 0.1)]
    assert entry.mean == pytest.approx(here["robust_acc"].mean()) and entry.std == pytest.approx(
        here["robust_acc"].std()
    )
    assert (entry.paper, entry.seeds, entry.images) == (pytest.approx(0.7467), here["seed"].nunique(), 10_000)
    assert by_method["dec_fedtrack"].clean.paper == pytest.approx(0.9914)


@pytest.mark.slow
def test_a_tables_column_is_its_own_cell_and_a_longer_attack_counts_in_the_worst_case(
    tables: list[board.Table], rows: pd.DataFrame, results: Results
) -> None:
    """UAP with twice the steps is stored beside Table 2's: no column, but a worst case. So is the former UAP."""
    asked = results.tables()["table2"].cells
    here = rows[asked_by(rows, "table2") & (rows["dataset"] == "mnist") & (rows["method"] == "k_gt")]
    here = here[(here["eps"] == 0.2) & here["universal"]]
    of_table = [stem in asked[run_id] for run_id, stem in here[["run_id", "cell"]].itertuples(index=False)]
    own, others = here[of_table], here[[not each for each in of_table]]
    assert set(own["attack"]) == {"uap_annealed"} and set(others["attack"]) == {"uap_annealed", "uap"}
    longer = others[others["attack"] == "uap_annealed"]
    assert len(own) == len(longer) > 1 and (longer["steps"] == 2 * own["steps"].iloc[0]).all()
    (network,) = (network for network in tables[0].blocks[0].networks if network.method == "k_gt")
    assert network.attacks["uap_annealed@0.2"].mean == pytest.approx(own["robust_acc"].mean())
    for _, cells in here.groupby(["attack", "steps"]):
        assert network.worst["0.2"].mean <= cells["robust_acc"].mean()


def test_a_table_has_no_column_of_the_attack_that_took_the_place_of_its_own(tables: list[board.Table]) -> None:
    universal = {
        table.stem: {column.attack for block in table.blocks for column in block.columns if column.universal}
        for table in tables
    }
    assert universal["table2"] == {"uap_annealed"} and universal["table2-radius"] == {"uap"} == universal["methods"]


def test_every_row_of_the_leaderboard_is_behind_a_network(tables: list[board.Table], rows: pd.DataFrame) -> None:
    behind = [
        place for table in tables for block in table.blocks for network in block.networks for place in network.rows
    ]
    assert sorted({*behind}) == list(rows.index)


def test_worst_cases_are_below_every_attack_of_their_radius_and_fall(tables: list[board.Table]) -> None:
    checked = 0
    for network in (network for table in tables for block in table.blocks for network in block.networks):
        falling = [entry.mean for _, entry in sorted(network.worst.items(), key=lambda pair: float(pair[0]))]
        assert falling == sorted(falling, reverse=True)
        for key, entry in network.attacks.items():
            worst = network.worst[key.partition("@")[2]]
            if worst.images == entry.images:
                assert worst.mean <= entry.mean + 1e-12
                checked += 1
    assert checked > 50


def test_only_what_is_ahead_by_more_than_chance_is_best() -> None:
    def entry(*accuracies: float) -> board.Entry:
        return board._of_seeds(dict(enumerate(accuracies)), 1000, "")

    steady, close, single = entry(0.80, 0.81, 0.82), entry(0.79, 0.82, 0.80), entry(0.95)
    assert board._ahead(steady, [entry(0.70, 0.71, 0.72)])
    assert not board._ahead(steady, [close]) and not board._ahead(close, [steady])
    assert not board._ahead(single, [steady])  # one seed says nothing of the next
    assert not board._ahead(steady, [entry(0.70, 0.71, 0.72), single])
    assert not board._ahead(steady, []) and not board._ahead(steady, [None])


@pytest.mark.slow
def test_a_users_attack_counts_in_the_worst_case_and_is_no_column(results: Results, rows: pd.DataFrame) -> None:
    named = rows.assign(submitter=["Ada" if attack == "pgd" else "" for attack in rows["attack"]])
    runs = labelled_rows.runs(results, rows["run_id"])
    first = board.tables(named, runs, labelled_rows.tables(results))[0].blocks[0]
    before = board.tables(rows, runs, labelled_rows.tables(results))[0].blocks[0]
    assert {column.attack for column in first.columns} == {"fgsm", "strong", "uap_annealed"}
    assert [network.worst["0.1"].mean for network in first.networks] == [
        network.worst["0.1"].mean for network in before.networks
    ]


@pytest.mark.slow
def test_blocks_keep_norms_apart(results: Results, rows: pd.DataFrame) -> None:
    mixed = rows.assign(norm=["L2" if attack == "pgd" else "Linf" for attack in rows["attack"]])
    blocks = board.tables(mixed, {}, labelled_rows.tables(results))[0].blocks
    assert [(block.dataset, block.norm) for block in blocks] == [
        *(("mnist", "Linf"), ("mnist", "L2")),
        *(("cifar10", "Linf"), ("cifar10", "L2")),
    ]
    assert replace(blocks[1].columns[0], eps=0) == board.Column("pgd", "PGD", 0, False)
    assert all(network.worst == {} for block in blocks for network in block.networks)  # no cell is here

"""What names promise: a table's own where it has one, else what a network has otherwise, never what it lacks."""

from pathlib import Path

import pytest

from robustbench_dec.leaderboard import labelled_rows, names
from robustbench_dec.store.results import Results

PLAIN: dict[str, object] = {"network.graph": "ring", "network.nodes": 5, "network.loss": 0.0, "rounds": 30}


def named(*variants: dict[str, object], given: tuple[str | None, ...] | None = None) -> list[str]:
    families = [("mnist", "k_gt")] * len(variants)
    return names.distinct(["K-GT"] * len(variants), families, variants, given or (None,) * len(variants))


def test_a_network_is_named_by_what_it_has_otherwise() -> None:
    labels = named(
        PLAIN,
        PLAIN,
        PLAIN | {"network.loss": 0.1},
        PLAIN | {"network.nodes": 20, "network.graph": "complete", "rounds": 100},
    )
    assert labels == ["K-GT", "K-GT", "K-GT (10 % of links lost)", "K-GT (complete of 20, 100 rounds)"]


def test_the_network_that_a_table_calls_plainly_is_what_others_are_compared_with() -> None:
    lossy = PLAIN | {"network.loss": 0.1}
    assert named(PLAIN, PLAIN, lossy, given=(None, None, "K-GT")) == ["K-GT (0 % of links lost)"] * 2 + ["K-GT"]
    assert named(PLAIN, lossy, given=("K-GT", "K-GT, links lost")) == ["K-GT", "K-GT, links lost"]


def test_two_networks_never_share_a_given_name() -> None:
    assert named(PLAIN, PLAIN | {"rounds": 100}, given=("K-GT", "K-GT")) == ["K-GT", "K-GT (100 rounds)"]


@pytest.mark.parametrize("missing", [True, False])
def test_a_setting_that_is_not_said_is_its_default(missing: bool) -> None:
    """A record that is older than a setting reads as one that says the default."""
    said: dict[str, object] = {"name": "universal", "dataset": "mnist", "mirrored": False}
    if missing:
        del said["mirrored"]
    assert names.filled("problem", said)["mirrored"] is False
    twice = {f"problem.{name}": value for name, value in names.filled("problem", said | {"mirrored": True}).items()}
    own = {f"problem.{name}": value for name, value in names.filled("problem", said).items()}
    assert named(twice, own, given=("K-GT", None)) == ["K-GT", "K-GT (images as they are)"]


def test_the_normalised_networks_of_the_zoo_read_as_normalised(tracked: Path) -> None:
    """Once the page called one of them "no normalised", and credited the other's radius for what that did."""
    results = Results(tracked / "results")
    rows = labelled_rows.read(results)
    records = {run_id: run.record for run_id, run in labelled_rows.runs(results, rows["run_id"]).items()}
    mnist = rows[rows["dataset"] == "mnist"].drop_duplicates("run_id")
    normalised = [label for run_id, label in zip(mnist["run_id"], mnist["model"], strict=True)
                  if records[run_id].settings.problem["normalised"]]  # fmt: skip
    assert len(normalised) == 2 and all("normalised pixels" in label for label in normalised)
    assert not any(" no " in f" {label}".replace("(", " ") for label in {*rows["model"], *rows["attack_label"]})
    others = {*mnist["model"]} - {*normalised}
    assert not any("normalised" in label for label in others) and {"K-GT", "Dec-FedTrack"} <= others


def test_networks_of_different_settings_have_different_names(tracked: Path) -> None:
    rows = labelled_rows.read(Results(tracked / "results"))
    assert len(rows[["dataset", "model"]].drop_duplicates()) == len(rows[["dataset", "setup"]].drop_duplicates())

"""A table under a protocol: what is bold, and what is said of the paper's columns."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.margins import Margin
from robustbench_dec.rendering import attacks_table, verdicts
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.specs import table as spec
from robustbench_dec.store.bits import pack
from robustbench_dec.store.records import CellRecord
from tests.support import ROOT, by_path

BLOCK = Block("MNIST", "mnist", ("k_gt", "dec_fedtrack"), (("fgsm", 0.1), ("uap_annealed", 0.2)))
RIGHT = {
    "k_gt": {"clean": 0.99, "fgsm": 0.6, "uap_annealed": 0.7},
    "dec_fedtrack": {"clean": 0.99, "fgsm": 0.8, "uap_annealed": 0.7},
}
PAPER = {
    "mnist": {
        "k_gt": {"clean": 99.2, "fgsm@0.1": 73.1, "uap_annealed@0.2": 93.6},
        "dec_fedtrack": {"clean": 99.1, "fgsm@0.1": 78.0, "uap_annealed@0.2": 96.1},
    }
}


def cells(seeds: int, right: dict[str, dict[str, float]] = RIGHT, images: int = 400) -> list[CellRecord]:
    """Cells whose images are right at random, most of them as many as `right` says."""
    generator = np.random.default_rng(0)

    def bits(share: float) -> torch.Tensor:
        return torch.from_numpy(generator.random(images) < share)

    made = []
    for method, accuracies in right.items():
        for seed in range(seeds):
            clean = bits(accuracies["clean"])
            for attack, eps in BLOCK.columns:
                robust = bits(accuracies[attack])
                common: dict[str, Any] = {"dataset": "mnist", "method": method, "attack": attack, "eps": eps}
                common |= {"seed": seed, "n_examples": images, "clean_acc": clean.double().mean().item()}
                common |= {"robust_acc": robust.double().mean().item(), "bits": pack(robust), "clean_bits": pack(clean)}
                made.append(CellRecord.model_construct(**common))
    return made


def rendered(made: list[CellRecord]) -> tuple[str, str]:
    texts = written(made)
    return texts["t.md"], texts["t-vs-paper.md"]


def written(made: list[CellRecord]) -> dict[str, str]:
    columns = ["dataset", "method", "attack", "eps", "seed", "robust_acc", "clean_acc", "n_examples"]
    frame = pd.DataFrame([{name: getattr(cell, name) for name in columns} for cell in made])
    margins = verdicts.measured([BLOCK], made, replicates=200)
    contents = attacks_table.render(frame, [BLOCK], ROOT / "t", "A caption.", PAPER, margins)
    return {path.name: content.decode() for path, content in contents.items()}


def test_margins_come_from_the_bits_of_the_images() -> None:
    made = cells(6)
    margins = verdicts.measured([BLOCK], made, replicates=200)
    assert margins.keys() == {("mnist", "clean", 0.0), ("mnist", "fgsm", 0.1), ("mnist", "uap_annealed", 0.2)}
    for (_, attack, _), margin in margins.items():
        if attack == "clean":
            continue
        means = {
            method: np.mean([cell.robust_acc for cell in made if (cell.method, cell.attack) == (method, attack)])
            for method in BLOCK.methods
        }
        assert margin.mean == pytest.approx(means["dec_fedtrack"] - means["k_gt"])


def test_a_number_is_bold_only_where_its_lead_is_more_than_chance() -> None:
    table, _ = rendered(cells(6))
    robust = next(line for line in table.splitlines() if line.startswith("| Dec-FedTrack"))
    plain = next(line for line in table.splitlines() if line.startswith("| K-GT"))
    assert robust.count("**") == 2 and "**" in robust.split("|")[3] and "**" not in plain
    assert verdicts.measured([BLOCK], cells(1)) == {}
    alone, _ = rendered(cells(1))
    assert "**" not in alone and "95 % interval of its lead" in alone


def test_each_column_is_reproduced_or_not_or_undecided() -> None:
    _, text = rendered(cells(6))
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.count("|") == 7}
    assert lines["FGSM δ=0.1"].endswith("| reproduced |") and "| 0.031 |" in lines["FGSM δ=0.1"]
    assert lines["UAP δ=0.2"].endswith("| undecided |")
    assert "Of 2 attacked columns: 1 reproduced, 0 not reproduced, 1 undecided." in text
    worse = {"k_gt": RIGHT["dec_fedtrack"], "dec_fedtrack": RIGHT["k_gt"]}
    _, text = rendered(cells(6, worse))
    assert "Of 2 attacked columns: 0 reproduced, 1 not reproduced, 1 undecided." in text


def test_the_csv_has_the_margins_that_the_text_has() -> None:
    made = written(cells(6))
    rows = pd.read_csv(io.StringIO(made["t-vs-paper.csv"])).set_index("attack")
    assert rows.index.tolist() == ["clean", "fgsm", "uap_annealed"] and (rows["seeds"] == 6).all()
    assert rows["verdict"].tolist() == ["undecided", "reproduced", "undecided"]
    fgsm = rows.loc["fgsm"]
    assert (
        f"| {fgsm['margin']:+.2f} ± {fgsm['std']:.2f} | {fgsm['low']:+.2f} to {fgsm['high']:+.2f} |"
        in made["t-vs-paper.md"]
    )
    alone = pd.read_csv(io.StringIO(written(cells(1))["t-vs-paper.csv"]))
    assert alone[["low", "high", "p", "std"]].isna().all().all() and set(alone["verdict"]) == {"undecided"}


@pytest.mark.parametrize(
    "margin, there, expected",
    [
        (Margin(0.1, 0.05, 0.15, 0.03), 2.0, "reproduced"),
        (Margin(-0.1, -0.15, -0.05, 0.03), 2.0, "not reproduced"),
        (Margin(0.1, 0.05, 0.15, 0.06), 2.0, "undecided"),
        (Margin(0.1, -0.05, 0.15, 0.03), 2.0, "undecided"),
        (Margin(0.1, 0.05, 0.15, 0.03), float("nan"), "undecided"),
        (None, 2.0, "undecided"),
    ],
)
def test_a_verdict_needs_sign_p_and_interval(margin: Margin | None, there: float, expected: str) -> None:
    assert verdicts.verdict(margin, there) == expected


def test_cells_without_clean_outcomes_are_refused() -> None:
    made = [cell.model_copy(update={"clean_bits": ""}) for cell in cells(2)]
    with pytest.raises(BadInput, match="make its cells again"):
        verdicts.measured([BLOCK], made)


TABLE = """
title = "Under rules"
protocol = "rules.md"
seeds = [0]
n_examples = 30
curve_points = 1
[network]
nodes = 3
[[blocks]]
title = "Digits"
rounds = 3
problem = { dataset = "digits", eps = 0.1 }
trainers.k_gt = { eta_c = 0.2, batch = 16 }
trainers.dec_fedtrack = { eta_c = 1e4, eta_d = 1.0, batch = 16 }
attacks = [{ name = "fgsm", eps = [0.1] }]
"""


@pytest.mark.slow
def test_a_run_that_diverges_under_a_protocol_is_told_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(TABLE)
    (tmp_path / "rules.md").write_text("Whatever comes out is the result.")
    asked = spec.read(path)
    runs = by_path.make(asked, tmp_path / "results")
    assert [(folder / "run.json").is_file() for folder in runs] == [True, False]
    by_path.report(asked, "t", tmp_path / "results", tmp_path)
    for text in ((tmp_path / "t.md").read_text(), (tmp_path / "t.tex").read_text()):
        assert "Digits, Dec-FedTrack, seed 0: training diverged in round " in text
        assert "2 of 4 entries are missing" in text

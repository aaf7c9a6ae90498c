"""The leaderboard holds whatever settings an attack has: its columns of numbers are empty where one is none."""

import json
from pathlib import Path

import pandas as pd
import pytest

from robustbench_dec import page
from robustbench_dec.leaderboard import gather, labelled_rows
from robustbench_dec.store.results import Results
from tests.support.tiny import Made


def with_settings(made: Made, **settings: object) -> pd.DataFrame:
    """The leaderboard's row of a stored cell that was given other settings, as readers get it."""
    results = Results(made.results)
    cell = next(cell for cell in results.run(made.folders[0].name).cells() if cell.record.attack == "fgsm")
    (path,) = cell.files
    cell.record.model_copy(update={"settings": cell.record.settings | settings}).write(path)
    assert gather.rebuild(results).equals(gather.read(results.leaderboard))
    frame = labelled_rows.read(results)
    return frame[(frame["run_id"] == cell.run.id) & (frame["cell"] == cell.stem)]


@pytest.mark.parametrize(
    "settings, shown",
    [
        ({"steps": 7, "alpha": 0.5}, "7,0.5"),
        ({"steps": 7, "alpha": 2}, "7,2.0"),
        ({"steps": "many", "alpha": "auto"}, ","),
        ({"steps": "12", "alpha": "0.5"}, ","),
        ({"steps": 2.5, "alpha": [0.1, 0.2]}, ","),
        ({"steps": True, "alpha": False}, ","),
        ({"steps": 10**400, "alpha": 10**400}, ","),
    ],
)
def test_steps_and_alpha_are_numbers_or_empty_and_the_cell_keeps_what_they_were(
    settings: dict[str, object], shown: str, made: Made, tmp_path: Path
) -> None:
    row = with_settings(made, **settings)
    assert row[["steps", "alpha"]].to_csv(index=False, header=False).strip() == shown
    assert settings.items() <= json.loads(row["attack_params_json"].item()).items()
    page.write(Results(made.results), tmp_path / "index.html")


def test_two_words_for_alpha_are_two_attacks(made: Made) -> None:
    first, second = (with_settings(made, alpha=word)["strength"].item() for word in ("auto", "other"))
    assert first != second

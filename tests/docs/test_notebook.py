"""The notebook in examples/: it runs from the first cell to the last, what it shows is kept, and it is small."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import ROOT

NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_draws_y(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("rounds=30", "rounds=3")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    said = [output.text for output in shown if output.get("name") == "stderr"]
    assert [text for text in said if "IProgress not found" not in text] == []  # tqdm, where there is no ipywidgets
    assert not [output for output in shown if output.output_type == "error"]
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_the_notebook_is_kept_with_what_it_shows_and_is_small() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.outputs for cell in code)
    assert NOTEBOOK.stat().st_size < 60_000 and "/site-packages/" not in NOTEBOOK.read_text()

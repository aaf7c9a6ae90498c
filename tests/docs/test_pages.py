"""docs/: built by Sphinx without a warning; pages from the code say what the code says; examples are run."""

import doctest
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import robustbench_dec
from robustbench_dec import shelf
from tests.support import ROOT

SPHINX = ROOT / ".venv" / "docs" / "bin" / "sphinx-build"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["make_pages"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(maker: ModuleType) -> dict[str, str]:
    made: dict[str, str] = maker.pages()
    return made


@pytest.mark.slow
def test_the_docs_are_built_without_a_warning(pages: dict[str, str], tmp_path: Path) -> None:
    if not SPHINX.is_file():
        pytest.skip("no Sphinx: `make docs` installs it")
    home = tmp_path / "copy" / "docs"
    shutil.copytree(ROOT / "docs", home, ignore=shutil.ignore_patterns("made", "built", "__pycache__"))
    for folder in ("attacks", "tables", "benchmarks", "examples", "results"):
        (tmp_path / "copy" / folder).symlink_to(ROOT / folder)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / "copy")
    (tmp_path / "copy" / "robustbench_dec").mkdir()
    shutil.copy(ROOT / "robustbench_dec" / "__init__.py", tmp_path / "copy" / "robustbench_dec")
    for place, text in pages.items():
        path = home / "made" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command: list[str | Path] = [SPHINX, "-q", "-W", "--keep-going", "-b", "html", home, tmp_path / "built"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "Dec-FedTrack" in (tmp_path / "built" / "made" / "trainers" / "dec_fedtrack.html").read_text()


@pytest.mark.slow
def test_every_method_has_a_page_with_paper_formula_price_and_settings(pages: dict[str, str]) -> None:
    for name in shelf.names("trainer"):
        page = pages[f"trainers/{name}.md"]
        for head in ("## What it does", "## Its price", "## Settings", "## Where it stands"):
            assert head in page, f"{name}: {head}"
        assert "https://" in page or "In print: " in page
    for name in shelf.names("attack"):
        assert "## Settings" in pages[f"attacks/{name}.md"]
    price = pages["trainers/dec_fedtrack.md"]
    assert "K = 5, batch = 128" in price and "| exchanges with the neighbours | 1.00 |" in price
    calls = float(re.findall(r"gradients in x and y\) \| ([\d.,]+) \|", price)[0].replace(",", ""))
    assert calls == pytest.approx(5 * 128 + 128 / 30, abs=0.1)  # K batches a round, and one at the start


@pytest.mark.slow
def test_every_command_and_function_is_on_its_page(pages: dict[str, str]) -> None:
    for command in ("train", "attack", "compare", "table", "render", "zoo add", "flags"):
        assert f"## robustbench-dec {command}\n" in pages["commands.md"]
    assert "`--json`" in pages["commands.md"] and "`--log` str" in pages["commands.md"]
    for name in robustbench_dec.__all__:
        assert f"## {name}\n" in pages["functions.md"]


def test_the_picture_of_the_rooms_is_drawn_from_the_contracts(maker: ModuleType) -> None:
    drawn = (ROOT / "docs" / "rooms.svg").read_text()
    assert drawn == maker.rooms(), "the contracts have changed: `make docs` draws docs/rooms.svg anew"
    for name in (name for layer in maker.layers() for name in layer):
        assert f">{name}/<" in drawn or f">{name}<" in drawn


@pytest.mark.slow
def test_the_examples_of_the_python_page_give_what_they_show() -> None:
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "python.md"), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8"
    )
    assert tried > 10 and failed == 0


@pytest.mark.slow
def test_model_cards_are_what_hugging_face_reads(pages: dict[str, str], tmp_path: Path) -> None:
    import yaml

    from robustbench_dec.commands.app import app
    from robustbench_dec.store import zoo

    app(["zoo", "cards", "mnist/*", "--out", str(tmp_path)], standalone_mode=False)
    for entry in zoo.entries("mnist/*"):
        _, head, body = (tmp_path / entry.name / "README.md").read_text().split("---\n", 2)
        data = yaml.safe_load(head)
        assert data["datasets"] == ["mnist"] and data["license"] == "mit" and data["library_name"] == "robustbench-dec"
        (result,) = data["model-index"][0]["results"]
        clean = entry.record.classifier.clean.mean_model if entry.record.classifier else None
        assert clean is not None and result["metrics"][0]["value"] == round(100 * clean, 2)
        assert len(result["metrics"]) > 3, "the stored attacks are in the card"
        assert entry.sha256 in body and pages[f"zoo/{entry.name}.md"] == body.lstrip()

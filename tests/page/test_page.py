"""What the web page promises: it is whole and current, it asks the network for nothing, it works in a browser."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from robustbench_dec import page
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.leaderboard import view
from robustbench_dec.store.results import Results
from tests.support import ROOT
from tests.support import browser as chromium

EVIL = '<script>window.broken = true</script><img src=x onerror="window.broken = true">'


def embedded(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def with_rows(folder: Path, frame: pd.DataFrame) -> Path:
    """Results that are a leaderboard and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    leaderboard.write(frame, folder / "leaderboard.csv")
    return folder


@pytest.fixture(scope="module")
def results(tracked: Path) -> Path:
    """The committed results, without what a user has beside them."""
    return tracked / "results"


@pytest.fixture(scope="module")
def written(results: Path) -> str:
    return page.render(Results(results))


@pytest.fixture
def rows(results: Path) -> pd.DataFrame:
    return leaderboard.read(results / "leaderboard.csv")


def test_the_page_is_one_file_that_asks_for_nothing(written: str) -> None:
    assert len(written.encode()) < 1_500_000
    markup = re.sub(r"<(script|style|pre)\b.*?</\1>", "", written, flags=re.DOTALL)
    addresses = re.findall(r'\b(?:src|href|action|poster|data)\s*=\s*"([^"]*)"', markup)
    assert addresses and all(address.startswith(("#", "data:")) for address in addresses)
    (style,) = re.findall(r"<style>(.*?)</style>", written, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert "default-src 'none'" in written


def test_the_same_results_give_the_same_page(written: str, results: Path) -> None:
    assert page.render(Results(results)) == written


def test_every_row_of_the_leaderboard_is_on_the_page_in_full(written: str, rows: pd.DataFrame) -> None:
    data = embedded(written)
    assert len(data["rows"]) == len(rows)
    for values, (_, row) in zip(data["rows"], rows.iterrows(), strict=True):
        for name, value in zip(data["columns"], values, strict=True):
            assert value == view.json_value(row[name])
    assert sorted(index for group in data["groups"] for index in group["rows"]) == list(range(len(rows)))
    assert set(data["runs"]) == set(data["curves"]) == set(rows["run_id"])


def test_the_committed_page_shows_the_committed_leaderboard(written: str, tracked: Path) -> None:
    there = embedded((tracked / "tables" / "index.html").read_text(encoding="utf-8"))
    here = embedded(written)
    assert there["columns"] == here["columns"] and there["rows"] == here["rows"], "out of date: run `make page`"


def test_without_scripts_the_means_can_still_be_read(written: str) -> None:
    (plain,) = re.findall(r"<noscript>(.*?)</noscript>", written, re.DOTALL)
    groups = embedded(written)["groups"]
    assert plain.count("<tr>") == 1 + len(groups)
    assert all(f"{100 * group['robust']:.1f}" in plain for group in groups)


def test_pictures_are_of_every_trained_and_universal_perturbation(
    written: str, rows: pd.DataFrame, results: Path
) -> None:
    pictures = embedded(written)["pictures"]
    kinds = [one["kind"] for one in pictures]
    assert kinds.count("trained") == len(list((results / "runs").glob("*/perturbation.safetensors")))
    assert kinds.count("attack") == rows["universal"].sum()
    assert all(one["uri"].startswith("data:image/png;base64,") for one in pictures)


def test_text_of_users_stays_inside_its_json(tmp_path: Path, rows: pd.DataFrame) -> None:
    results = with_rows(tmp_path, rows.assign(method=EVIL, attack=EVIL, run_id=EVIL, reliability_flags=EVIL))
    text = page.render(Results(results))
    assert text.count("<script") == text.count("</script>") == 2 and "<img" not in text
    assert embedded(text)["groups"][0]["method"] == EVIL


def test_a_leaderboard_that_grows_is_shown_as_far_as_it_is(tmp_path: Path, rows: pd.DataFrame) -> None:
    fewer = rows[(rows["seed"] == 0) & ~((rows["attack"] == "pgd") & (rows["method"] == "k_gt"))]
    data = embedded(page.render(Results(with_rows(tmp_path, fewer))))  # no run.json, no curve, no picture
    assert len(data["rows"]) == len(fewer) and data["curves"] == {} and data["pictures"] == []


@pytest.mark.parametrize("made", ["nothing", "head only", "another file"])
def test_without_rows_there_is_a_sentence_and_no_page(tmp_path: Path, rows: pd.DataFrame, made: str) -> None:
    if made == "head only":
        with_rows(tmp_path, rows[:0])
    elif made == "another file":
        (tmp_path / "leaderboard.csv").write_text("a,b\n1,2\n")
    answer = CliRunner().invoke(app, ["page", "--results", str(tmp_path), "--out", str(tmp_path / "index.html")])
    assert isinstance(answer.exception, BadInput) and "leaderboard" in str(answer.exception)
    assert not (tmp_path / "index.html").exists()


def test_a_broken_perturbation_is_named(tmp_path: Path, results: Path) -> None:
    shutil.copytree(results, tmp_path / "results")
    path = next((tmp_path / "results" / "runs").glob("*/perturbation.safetensors"))
    path.write_bytes(b"not this")
    with pytest.raises(BadInput, match=re.escape(str(path))):
        page.render(Results(tmp_path / "results"))


def test_the_wheel_has_all_parts_of_the_page() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "robustbench_dec.page" in shipped["packages"]
    for package, patterns in shipped["package-data"].items():
        folder = ROOT / shipped["package-dir"].get(package, package.replace(".", "/"))
        matched = {path for pattern in patterns for path in folder.glob(pattern)}
        present = {path for path in folder.iterdir() if path.suffix in (".html", ".css", ".js", ".bib")}
        assert matched and present <= matched


# ---- in a real browser ----


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    if chromium.executable() is None:
        pytest.skip("no Chromium on this machine: install Debian's package chromium, or set CHROMIUM to its path")
    with chromium.started(tmp_path_factory.mktemp("profile")) as tab:
        tab.resize(1280, 900)
        tab.prefer("light")
        yield tab


@pytest.fixture(scope="module")
def address(written: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(written, encoding="utf-8")
    return path.as_uri()


def column(tab: chromium.Browser, key: str) -> list[str]:
    """The texts of a column, from top to bottom."""
    found: list[str] = tab.run(
        f"[...document.querySelectorAll('#rows tr.row .col-{key}')].map((cell) => cell.innerText)"
    )
    return found


def click(tab: chromium.Browser, selector: str) -> None:
    tab.run(f"document.querySelector({json.dumps(selector)}).click()")


def choose(tab: chromium.Browser, name: str, value: str) -> None:
    tab.run(
        f"{{ const field = document.querySelector('form.filters [name={name}]'); field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


def test_the_page_opens_without_errors_and_without_the_network(tab: chromium.Browser, address: str) -> None:
    tab.requests.clear()
    tab.errors.clear()
    tab.open(address)
    assert column(tab, "model") and tab.run("document.querySelectorAll('.chart').length") >= 12
    assert tab.run("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    asked = [one for one in tab.requests if not one.startswith(("data:", "about:"))]
    assert asked == [address] and tab.errors == []


def test_a_click_on_a_head_sorts_and_says_so(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    assert tab.run("document.querySelector('th[aria-sort]')") is None
    for direction, reverse in (("descending", True), ("ascending", False)):
        click(tab, "#rows button[data-key=robust]")
        numbers = [float(text.split()[0]) for text in column(tab, "robust")]
        assert numbers == sorted(numbers, reverse=reverse) and len(set(numbers)) > 5
        assert tab.run("document.querySelector('th.col-robust').getAttribute('aria-sort')") == direction
    click(tab, "#rows button[data-key=robust]")  # the third click brings the page's own order back
    assert tab.run("document.querySelector('th[aria-sort]')") is None


def test_filters_leave_what_was_asked_for(tab: chromium.Browser, address: str, rows: pd.DataFrame) -> None:
    tab.open(address)
    click(tab, "input[name=view][value=runs]")
    choose(tab, "dataset", "cifar10")
    choose(tab, "attack", "pgd")
    choose(tab, "eps", "0.005")
    wanted = rows[(rows["dataset"] == "cifar10") & (rows["attack"] == "pgd") & (rows["eps"] == 0.005)]
    assert len(column(tab, "model")) == len(wanted) and set(column(tab, "eps")) == {"0.005"}
    assert tab.run("document.querySelector('#count').textContent").startswith(f"{len(wanted)} of {len(rows)} ")
    choose(tab, "q", "k-gt SEED 1")
    assert len(column(tab, "model")) == len(wanted[(wanted["method"] == "k_gt") & (wanted["seed"] == 1)]) == 1
    choose(tab, "q", "there is no such thing")
    assert column(tab, "model") == [] and "Reset" in tab.run("document.querySelector('#rows tbody').innerText")
    click(tab, "#reset")
    assert len(column(tab, "model")) == len(rows)


def test_a_row_opens_to_all_that_is_behind_its_number(
    tab: chromium.Browser, address: str, rows: pd.DataFrame, results: Path
) -> None:
    tab.open(address)
    click(tab, "input[name=view][value=runs]")
    choose(tab, "attack", "uap")
    click(tab, "[data-open]")
    assert tab.run("document.querySelector('[data-open]').getAttribute('aria-expanded')") == "true"
    row = rows[
        rows["run_id"] + "/" + rows["cell"] == tab.run("document.querySelector('[data-open]').dataset.open")
    ].iloc[0]
    run = json.loads((results / "runs" / row["run_id"] / "run.json").read_text())
    details = tab.run("document.querySelector('#details').innerText")
    behind = [row[name] for name in ("checkpoint_sha256", "git_commit", "created_utc", "torch_version")]
    behind += [f"{row[name]:,}" for name in ("attack_forwards", "n_correct")] + [f"{100 * row['ci_low']:.2f}"]
    behind += [run["classifier"]["data_digest"], run["settings"]["network"]["graph"]]
    assert all(text in details for text in behind)
    for settings in (json.loads(row["attack_params_json"]), run["settings"]["trainer"], run["settings"]["problem"]):
        assert all(name in details for name, value in settings.items() if value is not None)
    assert tab.run("document.querySelectorAll('#details img').length") >= 1
    click(tab, "[data-open]")
    assert tab.run("document.querySelector('#details')") is None


def test_means_name_their_seeds_and_lead_to_them(tab: chromium.Browser, address: str) -> None:
    tab.open(f"{address}#dataset=cifar10&attack=fgsm")
    click(tab, "[data-open]")
    assert tab.run("document.querySelectorAll('#details tbody tr').length") == 3
    run_id = tab.run("document.querySelector('#details tbody a').textContent")
    click(tab, "#details tbody a")
    tab.wait("document.querySelector('input[name=view][value=runs]').checked")
    assert run_id in tab.run("document.querySelector('#details').innerText")


def test_a_deep_link_restores_the_view(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    click(tab, "input[name=view][value=runs]")
    choose(tab, "dataset", "mnist")
    choose(tab, "q", "seed 0")
    click(tab, "#rows button[data-key=robust]")
    click(tab, "[data-open]")
    click(tab, "input[name=axis][value=megabytes]")
    look = "[location.hash, document.querySelector('main').innerText, document.querySelector('[name=dataset]').value]"
    hash_, text, chosen = tab.run(look)
    assert {"view=runs", "dataset=mnist", "sort=-robust", "axis=megabytes"} <= set(hash_[1:].split("&"))
    tab.open(address + hash_)
    assert tab.run(look) == [hash_, text, chosen] and chosen == "mnist" and "Megabytes sent" in text
    tab.open(f"{address}#dataset=nowhere&sort=-nothing&open=gone&eps=none&view=odd&axis=up")  # never an error
    assert column(tab, "model") == [] and tab.errors == []


def test_the_keyboard_reaches_everything(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    tab.key("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    tab.key("Enter")
    assert tab.run("document.activeElement.id") == "leaderboard"
    for _ in range(30):
        tab.key("Tab")
        if tab.run("document.activeElement.dataset.key") == "robust":
            break
    tab.key("Enter")
    assert tab.run("document.querySelector('th.col-robust').getAttribute('aria-sort')") == "descending"
    assert tab.run("document.activeElement.dataset.key") == "robust"  # the focus stays where it was
    tab.run("document.querySelector('[data-open]').focus()")
    tab.key(" ")
    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.run("document.querySelector('.chart').focus()")
    tab.key("ArrowRight")
    tip = tab.run("document.querySelector('.chart .tip').innerText")
    assert "radius δ: 0" in tip and "K-GT" in tip and "%" in tip


def test_dark_follows_the_system_and_the_button(tab: chromium.Browser, address: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.open(address)
    light = tab.run(ground)
    click(tab, "#theme")
    dark = tab.run(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
    tab.open(address)
    assert tab.run(ground) == dark  # remembered
    click(tab, "#theme")
    assert tab.run(ground) == light
    tab.run("localStorage.clear()")
    tab.prefer("dark")
    tab.open(address)
    assert tab.run(ground) == dark
    tab.prefer("light")


def test_a_phone_shows_it_without_scrolling_sideways(tab: chromium.Browser, address: str) -> None:
    tab.resize(390, 844, phone=True)
    try:
        for hash_ in ("", "#view=runs"):
            tab.open(address + hash_)
            assert tab.run("document.documentElement.scrollWidth") <= 390
            click(tab, "[data-open]")
            assert tab.run("document.documentElement.scrollWidth") <= 390
            assert tab.run("document.querySelector('#details').getBoundingClientRect().right") <= 390
            inside = tab.run("document.querySelector('#rows .col-robust').getBoundingClientRect().right")
            assert hash_ or inside <= 390  # the number itself needs no scrolling
    finally:
        tab.resize(1280, 900)


def test_a_method_named_like_markup_stays_text(tab: chromium.Browser, tmp_path: Path, rows: pd.DataFrame) -> None:
    named = rows.assign(method=EVIL, attack=EVIL, topology=EVIL, run_id=EVIL, reliability_flags=EVIL, submitted_by=EVIL)
    named["attack_params_json"] = json.dumps({EVIL: EVIL})
    path = page.write(Results(with_rows(tmp_path, named)), tmp_path / "index.html")
    tab.errors.clear()
    tab.open(path.as_uri())
    click(tab, "[data-open]")
    click(tab, "input[name=view][value=runs]")
    click(tab, "[data-open]")
    assert EVIL in column(tab, "model")[0] and EVIL in tab.run("document.querySelector('#details').innerText")
    assert EVIL in tab.run("[...document.querySelectorAll('[name=method] option')].map((one) => one.text).join()")
    assert tab.run("document.scripts.length") == 2 and tab.run("document.images.length") == 0
    assert tab.run("window.broken === undefined") and tab.errors == []


def test_rows_of_users_are_marked_and_can_be_chosen(tab: chromium.Browser, tmp_path: Path, rows: pd.DataFrame) -> None:
    mine = rows.assign(submitted_by=["Ada" if attack == "fgsm" else "" for attack in rows["attack"]])
    tab.open(page.write(Results(with_rows(tmp_path, mine)), tmp_path / "index.html").as_uri())
    choose(tab, "source", "users")
    assert {label.split()[0] for label in column(tab, "attack")} == {"FGSM"}  # on 1,000 and on 10,000 images
    assert tab.run("document.querySelectorAll('.badge').length") > 0


@pytest.mark.parametrize("form", ["csv", "latex", "bibtex"])
def test_a_download_is_what_the_command_exports(tab: chromium.Browser, address: str, form: str, results: Path) -> None:
    tab.open(f"{address}#dataset=mnist&attack=uap&view=runs&sort=-robust")
    command = tab.run("document.querySelector('#command').textContent")
    assert command == "robustbench-dec export --format csv --dataset mnist --attack uap"
    options = ["export", "--format", form, *command.split()[4:], "--results", str(results)]
    assert tab.run(f"{form}Text()") == CliRunner().invoke(app, options).stdout

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
from robustbench_dec.leaderboard import labelled_rows
from robustbench_dec.page import figures_and_links
from robustbench_dec.specs import table as specs
from robustbench_dec.store.results import Results
from tests.support import ROOT, asked_by, by_path
from tests.support import browser as chromium
from tests.support.tiny import Made

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


@pytest.fixture(scope="module")
def placed(results: Path, tracked: Path) -> str:
    """The page as it is beside the committed figures."""
    return page.render(Results(results), folder=tracked / "tables")


@pytest.mark.slow
def test_the_page_is_one_file_that_asks_for_nothing(placed: str) -> None:
    assert len(placed.encode()) < 3_100_000  # of 250 networks, 1,100 cells
    markup = re.sub(r"<(script|style|pre)\b.*?</\1>", "", placed, flags=re.DOTALL)
    sources = re.findall(r'\b(?:src|action|poster|data)\s*=\s*"([^"]*)"', markup)
    assert sources and all(source.startswith("data:") for source in sources)
    (style,) = re.findall(r"<style>(.*?)</style>", placed, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert "default-src 'none'" in placed


def test_links_lead_to_sections_to_papers_and_to_files_that_are_there(placed: str, tracked: Path) -> None:
    markup = re.sub(r"<(script|style|pre)\b.*?</\1>", "", placed, flags=re.DOTALL)
    links = re.findall(r'\bhref\s*=\s*"([^"]*)"', markup)
    papers = [link for link in links if link.startswith(("https://arxiv.org/", "https://doi.org/"))]
    files = [link for link in links if not link.startswith(("#", "data:", "https://"))]
    assert len(papers) >= 4 and len(papers) == sum(link.startswith("http") for link in links)
    assert {"figures-1.pdf", "figures-2.pdf", "table1.csv"} <= {*files}
    assert all((tracked / "tables" / file).is_file() for file in files)


@pytest.mark.slow
def test_code_is_linked_from_a_page_in_the_checkout_only(results: Path, tmp_path: Path) -> None:
    here = embedded(page.render(Results(results), folder=ROOT / "tables"))["parts"]
    assert {part["code"] for part in here} >= {"../trainers/k_gt.py", "../attacks/uap.py"}
    assert all((ROOT / "tables" / part["code"]).is_file() for part in here)
    assert all(part["code"] is None for part in embedded(page.render(Results(results), folder=tmp_path))["parts"])


@pytest.mark.slow
def test_figures_and_table_1_have_their_place(placed: str, written: str, tracked: Path) -> None:
    (section,) = re.findall(r'<section id="paper".*?</section>', placed, re.DOTALL)
    there = sum((tracked / "tables" / f"{stem}.png").is_file() for stem in figures_and_links.FIGURES)
    assert (
        section.count('<img src="data:image/png') == there >= 3
        and section.count("<tr>") > 10
        and "Dec-FedTrack" in section
    )
    assert "\\frac" not in section and "κ" in section
    assert 'id="paper"' not in written  # nothing lies beside it


def test_small_formulas_are_plain_characters() -> None:
    assert figures_and_links.plain(r"$O(\frac{\kappa^4}{n\epsilon^4})$") == "O(κ⁴ / nε⁴)"
    assert (
        figures_and_links.plain(r"MLSGDA<sup>a</sup> eta\_x $\frac{n\sqrt{m}}{\epsilon^2}$") == "MLSGDA eta_x n√m / ε²"
    )


@pytest.mark.slow
def test_the_same_results_give_the_same_page(written: str, results: Path) -> None:
    assert page.render(Results(results)) == written


def test_every_row_of_the_leaderboard_is_on_the_page_in_full(written: str, rows: pd.DataFrame) -> None:
    data = embedded(written)
    assert len(data["rows"]) == len(rows)
    for values, (_, row) in zip(data["rows"], rows.iterrows(), strict=True):
        for name, value in zip(data["columns"], values, strict=True):
            assert value == labelled_rows.json_value(row[name])
    assert sorted(index for group in data["groups"] for index in group["rows"]) == list(range(len(rows)))
    assert set(data["runs"]) == set(data["curves"]) == set(rows["run_id"])


def test_the_committed_page_shows_the_committed_leaderboard(written: str, tracked: Path) -> None:
    there = embedded((tracked / "tables" / "index.html").read_text(encoding="utf-8"))
    here = embedded(written)
    assert there["columns"] == here["columns"] and there["rows"] == here["rows"], "out of date: run `make page`"


def test_without_scripts_the_networks_can_still_be_read(written: str) -> None:
    (plain,) = re.findall(r"<noscript>(.*?)</noscript>", written, re.DOTALL)
    blocks = [block for table in embedded(written)["tables"] for block in table["blocks"]]
    networks = [network for block in blocks for network in block["networks"]]
    assert plain.count("<tr>") == len(blocks) + len(networks)
    assert all(f"{100 * entry['mean']:.1f}" in plain for network in networks for entry in network["attacks"].values())


def test_pictures_are_of_every_trained_and_universal_perturbation(
    written: str, rows: pd.DataFrame, results: Path
) -> None:
    pictures = embedded(written)["pictures"]
    kinds = [picture["kind"] for picture in pictures]
    trained = [results / "runs" / run_id / "perturbation.safetensors" for run_id in rows["run_id"].unique()]
    assert kinds.count("trained") == sum(path.is_file() for path in trained) > 0
    assert kinds.count("attack") == rows["universal"].sum()
    assert all(picture["uri"].startswith("data:image/png;base64,") for picture in pictures)


@pytest.mark.slow
def test_text_of_users_stays_inside_its_json(tmp_path: Path, rows: pd.DataFrame) -> None:
    results = with_rows(tmp_path, rows.assign(method=EVIL, attack=EVIL, run_id=EVIL, reliability_flags=EVIL))
    text = page.render(Results(results))
    assert text.count("<script") == text.count("</script>") == 2 and "<img" not in text
    assert (
        embedded(text)["groups"][0]["method"]
        == embedded(text)["tables"][0]["blocks"][0]["networks"][0]["method"]
        == EVIL
    )


@pytest.mark.slow
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


@pytest.mark.slow
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
        if package.startswith("robustbench_dec.shipped_files"):  # what was made of results is not shipped
            continue
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


def column(tab: chromium.Browser, key: str, block: int | None = None) -> list[str]:
    """The texts of a column, from top to bottom; of one block, or of all."""
    place = "#rows tr.row" if block is None else f"#rows .scroller:nth-of-type({block + 1}) tr.row"
    found: list[str] = tab.run(f"[...document.querySelectorAll('{place} .col-{key}')].map((cell) => cell.innerText)")
    return found


ALL = "#view=means&table=all&sort="
RUNS = "#view=runs&table=all&sort="


def click(tab: chromium.Browser, selector: str) -> None:
    tab.run(f"document.querySelector({json.dumps(selector)}).click()")


def choose(tab: chromium.Browser, name: str, value: str) -> None:
    tab.run(
        f"{{ const field = document.querySelector('form.filters [name={name}]'); field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


def test_the_page_opens_without_errors_and_without_the_network(
    tab: chromium.Browser, placed: str, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(placed, encoding="utf-8")
    address = (tmp_path / "index.html").as_uri()
    tab.requests.clear()
    tab.errors.clear()
    tab.open(address)
    assert column(tab, "network") and tab.run("document.querySelectorAll('.chart').length") >= 12
    assert tab.run("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    asked = [address for address in tab.requests if not address.startswith(("data:", "about:"))]
    assert asked == [address] and tab.errors == []


def test_the_first_screen_shows_table_2(tab: chromium.Browser, address: str, rows: pd.DataFrame) -> None:
    tab.open(address)
    assert tab.run("document.querySelector('[name=table]').selectedOptions[0].text") == "Table 2"
    heads = tab.run("[...document.querySelector('#rows thead').querySelectorAll('th')].map((cell) => cell.innerText)")
    names = [head.split("\n")[0] for head in heads]
    assert names == ["Network", "Clean", "FGSM", "PGD", "strong", "UAP", "Worst case", "Seeds", "Images"]
    assert [head.split("\n")[1] for head in heads[2:7]] == ["δ = 0.1", "δ = 0.1", "δ = 0.1", "δ = 0.25", "δ ≤ 0.1"]
    assert {text.split("\n")[0] for text in column(tab, "network")} == {"K-GT", "Dec-FedTrack"}
    assert any("paper 74.7" in text for text in column(tab, "pgd"))
    seeds = rows[asked_by(rows, "table2")].groupby(["dataset", "method"])["seed"].nunique()
    assert sorted(column(tab, "seeds")) == sorted(str(count) for count in seeds)
    bottom = tab.run("[...document.querySelectorAll('#rows tr.row')].at(-1).getBoundingClientRect().bottom")
    assert bottom <= 900  # both data sets, without scrolling


@pytest.mark.parametrize("view", ["", "#step=all", "#table=all", ALL, RUNS])
def test_no_row_is_taller_than_two_lines_and_nothing_scrolls_sideways(
    tab: chromium.Browser, address: str, view: str
) -> None:
    tab.open(address + view)
    heights = tab.run("[...document.querySelectorAll('#rows tr.row')].map((row) => row.getBoundingClientRect().height)")
    assert heights and max(heights) <= 62
    assert tab.run("document.documentElement.scrollWidth") <= 1280
    wide = "[...document.querySelectorAll('#rows .scroller')].map((part) => part.scrollWidth - part.clientWidth)"
    assert max(tab.run(wide)) <= 0  # the tables themselves fit too


def test_radii_and_tables_can_be_chosen(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    choose(tab, "step", "large")
    choose(tab, "dataset", "cifar10")
    heads = tab.run("[...document.querySelectorAll('#rows th')].map((cell) => cell.innerText)")
    radii = ["δ = 0.01", "δ = 0.01", "δ = 0.005", "δ = 0.07", "δ ≤ 0.01"]  # `strong` is there at one radius
    assert [head.split("\n")[1] for head in heads[2:7]] == radii
    choose(tab, "step", "all")
    assert len(tab.run("[...document.querySelectorAll('#rows th')]")) == 2 + 9 + 1 + 3 + 2
    choose(tab, "dataset", "")
    choose(tab, "table", "robust-network")
    names = column(tab, "network")
    assert len(names) == 18 and any("ring of 5, 30 % of links lost" in name for name in names)
    assert len(column(tab, "rate")) == 18 and set(column(tab, "images")) == {"1,000"}


def test_networks_stand_by_their_worst_case_and_sort_by_any_column(tab: chromium.Browser, address: str) -> None:
    tab.open(f"{address}#table=robust-network")
    assert tab.run("document.querySelector('th[aria-sort]').innerText").startswith("Worst case")
    numbers = [float(text.split()[0]) for text in column(tab, "worst")]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) > 5
    for direction, reverse in (("descending", True), ("ascending", False)):
        click(tab, "#rows button[data-key=fgsm]")
        numbers = [float(text.split()[0]) for text in column(tab, "fgsm")]
        assert numbers == sorted(numbers, reverse=reverse)
        assert tab.run("document.querySelector('th.col-fgsm').getAttribute('aria-sort')") == direction


def test_a_network_opens_to_every_radius_its_paper_and_its_runs(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    seeds = int(column(tab, "seeds")[0])
    click(tab, "[data-open]")
    details = tab.run("document.querySelector('#details').innerText")
    assert all(text in details for text in ("Worst case", "≤ 0.15", "broken by this attack alone", "eta_c"))
    inside = tab.run("document.querySelectorAll('#details tbody tr').length")
    assert inside == 1 + 9 + 1 + 6  # clean, cells, worst cases
    links = tab.run("[...document.querySelectorAll('#details a')].map((a) => a.href)")
    assert any(link.startswith("https://arxiv.org/") for link in links)
    click(tab, "#details tbody a")
    tab.wait("document.querySelector('input[name=view][value=runs]').checked")
    assert len(column(tab, "model")) == seeds and set(column(tab, "attack")) == {"FGSM"}


def test_a_click_on_a_head_sorts_cells_and_says_so(tab: chromium.Browser, address: str) -> None:
    tab.open(address + ALL)
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
    choose(tab, "table", "all")
    choose(tab, "dataset", "cifar10")
    choose(tab, "attack", "pgd")
    choose(tab, "eps", "0.005")
    wanted = rows[(rows["dataset"] == "cifar10") & (rows["attack"] == "pgd") & (rows["eps"] == 0.005)]
    assert len(column(tab, "model")) == len(wanted) and set(column(tab, "eps")) == {"0.005"}
    assert set(column(tab, "norm")) == {"L∞"} and set(column(tab, "images")) == {"2,000"}
    assert tab.run("document.querySelector('#count').textContent").startswith(f"{len(wanted)} of {len(rows)} ")
    choose(tab, "q", "k-gt SEED 1")
    assert len(column(tab, "model")) == len(wanted[(wanted["method"] == "k_gt") & (wanted["seed"] == 1)]) == 1
    choose(tab, "q", "there is no such thing")
    assert column(tab, "model") == [] and "Reset" in tab.run("document.querySelector('#rows tbody').innerText")
    click(tab, "#reset")
    assert len(column(tab, "model")) == min(300, asked_by(rows, "table2").sum())


def test_two_thousand_rows_are_sorted_and_filtered(tab: chromium.Browser, tmp_path: Path, rows: pd.DataFrame) -> None:
    many = pd.concat([rows.assign(seed=seed, run_id=rows["run_id"] + f"-{seed}") for seed in range(3)])
    path = page.write(Results(with_rows(tmp_path, many)), tmp_path / "index.html")
    tab.open(f"{path.as_uri()}{RUNS}")
    click(tab, "#rows button[data-key=robust]")
    first = [float(text.split()[0]) for text in column(tab, "robust")]
    assert tab.run("document.querySelector('#rows .more').innerText").startswith(f"The first 300 of {len(many):,} rows")
    assert f"{len(many)} of {len(many)} single runs" in tab.run("document.querySelector('#count').textContent")
    click(tab, "#rows .more button")
    numbers = [float(text.split()[0]) for text in column(tab, "robust")]
    assert len(numbers) == len(many) > 2000 and numbers == sorted(numbers, reverse=True) and first == numbers[:300]
    assert tab.run("document.activeElement === document.querySelectorAll('#rows .open-row')[300]")
    assert tab.run("document.querySelector('#rows .more')") is None
    choose(tab, "q", "seed 2")
    assert len(column(tab, "model")) == len(rows)


def test_a_link_to_a_row_far_down_shows_it(tab: chromium.Browser, address: str) -> None:
    tab.open(address + RUNS)
    last = tab.run("visible().at(-1).id")
    tab.open(f"{address}{RUNS}&open={last}")
    assert tab.run("visible().length") > 300
    assert tab.run("document.querySelector('#rows tr.open .open-row').dataset.open") == last


def test_a_method_has_one_colour_and_the_legend_is_what_is_drawn(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    for section in ("#radius", "#cost"):
        assert tab.run(f"[...document.querySelectorAll('{section} .legend > span')].map((one) => one.textContent)") == [
            *("K-GT", "Dec-FedTrack")
        ]
    dots = "[...document.querySelectorAll('#rows tr.row')].map((row) => [row.querySelector('.name').firstChild.data, "
    colours = dict(map(tuple, tab.run(dots + "getComputedStyle(row.querySelector('.dot')).backgroundColor])")))
    stroke = "[...document.querySelectorAll('.chart svg > path[stroke]')].map((line) => getComputedStyle(line).stroke)"
    assert set(tab.run(stroke)) == set(colours.values()) and len(set(colours.values())) == 2
    choose(tab, "table", "robust-network")
    legend = tab.run("[...document.querySelectorAll('#radius .legend > span')].map((one) => one.textContent)")
    assert len(legend) == len(set(legend)) == 18 and "K-GT" not in legend
    looks = tab.run(
        "[...document.querySelectorAll('#radius .legend path[stroke]')].map((line) => "
        "line.getAttribute('stroke') + line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(looks)) == 18


def test_a_curve_that_falls_says_so(tab: chromium.Browser, address: str) -> None:
    tab.open(address)
    notes = tab.run("[...document.querySelectorAll('#cost .chart')].map((one) => one.innerText)")
    falls = [note for note in notes if "Falls as training goes on" in note]
    assert [note for note in falls if "PGD" in note] and [note for note in falls if "FGSM" in note]
    images = specs.read(ROOT / "tables" / "table2.toml").curve_examples
    assert f"first {images:,} test images" in tab.run("document.querySelector('#cost').innerText")


def test_a_row_opens_to_all_that_is_behind_its_number(
    tab: chromium.Browser, address: str, rows: pd.DataFrame, results: Path
) -> None:
    tab.open(address + RUNS)
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
    assert "radius ρ (eps)" in details or "eps" not in run["settings"]["problem"]  # noqa: RUF001
    assert tab.run("document.querySelectorAll('#details img').length") >= 1
    click(tab, "[data-open]")
    assert tab.run("document.querySelector('#details')") is None


def test_means_name_their_seeds_and_lead_to_them(tab: chromium.Browser, address: str, rows: pd.DataFrame) -> None:
    tab.open(f"{address}{ALL}&dataset=cifar10&attack=fgsm")
    click(tab, "[data-open]")
    method = "k_gt" if "K-GT" in tab.run("document.querySelector('#rows tr.row').innerText") else "dec_fedtrack"
    seeds = rows[(rows["dataset"] == "cifar10") & (rows["method"] == method)]["seed"].nunique()
    assert tab.run("document.querySelectorAll('#details tbody tr').length") == seeds
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
        if tab.run("document.activeElement.dataset.key") == "pgd":
            break
    tab.key("Enter")
    assert tab.run("document.querySelector('th.col-pgd').getAttribute('aria-sort')") == "descending"
    assert tab.run("document.activeElement.dataset.key") == "pgd"  # the focus stays where it was
    tab.run("document.querySelector('[data-open]').focus()")
    tab.key(" ")
    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.run("document.querySelector('.chart').focus()")
    tab.key("ArrowRight")
    tip = tab.run("document.querySelector('.chart .tip').innerText")
    assert "radius δ of the attack: 0" in tip and "K-GT" in tip and "%" in tip


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
        for hash_, number in (("", "worst"), (ALL, "robust"), (RUNS, None), ("#table=robust-network", "worst")):
            tab.open(address + hash_)
            assert tab.run("document.documentElement.scrollWidth") <= 390
            click(tab, "[data-open]")
            assert tab.run("document.documentElement.scrollWidth") <= 390
            assert tab.run("document.querySelector('#details').getBoundingClientRect().right") <= 390
            if number:  # it needs no scrolling
                assert tab.run(f"document.querySelector('#rows .col-{number}').getBoundingClientRect().right") <= 390
    finally:
        tab.resize(1280, 900)


def test_a_row_opens_to_who_holds_which_labels(tab: chromium.Browser, made: Made, tmp_path: Path) -> None:
    by_path.report(made.specification, "tiny", made.results, made.file.parent)
    tab.open(page.write(Results(made.results), tmp_path / "index.html").as_uri())
    click(tab, "[data-open]")
    run = Results(made.results).run(made.folders[0].name)  # the others' nodes hold the same
    assert run.record.classifier is not None and run.record.classifier.holdings is not None
    counts = run.record.classifier.holdings
    titles = tab.run("[...document.querySelectorAll('#details svg.holdings rect title')].map((one) => one.textContent)")
    assert titles == [
        f"node {node}: {count:,} of {name}"
        for node, held in enumerate(counts)
        for name, count in zip(run.record.classifier.classes, held, strict=True)
    ]


def test_a_method_named_like_markup_stays_text(tab: chromium.Browser, tmp_path: Path, rows: pd.DataFrame) -> None:
    named = rows.assign(method=EVIL, attack=EVIL, topology=EVIL, run_id=EVIL, reliability_flags=EVIL, submitted_by=EVIL)
    named["attack_params_json"] = json.dumps({EVIL: EVIL})
    path = page.write(Results(with_rows(tmp_path, named)), tmp_path / "index.html")
    tab.errors.clear()
    tab.open(path.as_uri())
    click(tab, "[data-open]")
    assert EVIL in column(tab, "network")[0] and EVIL in tab.run("document.querySelector('#details').innerText")
    click(tab, "input[name=view][value=runs]")
    click(tab, "[data-open]")
    assert EVIL in column(tab, "model")[0] and EVIL in tab.run("document.querySelector('#details').innerText")
    assert EVIL in tab.run("[...document.querySelectorAll('[name=method] option')].map((one) => one.text).join()")
    assert tab.run("document.scripts.length") == 2 and tab.run("document.images.length") == 0
    assert tab.run("window.broken === undefined") and tab.errors == []


def test_rows_of_users_are_marked_and_can_be_chosen(tab: chromium.Browser, tmp_path: Path, rows: pd.DataFrame) -> None:
    mine = rows.assign(submitted_by=["Ada" if attack == "fgsm" else "" for attack in rows["attack"]])
    tab.open(page.write(Results(with_rows(tmp_path, mine)), tmp_path / "index.html").as_uri())
    choose(tab, "table", "all")
    click(tab, "input[name=view][value=means]")
    choose(tab, "source", "users")
    assert {label.split()[0] for label in column(tab, "attack")} == {"FGSM"}  # on 1,000 and on 10,000 images
    assert tab.run("document.querySelectorAll('.badge').length") > 0


@pytest.mark.parametrize("form", ["csv", "latex", "bibtex"])
def test_a_download_is_what_the_command_exports(tab: chromium.Browser, address: str, form: str, results: Path) -> None:
    for chosen, asked in (
        ("#dataset=mnist&attack=uap&view=runs&sort=-robust", " --table table2 --dataset mnist --attack uap"),
        ("#dataset=mnist&attack=uap&view=means&table=all&norm=Linf", " --dataset mnist --norm Linf --attack uap"),
        ("", " --table table2"),
        ("#table=others", " --table others"),
    ):
        tab.open(address + chosen)
        command = tab.run("document.querySelector('#command').textContent")
        assert command == f"robustbench-dec export --format csv{asked}"
        options = ["export", "--format", form, *command.split()[4:], "--results", str(results)]
        assert tab.run(f"{form}Text()") == CliRunner().invoke(app, options).stdout

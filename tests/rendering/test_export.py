"""What an export promises: the rows asked for, numbers that are the leaderboard's, and papers for all that is shown."""

import io
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from robustbench_dec import shelf
from robustbench_dec.commands.app import app
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.leaderboard import labelled_rows, references
from robustbench_dec.rendering import export
from robustbench_dec.specs import claims
from robustbench_dec.store.results import Results
from tests.support import ROOT, asked_by

ALWAYS = (  # the keys of every model_info file of RobustBench
    "link", "name", "authors", "additional_data", "number_forward_passes", "dataset", "venue", "architecture", "eps",
    "clean_acc", "reported",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tracked: Path) -> Path:
    """The committed results, without what a user has beside them."""
    return tracked / "results"


@pytest.fixture(scope="module")
def rows(results: Path) -> pd.DataFrame:
    return labelled_rows.read(Results(results))


@pytest.fixture
def copied(tmp_path: Path, results: Path) -> Path:
    """The committed leaderboard alone, without the runs behind it."""
    shutil.copy(results / "leaderboard.csv", tmp_path / "leaderboard.csv")
    return tmp_path


def changed(results: Path, **columns: object) -> pd.DataFrame:
    frame = leaderboard.read(results / "leaderboard.csv").assign(**columns)
    leaderboard.write(frame, results / "leaderboard.csv")
    return labelled_rows.read(Results(results))


@pytest.mark.slow
def test_csv_of_everything_is_the_leaderboard(rows: pd.DataFrame, results: Path) -> None:
    there = leaderboard.read(results / "leaderboard.csv")
    here = leaderboard.read(io.StringIO(export.text(rows, "csv")))  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(here[there.columns], there)


def test_a_view_has_the_rows_asked_for_and_no_others(rows: pd.DataFrame) -> None:
    chosen = labelled_rows.select(rows, dataset=["mnist"], method=["k_gt"], attack=["pgd", "uap"], eps=["0.1", "1/5"])
    assert set(zip(chosen["attack"], chosen["eps"], strict=True)) == {("pgd", 0.1), ("uap", 0.2)}
    assert set(chosen["method"]) == {"k_gt"} and set(chosen["dataset"]) == {"mnist"}


@pytest.mark.parametrize("wanted", [{"dataset": ["imagenet"]}, {"attack": ["pgdd"]}, {"eps": ["0.123"]}])
def test_a_value_that_is_not_there_is_refused_with_those_that_are(
    rows: pd.DataFrame, wanted: dict[str, list[str]]
) -> None:
    (column, (value,)) = next(iter(wanted.items()))
    known = f"{rows['eps'].min():g}" if column == "eps" else sorted(rows[column])[0]
    with pytest.raises(BadInput, match=f"'{value}'.*there are: .*{known}"):
        labelled_rows.select(rows, **wanted)


def test_values_that_never_meet_are_refused(rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match=r"eps .* there are"):
        labelled_rows.select(rows, dataset=["mnist"], eps=["0.003"])


def test_means_are_over_seeds_of_equal_settings_only(copied: Path) -> None:
    frame = leaderboard.read(copied / "leaderboard.csv")
    frame = frame[(frame["dataset"] == "cifar10") & (frame["method"] == "k_gt") & (frame["eps"] == 0.01)]
    frame = frame[frame["attack"] == "pgd"]
    other = frame.assign(
        attack_params_json='{"alpha":0.0025,"eps":0.01,"random_start":true,"steps":50}', robust_acc=0.1
    )
    leaderboard.write(pd.concat([frame, other]), copied / "leaderboard.csv")
    entries = labelled_rows.averaged(labelled_rows.read(Results(copied)))
    assert [entry.attack_label for entry in entries] == ["PGD", "PGD (50 steps)"]
    assert [entry.seeds for entry in entries] == [frame["seed"].nunique()] * 2
    assert entries[0].robust == pytest.approx(frame["robust_acc"].mean())
    assert entries[0].robust_std == pytest.approx(frame["robust_acc"].std(ddof=1))
    assert entries[1].robust == pytest.approx(0.1) and entries[1].robust_std == pytest.approx(0)


def test_two_trainings_of_a_method_are_two_models(copied: Path) -> None:
    frame = leaderboard.read(copied / "leaderboard.csv")
    frame = frame[(frame["dataset"] == "cifar10") & (frame["method"] == "dec_fedtrack") & asked_by(frame, "table2")]
    leaderboard.write(pd.concat([frame, frame.assign(train_delta=0.3)]), copied / "leaderboard.csv")
    models = set(labelled_rows.read(Results(copied))["model"])
    assert models == {"Dec-FedTrack", "Dec-FedTrack (ρ = 0.3)"}  # noqa: RUF001


def test_rows_of_users_are_told_from_ours_whatever_the_column(copied: Path) -> None:
    frame = pd.read_csv(copied / "leaderboard.csv").drop(columns=["submitted", "submitted_by"], errors="ignore")
    frame.to_csv(copied / "leaderboard.csv", index=False)
    assert set(labelled_rows.read(Results(copied))["submitter"]) == {""}
    marks = ["user", "reference", *[""] * (len(frame) - 2)]
    frame.assign(submitted=marks).to_csv(copied / "leaderboard.csv", index=False)
    assert list(labelled_rows.read(Results(copied))["submitter"][:3]) == ["a user", "", ""]
    frame.assign(submitted_by=["Ada", *[""] * (len(frame) - 1)]).to_csv(copied / "leaderboard.csv", index=False)
    assert list(labelled_rows.read(Results(copied))["submitter"][:2]) == ["Ada", ""]


def test_latex_compiles_whatever_users_name_things(copied: Path) -> None:
    text = export.text(changed(copied, method=r"a_b & 50% \evil{$x$}#1"), "latex")
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip()
    assert r"a\_b \& 50\% \textbackslash{}evil\{\$x\$\}\#1" in body
    for line in body.splitlines():
        assert len(re.split(r"(?<!\\)&", line)) == 9 and line.endswith(r"\\")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_latex_shows_mean_and_deviation_in_percent(rows: pd.DataFrame) -> None:
    chosen = labelled_rows.select(rows, dataset=["cifar10"], method=["k_gt"], attack=["fgsm"], eps=["0.003"])
    accuracy = 100 * chosen["robust_acc"]
    assert f"{accuracy.mean():.1f} {{\\scriptsize$\\pm$\\,{accuracy.std(ddof=1):.1f}}}" in export.text(chosen, "latex")


def test_json_has_robustbench_s_keys_for_every_model(rows: pd.DataFrame) -> None:
    documents = json.loads(export.text(rows, "json"))
    assert len(documents) == len(rows[["run_id", "norm"]].drop_duplicates())
    for name, document in documents.items():
        dataset, norm, run_id = name.split("/")
        mine = rows[(rows["run_id"] == run_id) & (rows["norm"] == norm)]
        assert set(ALWAYS) <= set(document) and document["dataset"] == dataset
        assert document["external"] == f"{100 * mine['robust_acc'].min():.2f}"
        assert document["clean_acc"] == f"{100 * mine['clean_acc'].iloc[0]:.2f}"
        assert document["eps"] == f"{mine['eps'].max():g}"
        assert document["unreliable"] is any(mine["reliability_flags"])
        if mine["method"].iloc[0] in ("k_gt", "dec_fedtrack"):
            assert document["link"].startswith("https://arxiv.org/abs/2") and document["authors"].count(",") == 3
        assert len(document["cells"]) == len(mine)


def test_a_flagged_cell_makes_a_model_unreliable(copied: Path) -> None:
    documents = export.robustbench(changed(copied, reliability_flags="budget;box"))
    assert all(document["unreliable"] and "box, budget" in document["footnote"] for document in documents.values())


def test_documents_never_leave_their_folder(copied: Path, tmp_path: Path) -> None:
    documents = export.robustbench(changed(copied, run_id="../../../elsewhere"))
    with pytest.raises(BadInput, match="outside"):
        export.write_documents(documents, tmp_path / "out")


def test_bibtex_has_each_paper_of_the_view_once_and_no_other(rows: pd.DataFrame) -> None:
    text = export.text(labelled_rows.select(rows, method=["k_gt"], attack=["pgd"]), "bibtex")
    keys = re.findall(r"^@\w+\{(\S+),$", text, re.MULTILINE)
    papers = ["kim2020torchattacks", "kurakin2016adversarial", "liu2024decentralized", "madry2018towards"]
    assert sorted(keys) == [*papers, "robustbench_dec"]
    assert text.count("{") == text.count("}") and "keywords" not in text


def test_bibtex_says_where_no_paper_is_known(copied: Path) -> None:
    text = export.text(changed(copied, attack="my\n@evil{attack.py:Mine"), "bibtex")
    assert "% No reference is known for the attack my @evil{attack.py:Mine.\n" in text


def test_every_method_of_table_1_has_its_paper() -> None:
    assert all(references.of("trainer", method.name) for method in claims.read(ROOT / "tables" / "table1.toml").methods)


@pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind in ("trainer", "attack") for name in [*shelf.names(kind), "torchattacks:PGD"]]
)
def test_papers_tell_who_what_where_and_when(kind: str, name: str) -> None:
    for paper in references.of(kind, name):
        assert paper.authors and paper.title and paper.venue and re.fullmatch(r"(19|20)\d\d", paper.year)


@pytest.mark.parametrize("kind", ["trainer", "attack"])
def test_every_bibtex_file_belongs_to_a_part(kind: str) -> None:
    files = {path.stem for path in (ROOT / shelf.SHELVES[kind]).glob("*.bib")}
    assert len(files) > 3 and files <= {*shelf.names(kind), "torchattacks"}


def test_the_way_to_cite_the_package_is_that_of_the_citation_file() -> None:
    said = (ROOT / "CITATION.cff").read_text()
    for field in ("title", "author", "year"):
        value = re.search(rf"{field} = \{{+(.*?)\}}+,", references.SOFTWARE)
        assert value is not None and value[1] in said


@pytest.mark.slow
def test_the_command_prints_a_view_or_writes_it(tmp_path: Path, results: Path) -> None:
    runner = CliRunner()
    options = ["--dataset", "mnist", "--attack", "pgd", "--results", str(results)]
    printed = runner.invoke(app, ["export", "--format", "csv", *options])
    assert printed.exit_code == 0 and set(pd.read_csv(io.StringIO(printed.stdout))["attack"]) == {"pgd"}
    written = runner.invoke(app, ["export", "--format", "latex", *options, "--out", str(tmp_path / "view.tex")])
    assert written.exit_code == 0 and r"\toprule" in (tmp_path / "view.tex").read_text()
    again = ["export", "--format", "latex", *options, "--out", str(tmp_path / "view.tex")]
    before = (tmp_path / "view.tex").read_bytes()
    (tmp_path / "view.tex").write_text("mine")
    assert isinstance(runner.invoke(app, again).exception, BadInput)
    assert (tmp_path / "view.tex").read_text() == "mine"
    assert runner.invoke(app, [*again, "--force"]).exit_code == 0 and (tmp_path / "view.tex").read_bytes() == before
    folder = runner.invoke(app, ["export", "--format", "json", *options, "--out", str(tmp_path / "models")])
    assert folder.exit_code == 0
    paths = list((tmp_path / "models" / "mnist" / "Linf").glob("*.json"))
    assert paths and all(json.loads(path.read_text())["dataset"] == "mnist" for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--format", "xlsx"], ["--attack", "nothing"], ["--eps", "large"]])
def test_bad_options_are_one_sentence(options: list[str], results: Path) -> None:
    answer = CliRunner().invoke(app, ["export", *options, "--results", str(results)])
    assert isinstance(answer.exception, BadInput) and options[1] in str(answer.exception)

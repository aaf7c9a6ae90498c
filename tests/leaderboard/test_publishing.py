"""Own work stays one's own: only `publish` and `withdraw` change what a leaderboard with a list shows."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest

from robustbench_dec import files
from robustbench_dec.commands import publish
from robustbench_dec.errors import BadInput
from robustbench_dec.store import zoo
from robustbench_dec.store.records import PublishedRecord
from robustbench_dec.store.results import Results
from tests.support import ROOT, repository
from tests.support.tiny import Made
from tests.support.typed import run

STRONG = """
def mine(model, images, labels, eps):
    return (images + eps).clamp(0, 1)
"""


def rows(results: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((results / "leaderboard.csv").open()))


def shown(made: Made) -> dict[Path, bytes]:
    """Leaderboard, list, page and all tables."""
    paths = [made.results / "leaderboard.csv", made.results / "published.json", *made.file.parent.iterdir()]
    return {path: path.read_bytes() for path in paths}


def test_a_cell_that_was_copied_under_a_second_name_is_refused(made: Made) -> None:
    first = sorted((made.folders[0] / "attacks").glob("fgsm-*.json"))[0]
    shutil.copyfile(first, first.with_name("fgsm-0.1-00000000.json"))
    with pytest.raises(BadInput, match=f"is (fgsm-0.1-00000000|{first.stem}).json under a second name") as caught:
        list(Results(made.results).cells())
    assert str(caught.value).count("\n") == 0


@pytest.mark.slow
def test_a_run_attacked_in_place_is_on_the_leaderboard_once_it_is_published_and_no_longer_when_withdrawn(
    listed: Made,
) -> None:
    before = shown(listed)
    assert len(rows(listed.results)) == 6
    folder = Path("results/runs") / listed.folders[0].name
    run("attack", folder, "--attack", "fgsm", "--eps", "0.2", "--n-examples", "40")
    run("render", listed.file)
    run("page")
    assert shown(listed) == before
    said = run("publish", folder)
    (new,) = [row for row in rows(listed.results) if row["eps"] == "0.2" and row["attack"] == "fgsm"]
    assert new["submitted"] == "user" and len(rows(listed.results)) == 7
    assert "1 rows more, 7 in all" in said
    added = shlex.split(re.findall(r"git add -f (.*)", said)[0])
    assert {f"{folder}/attacks/{new['cell']}.json", f"{folder}/run.json", "results/published.json"} <= {*added}
    assert all(Path(path).is_file() for path in added)
    assert "already" in run("publish", folder)
    run("render", listed.file)
    assert len(rows(listed.results)) == 7
    said = run(*shlex.split(re.findall(r"to take it back: robustbench-dec (.*)", said)[0]))
    assert f"git rm -q --cached --ignore-unmatch {folder}/attacks/{new['cell']}.json &&" in said
    assert shown(listed) == before
    assert (folder / "attacks" / f"{new['cell']}.json").is_file()  # work is never lost


@pytest.mark.slow
def test_an_attack_that_was_compared_elsewhere_is_published_with_its_files(listed: Made) -> None:
    before = shown(listed)
    Path("mine.py").write_text(STRONG)
    zoo.add(listed.folders[1], "digits/mine", Path("out/zoo"))
    common = ["--model", "digits/mine", "--n-examples", "40"]
    run("compare", "--attack", "mine.py:mine", "--eps", "0.1,0.2", *common)
    assert shown(listed) == before
    said = run("publish", "out", "--attack", "mine.py:mine")
    mine = [row for row in rows(listed.results) if row["attack"] == "mine.py:mine"]
    assert [row["submitted"] for row in mine] == ["user", "user"] and len(rows(listed.results)) == 8
    assert all((listed.folders[1] / "attacks" / f"{row['cell']}.json").is_file() for row in mine)
    assert "mine.py:mine" in (listed.file.parent / "index.html").read_text()
    assert "mine.py" in re.findall(r"git add -f (.*)", said)[0].replace("-", ".py-")
    shutil.rmtree("out")
    run("withdraw", "--attack", "mine.py:mine")
    assert shown(listed) == before


@pytest.mark.slow
def test_a_network_of_ones_own_is_published_with_its_record_and_put_into_the_zoo(listed: Made) -> None:
    run("train", "--rounds", "2", "--nodes", "2", "--graph", "complete")
    (folder,) = Path("out/runs").iterdir()
    run("attack", folder, "--attack", "fgsm", "--eps", "0.1", "--n-examples", "40")
    said = run("publish", folder, "--zoo", "digits/mine")
    home = listed.results / "runs" / folder.name
    assert {path.name for path in home.iterdir()} == {"run.json", "curve.csv", "perturbation.safetensors", "attacks"}
    assert all(row["submitted"] == "user" for row in rows(listed.results) if row["run_id"] == folder.name)
    assert "results/zoo/digits/mine.safetensors" in said
    (entry,) = zoo.entries("digits/mine", listed.results / "zoo")
    assert entry.record.id == folder.name


def test_a_run_keeps_its_average_network_and_is_attacked_without_its_checkpoint(made: Made) -> None:
    whole, *_ = Results(made.results).runs()
    options = ("--attack", "fgsm", "--eps", "0.3", "--n-examples", "40")

    def accuracies() -> str:
        return run("attack", whole.folder, *options).splitlines()[-1]  # before it, a busy machine tells its progress

    said = accuracies()
    entry = zoo.keep(whole)
    for path in (whole.folder / "checkpoint.safetensors", *(whole.folder / "attacks").glob("fgsm-0.3*")):
        path.unlink()
    assert zoo.from_path(whole.folder) == entry and accuracies() == said
    for suffix in (".json", ".safetensors"):
        entry.checkpoint.with_suffix(suffix).unlink()
    assert accuracies() == said  # the cell is there
    with pytest.raises(BadInput, match=r"checkpoint.safetensors is missing, and no network of the zoo is of this run"):
        run("attack", whole.folder, "--attack", "fgsm", "--eps", "0.4")


@pytest.mark.slow
def test_a_table_that_is_not_on_the_list_changes_neither_leaderboard_nor_page(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.results.parent)
    PublishedRecord().write(made.results / "published.json")
    said = run("render", made.file)
    assert "does not list tiny, so the leaderboard and its page stay as they are" in said
    assert made.file.with_suffix(".md").is_file()
    assert not (made.file.parent / "index.html").exists() and not (made.results / "leaderboard.csv").exists()
    assert not (made.results / "tables").exists()
    said = run("publish", made.file)
    assert len(rows(made.results)) == 6 and {row["submitted"] for row in rows(made.results)} == {""}
    assert len([word for word in re.findall(r"git add -f (.*)", said)[0].split() if "/attacks/" in word]) == 8
    run("withdraw", made.file)
    assert rows(made.results) == []
    monkeypatch.setattr(publish, "MOST_NAMED", 10)
    named = shlex.split(re.findall(r"git add -f (.*)", run("publish", made.file))[0], comments=True)
    listed = Path(named[0].removeprefix("--pathspec-from-file=")).read_text().splitlines()
    assert len(named) == 1 and len(listed) > 10 and all(Path(path).is_file() for path in listed)
    assert len([path for path in listed if "/attacks/" in path]) == 8


@pytest.mark.slow
def test_what_cannot_be_published_is_one_sentence_and_changes_nothing(listed: Made, tmp_path: Path) -> None:
    folder = listed.folders[0]
    (tmp_path / "empty").mkdir()
    before = shown(listed)
    for words, sentence in (
        (("publish", tmp_path / "empty"), "no cells in .*empty; give a folder of results"),
        (("publish", folder, "--attack", "pgd"), "no cell of the attack 'pgd' there; there are: fgsm, uap"),
        (("publish", folder, "--to", tmp_path / "empty"), "has no list published.json, so its leaderboard shows every"),
        (("publish", tmp_path / "empty", folder, "--zoo", "digits/x"), "--zoo names the network of one run"),
        (("withdraw",), "say what to withdraw"),
        (("withdraw", folder), "tiny asks for what is there, and is withdrawn as tables/tiny.toml"),
        (("withdraw", "tables/other.toml"), "lists no table 'other'; there are: tiny"),
    ):
        with pytest.raises(BadInput, match=sentence):
            run(*words)
    other = tmp_path / "out" / "runs" / folder.name
    shutil.copytree(folder, other)
    record = files.read_sealed(other / "run.json") | {"checkpoint_sha256": "0"}
    files.write_sealed(other / "run.json", record)
    cell = next(path for path in (other / "attacks").glob("fgsm*.json"))
    files.write_sealed(cell.with_name("new.json"), files.read_sealed(cell) | {"checkpoint_sha256": "0"})
    with pytest.raises(BadInput, match="is about another checkpoint"):
        run("publish", other)
    assert shown(listed) == before


@pytest.mark.slow
def test_a_failure_on_the_way_leaves_the_checkout_as_it_was(listed: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> dict[Path, bytes]:
        home = listed.results.parent
        paths = [path for name in ("results", "tables") for path in (home / name).rglob("*")]
        return {path: path.read_bytes() if path.is_file() else b"" for path in paths}

    def fails(*_: object, **__: object) -> str:
        raise RuntimeError("of the page")

    first, second = (Path("out/runs") / name for name in (listed.folders[0].name, "digits-mine-s0-0123456789"))
    for folder in (first, second):
        shutil.copytree(listed.folders[0], folder)
    record = files.read_sealed(second / "run.json") | {"id": second.name}
    files.write_sealed(second / "run.json", record)
    for path in (second / "attacks").glob("*.json"):
        files.write_sealed(path, files.read_sealed(path) | {"run_id": second.name})
    cell = next(path for path in (first / "attacks").glob("fgsm*.json"))
    files.write_sealed(cell.with_name("new.json"), files.read_sealed(cell) | {"eps": 0.07})
    before = everything()
    for words in (("publish", "out"), ("publish", first, "--zoo", "digits/mine")):
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="of the page"):
            patched.setattr("robustbench_dec.page.render", fails)
            run(*words)
        assert everything() == before
    run("withdraw", "tables/tiny.toml")
    before = everything()
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="of the page"):
        patched.setattr("robustbench_dec.page.render", fails)
        run("publish", "tables/tiny.toml")
    assert everything() == before
    run("publish", "tables/tiny.toml")
    assert "1 rows more, 7 in all" in run("publish", first, "--zoo", "digits/mine")


# The repository


def test_every_row_of_the_tracked_leaderboard_has_its_files_tracked(tracked: Path) -> None:
    names = {str(path) for path in repository.tracked("results")}
    for row in rows(tracked / "results"):
        run_folder = f"results/runs/{row['run_id']}"
        assert {f"{run_folder}/run.json", f"{run_folder}/attacks/{row['cell']}.json"} <= names
    record = PublishedRecord.read(tracked / "results" / "published.json")
    listed = {(run_id, stem) for each in (record.own, record.users) for run_id in each for stem in each[run_id]}
    assert listed <= {(row["run_id"], row["cell"]) for row in rows(tracked / "results")}
    assert {f"results/tables/{stem}.json" for stem in record.tables} <= names


@pytest.mark.slow
def test_git_sees_nothing_after_any_command_but_the_one_that_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the README, in small, in a copy of the repository."""
    home = repository.check_out(tmp_path / "clone", ".gitignore", "results", "tables", "examples")
    monkeypatch.chdir(home)
    run("page")  # this copy has no code beside it to which the page could lead
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "-A", "-f"), (*author, "commit", "-q", "-m", "all")):
        repository.git(*words, root=home)

    def status() -> str:
        return repository.git("status", "--porcelain", root=home).decode()

    short = ("--rounds", "2", "--nodes", "2", "--graph", "complete")
    run("train", "--results", "out", *short)
    run("train", "--results", "results", *short)  # by mistake
    (folder,) = Path("out/runs").iterdir()
    run("attack", folder, "--attack", "pgd", "--eps", "0.1", "--set", "steps=5", "--n-examples", "20")
    run("attack", Path("results/runs") / folder.name, "--attack", "fgsm", "--eps", "0.1", "--n-examples", "20")
    assert status() == ""
    run("zoo", "add", folder, "digits/mine")
    run("compare", "--attack", ROOT / "examples" / "momentum.py", "--model", "digits/mine", "--eps", "0.1",
        "--set", "steps=5", "--n-examples", "20")  # fmt: skip
    for command in (
        ("list",),
        ("zoo", "list"),
        ("audit",),
        ("export",),
        ("page",),
        ("render", "tables/robust-network.toml"),
    ):
        run(*command)
    assert status() == ""
    run("publish", "out/runs/" + folder.name)
    changed = {line[3:] for line in status().splitlines()}
    assert changed == {"results/leaderboard.csv", "results/published.json", "tables/index.html"}  # runs are ignored
    run("withdraw", "out/runs/" + folder.name)
    assert status() == ""

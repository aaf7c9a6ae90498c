"""The command line: newcomers get help, bad input gets one sentence and exit code 2, Ctrl-C loses nothing."""

import errno
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import robustbench_dec
from robustbench_dec import files, page
from robustbench_dec.commands import app as cli
from robustbench_dec.data import sources
from robustbench_dec.errors import BadInput
from robustbench_dec.networks import topology
from robustbench_dec.rendering import curves as plots
from robustbench_dec.rendering import pictures, style
from robustbench_dec.running import steps
from robustbench_dec.specs import table as spec
from tests.support import ROOT
from tests.support.tiny import Made
from trainers.dec_fedtrack import DecFedTrack

COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `robustbench-dec WORDS...` in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["robustbench-dec", *map(str, words)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as error:
            code = error.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def refused(command: Run) -> Callable[..., str]:
    """Run a command that must be refused; its one sentence."""

    def run(*words: str | Path) -> str:
        code, _, err = command(*words)
        assert code == 2, err
        assert err.startswith("robustbench-dec: ") and err.endswith("\n") and err.count("\n") == 1, err
        assert "Traceback" not in err
        return err

    return run


# Good input


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, command: Run) -> None:
    code, out, _ = command(name, "--help")
    assert code == 0
    assert f"robustbench-dec {name}" in out and len(out.splitlines()) > 5


def test_the_help_names_every_command_and_first_steps(command: Run) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert all(re.search(rf"\b{name}\b", out) for name in COMMANDS)
    assert {"data", "list", "train", "attack", "table", "render", "tune"} <= set(COMMANDS)
    assert "First steps" in out


HEAVY = ("torch", "pandas", "numpy", "matplotlib", "seaborn", "scipy", "sklearn")


@pytest.mark.slow
def test_words_that_do_no_work_import_nothing_heavy() -> None:
    """Half a second instead of four: what a command needs is imported when it runs."""
    lines = [["--help"], ["--version"], ["no-such-command"], ["train", "--rounds", "0"]]
    lines += [[name, "--help"] for name in [*COMMANDS, "zoo"]]
    script = (
        "import sys\nfrom robustbench_dec.commands import app\n"
        f"for words in {lines!r}:\n"
        "    sys.argv = ['robustbench-dec', *words]\n"
        "    try:\n        app.main()\n    except SystemExit:\n        pass\n"
        f"    found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not found, (words, found)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (
        "no-such-command" in done.stderr and "--rounds" in done.stderr and done.stdout.count("Usage") == len(lines) - 3
    )


def test_the_version_is_the_packages(command: Run) -> None:
    assert command("--version") == (0, f"robustbench-dec {robustbench_dec.__version__}\n", "")


@pytest.mark.slow
def test_a_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> str:
        words = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
            "_ROBUSTBENCH_DEC_COMPLETE": "complete_bash",
        }
        script = "import sys; sys.argv = ['robustbench-dec']; from robustbench_dec.commands import app; app.main()"
        return subprocess.run(
            [sys.executable, "-c", script], env=os.environ | words, capture_output=True, text=True, timeout=60
        ).stdout

    assert completed("robustbench-dec tab").split() == ["table"]
    assert {"--stragglers", "--save-seconds"} <= {*completed("robustbench-dec train --s").split()}


def test_python_dash_m_is_the_same_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["robustbench_dec", "train", "--trainer", "adam"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("robustbench_dec", run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("robustbench-dec: no trainer 'adam'")


@pytest.mark.slow
def test_train_without_arguments_trains_on_digits_and_attack_attacks_it(command: Run, tmp_path: Path) -> None:
    code, out, err = command("train", "--rounds", "2")
    assert code == 0, err
    assert "clean accuracy" in out and "2 rounds" in out and "SFO calls per node" in out
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    record = files.read_json(folder / "run.json")
    assert record["settings"]["problem"]["dataset"] == "digits"
    code, out, err = command("data", "digits", "--split", "iid", "--nodes", "5")
    assert code == 0, err
    held = [[int(count) for count in line.replace(".", "0").split()[1:]] for line in out.splitlines()[2:-1]]
    assert held == record["classifier"]["holdings"]
    code, out, err = command(
        "attack", folder, "--attack", "pgd", "--eps", "8/255,0.1", "--set", "steps=5", "--n-examples", "9"
    )
    assert code == 0, err
    assert len(out.splitlines()) == 2 and "pgd Linf 0.1" in out
    cells = [files.read_json(path) for path in (folder / "attacks").glob("*.json")]
    assert sorted(cell["eps"] for cell in cells) == [8 / 255, 0.1]
    assert all(cell["settings"]["steps"] == 5 and cell["n_examples"] == 9 for cell in cells)


def test_list_names_what_is_on_the_shelves(command: Run) -> None:
    code, out, _ = command("list")
    assert code == 0
    assert all(
        word in out for word in ("dec_fedtrack", "k_gt", "fgsm", "pgd", "uap", "digits", "cifar10", "ring", "lazy")
    )


@pytest.mark.slow
def test_table_uses_what_is_there_and_render_needs_nothing_else(
    command: Run, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "curves", lambda *arguments: {})  # slow, and shown in test_runs
    monkeypatch.setattr(pictures, "perturbations", lambda *arguments: {})
    before = {path: path.stat().st_mtime_ns for path in made.results.glob("runs/**/*.json")}
    code, out, err = command("table", made.file, "--results", made.results, "--jobs", "1")
    assert code == 0, err
    assert "2 runs complete" in out and "tiny.tex" in out
    assert {path: path.stat().st_mtime_ns for path in made.results.glob("runs/**/*.json")} == before
    table = made.file.with_suffix(".csv")
    first = table.read_bytes()
    table.unlink()
    code, out, err = command("render", made.file, "--results", made.results)
    assert code == 0, err
    assert table.read_bytes() == first


# Every kind of specification, told apart before any work


def copied(tmp_path: Path, *parts: str) -> Path:
    """A folder with the committed tables, and with links to these parts of the committed results."""
    shutil.copytree(ROOT / "tables", tmp_path / "tables")
    for part in parts:
        (tmp_path / "results" / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / part).symlink_to(ROOT / "results" / part)
    return tmp_path / "tables"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_figures_are_rendered_from_the_committed_runs_and_leave_the_leaderboard_alone(
    command: Run, tracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "drawn", lambda figure, kind: b"")  # tests/rendering/test_figures.py draws
    tables = Path(shutil.copytree(tracked / "tables", tmp_path / "tables"))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "runs").symlink_to(tracked / "results" / "runs")
    (tmp_path / "results" / "leaderboard.csv").write_text("precious")
    points = ("figures.csv", "figures-windows.csv")
    for name in points:
        (tables / name).unlink()
    before = contents(tables)
    code, out, err = command("render", tables / "figures.toml")
    assert code == 0, err
    assert out.splitlines() == [
        f"wrote {tables}/figures{end}" for end in (".csv", "-windows.csv", "-1.png", "-1.pdf", "-2.png", "-2.pdf")
    ]
    assert all((tables / name).read_bytes() == (tracked / "tables" / name).read_bytes() for name in points)
    wanted, _ = steps.taken(spec.read(tables / "figures.toml"), tables / "figures")
    shown = set(pd.read_csv(tables / "figures.csv")["run_id"])
    assert shown == {run.id for _, run in wanted.runs()}  # all data sets, methods and seeds
    assert {*contents(tables)} - {*before} == {*points}
    assert contents(tables)["index.html"] == before["index.html"]
    assert (tmp_path / "results" / "leaderboard.csv").read_text() == "precious"


@pytest.mark.slow
def test_claims_are_rendered_from_measured_runs_only(command: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    tables = copied(tmp_path)
    before = contents(tmp_path)
    sentence = refused("render", tables / "table1.toml")
    assert f"`robustbench-dec table {tables}/table1.toml` measures them" in sentence
    assert contents(tmp_path) == before
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "table1").symlink_to(ROOT / "results" / "table1")
    (tables / "table1.md").unlink()
    code, _, err = command("render", tables / "table1.toml")
    assert code == 0, err
    assert contents(tables) == {name.removeprefix("tables/"): data for name, data in before.items()}


@pytest.mark.parametrize(
    "name, layout, sentence",
    [
        ("table2", "figures", "layout 'figures' shows Phi, but block 'MNIST' has none; layout 'attacks' would do"),
        ("figures", "attacks", "[steps] are for figures, not for layout 'attacks'; layout 'figures' would do"),
        ("figures", "networks", "[steps] are for figures, not for layout 'networks'; layout 'figures' would do"),
        (
            "figures",
            "poster",
            "no layout 'poster'; there are: attacks, networks, figures, methods, radius, claims, protocol",
        ),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_before_any_work(
    name: str, layout: str, sentence: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    text = (ROOT / "tables" / f"{name}.toml").read_text()
    text = re.sub(r"^(layout|protocol|redefined) = .*\n", "", text, flags=re.MULTILINE).replace(
        "\ntitle =", f'\nlayout = "{layout}"\ntitle =', 1
    )
    (tmp_path / "mine.toml").write_text(text)
    for word in ("table", "render"):
        assert sentence in refused(word, "mine.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_commands_that_need_models_refuse_claims_and_name_the_one_that_makes_them(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    claims = ROOT / "tables" / "table1.toml"
    (tmp_path / "results").mkdir()
    for words in (["train", claims], ["audit", claims]):
        assert f"`robustbench-dec table {claims}` makes it" in refused(*words)
    assert "has figures and no attacks" in refused("audit", ROOT / "tables" / "figures.toml")
    assert "no specification gone.toml" in refused("audit", "gone.toml")
    assert "has no profiles" in refused("render", claims, "--profile", "quick")


@pytest.mark.slow
def test_a_table_that_cannot_be_rendered_writes_nothing(
    made: Made, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise BadInput("no pencil")

    monkeypatch.setattr(page, "render", broken)  # the very last thing that is made
    before = contents(made.results.parent)
    assert "no pencil" in refused("render", made.file, "--results", made.results)
    assert contents(made.results.parent) == before


@pytest.mark.slow
def test_labels_do_not_depend_on_where_tables_are_written(
    command: Run, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "curves", lambda *arguments: {})
    monkeypatch.setattr(pictures, "perturbations", lambda *arguments: {})
    assert command("render", made.file, "--results", made.results)[0] == 0
    labelled = (made.results / "leaderboard.csv").read_bytes()
    assert b"tiny" in labelled
    assert command("render", made.file, "--results", made.results, "--tables", tmp_path / "elsewhere")[0] == 0
    assert (made.results / "leaderboard.csv").read_bytes() == labelled
    other = made.file.with_name("other.toml")
    made.file.rename(other)
    assert command("render", other, "--results", made.results)[0] == 0
    assert b"other;tiny" in (made.results / "leaderboard.csv").read_bytes()  # what was rendered once stays known


@pytest.mark.slow
def test_results_elsewhere_take_their_tables_and_their_page_with_them(
    command: Run, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "curves", lambda *arguments: {})
    monkeypatch.setattr(pictures, "perturbations", lambda *arguments: {})
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made.results, elsewhere)
    monkeypatch.chdir(made.file.parent.parent)
    before = contents(made.file.parent)
    for words in (["render", made.file], ["table", made.file], ["page"]):
        code, _, err = command(*words, "--results", elsewhere)
        assert code == 0, err
    code, _, err = command(
        "compare", "--attack", "fgsm", "--model", elsewhere / "runs" / made.folders[0].name, "--n-examples", "10",
        "--results", elsewhere,
    )  # fmt: skip
    assert code == 0, err
    assert contents(made.file.parent) == before
    assert {"tiny.csv", "tiny.tex", "index.html"} <= {path.name for path in elsewhere.iterdir()}


# Bad input


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--trainer", "adam"], "no trainer 'adam'; there are: dec_fedtrack,"),
        (["--trainer", "missing.py:Mine"], "no file missing.py"),
        (["--dataset", "imagenet"], "imagenet.*digits"),
        (["--classes", "cat"], "cat"),
        (["--set", "etac=0.1"], "no setting 'etac'; there are: eta_c, eta_d"),
        (["--set", "eta_c"], "NAME=VALUE"),
        (["--set", "K=many"], "K"),
        (["--set", "eta_r=1.2"], "eta_r must be between 0 and 1"),
        (["--set", "eta_c=0"], "eta_c must be a positive step size"),
        (["--set", "batch=100000"], "1 to .* samples"),
        (["--eps", "-0.1"], "eps, the radius, must be a number of 0 or more, not -0.1"),
        (["--eps", "inf"], "eps"),
        (["--eps", "wide"], "expected a number such as 0.1 or 8/255, got 'wide'"),
        (["--graph", "moebius"], "no graph 'moebius'; there are: ring"),
        (["--graph", "star"], "take metropolis weights"),
        (["--weights", "equal"], "no weights 'equal'"),
        (["--nodes", "0"], "at least 1 node"),
        (["--nodes", "400", "--classes", "0,1"], "400"),
        (["--split", "by-hand"], "by-hand"),
        (["--matrix", "W.csv"], "go together"),
        (["--graph", "file", "--matrix", "W.csv"], "cannot read the matrix file"),
        (["--device", "abacus"], "cannot use the device 'abacus'"),
        (["--seed", "-1"], "'--seed'.* 0; the same command with --help"),
        (["--seed", "99999999999999999999"], "'--seed'.* 4294967295"),
        (["--rounds", "0"], "'--rounds'"),
        (["--rounds", "99999999999999999999"], "at most 1,000,000,000,000"),
        (["--nodes", "100000"], "100000 nodes are more than the 1293 samples"),
        (["--results", ""], "name of a folder"),
        (["--eps", "0.1", "--problem-set", "eps=0.3"], "eps is given twice"),
        (["--eps", "99"], "at most 1 for images"),
        (["--speed", "3"], "--speed"),
        (["--set", "K=2", "--set", "K=3"], "--set K is given twice, as 2 and as 3"),
        (["--set", "K=true"], "setting 'K' cannot be 'true'"),
        (["--timeout", "nan"], "--timeout is a number of seconds from 1 to 86400, not nan$"),
        (["--timeout", "0"], "--timeout is a number of seconds from 1 to 86400, not 0$"),
        (["--save-seconds", "soon"], "--save-seconds is a number of seconds from 0 to 1e\\+09, not soon$"),
        (["--trainer", "k_gt", "--set", "eta_c=1e9"], "diverged in round 1 .*eta_c = 1e\\+09"),
    ],
)
def test_training_that_cannot_be_is_refused_in_one_sentence(
    words: list[str], sentence: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    rounds = [] if "--rounds" in words else ["--rounds", "1"]
    assert re.search(sentence, refused("train", *rounds, *words))
    assert not list(tmp_path.glob("*/runs/*")) and not (tmp_path / "runs").exists()


NOT_THESE = {
    "publish",
    "withdraw",
    "flags",
    "data",
    "list",
    "audit",
    "render",
    "page",
    "export",
    "radius",
    "train",
    "attack",
    "verify",
}  # the last two are tried elsewhere
DEVICES: dict[str, list[str | Path]] = {
    "table": [ROOT / "tables" / "table2.toml"],
    "tune": [ROOT / "tables" / "table2.toml"],
    "reproduce": [ROOT / "tables" / "table2.toml", "--results", "out"],
    "trials": [ROOT / "tables" / "protocol.toml"],
    "compare": ["--attack", "fgsm", "--results", "results"],
    "check": ["k_gt", "--set", "eta_c=0.1"],
    "diagnose": [],
    "score": ["images.safetensors", "--model", "mnist/k_gt", "--eps", "0.1"],
    "submit": ["."],
}


@pytest.mark.parametrize("name", sorted({*COMMANDS} - NOT_THESE))
def test_every_command_that_trains_or_attacks_takes_a_device(name: str, refused: Callable[..., str]) -> None:
    assert "cannot use the device 'abacus'" in refused(name, *DEVICES[name], "--device", "abacus")


@pytest.mark.parametrize(
    "W, sentence",
    [
        (np.full((5, 5), 0.3), "doubly stochastic"),
        (np.eye(5), "must connect all nodes"),
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "leaves 2 parts apart"),
        (topology.build("ring", 4), "a matrix for 4 nodes, but the network has 5"),
        (-np.eye(5) + 0.4, "non-negative"),
    ],
    ids=["sums", "alone", "parts", "size", "negative"],
)
def test_a_matrix_that_does_not_fit_is_refused_in_one_sentence(
    W: np.ndarray, sentence: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    np.savetxt(tmp_path / "W.csv", W, delimiter=",")
    assert sentence in refused("train", "--rounds", "1", "--graph", "file", "--matrix", "W.csv")


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--attack", "square"], "no attack 'square'; there are: fgsm, pgd, strong, uap, uap_annealed"),
        (["--eps", "-0.1"], "0 or more, not -0.1"),
        (["--set", "eps=0.3"], "given by --eps, not by --set eps"),
        (["--eps", "0.1,"], "expected a number"),
        (["--set", "step=3"], "PGD has no setting 'step'; there are: eps, steps"),
        (["--set", "steps=2"], "cannot reach the radius"),
        (["--set", "random_start=perhaps"], "random_start"),
        (["--attack", "uap", "--set", "step=leap"], "'sign', 'adam' or 'momentum'"),
        (["--attack", "uap", "--set", "anchor=0"], "anchor is a radius from which others start"),
        (["--device", "abacus"], "device"),
        (["--max-seconds", "nan"], "--max-seconds is a number of seconds from 1 to 1e+09, not nan"),
        (["--max-memory", "0"], "--max-memory is a number of GB from 0.5 to 1e+06, not 0"),
    ],
)
def test_an_attack_that_cannot_be_is_refused_in_one_sentence(
    words: list[str], sentence: str, refused: Callable[..., str], finished: Made
) -> None:
    assert sentence in refused("attack", finished.folders[0], *words)


def test_a_radius_that_is_given_twice_is_attacked_once(command: Run, made: Made) -> None:
    code, out, err = command(
        "attack", made.folders[0], "--attack", "fgsm", "--eps", "0.1,0.1,1/10", "--n-examples", "50"
    )
    assert code == 0 and out.count("fgsm Linf 0.1:") == 1 == len(out.splitlines()), (out, err)


@pytest.mark.slow
def test_more_images_than_there_are_are_all_of_them_and_the_same_cell(command: Run, made: Made) -> None:
    before = {*made.folders[0].glob("attacks/*.json")}
    for count in ("360", "361", "99999"):
        code, _, err = command("attack", made.folders[0], "--attack", "fgsm", "--eps", "0.3", "--n-examples", count)
        assert code == 0, err
    (new,) = {*made.folders[0].glob("attacks/*.json")} - before
    assert files.read_sealed(new)["n_examples"] == 360


def test_a_run_without_images_is_not_attacked(command: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    code, _, err = command("train", "--problem", "quadratic", "--rounds", "1", "--nodes", "3")
    assert code == 0, err
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    assert "the problem 'quadratic', which has no images to attack" in refused("attack", folder)


def test_a_run_that_holds_no_images_out_is_trained_to_its_end(command: Run, tmp_path: Path) -> None:
    code, _, err = command("train", "--rounds", "1", "--problem-set", "validation=0")
    assert code == 0, err
    (record,) = (tmp_path / "out" / "runs").glob("*/run.json")
    assert files.read_sealed(record)["classifier"]["clean"]["validation"] is None


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--model", ""], "a pattern of the zoo such as mnist/*, a run's folder or a .safetensors file, not ''"),
        (["--eps", "5"], "an Linf radius of 5 cannot be meant for images in [0, 1]"),
        (["--attack", "torchattacks:Pixle", "--eps", "0.1"], "an L0 radius is a whole number of pixels, not 0.1"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_in_one_sentence(
    words: list[str], sentence: str, refused: Callable[..., str]
) -> None:
    attack = [] if "--attack" in words else ["--attack", "fgsm"]
    assert sentence in refused("compare", *attack, *words)


def test_auditing_what_is_not_there_is_refused(refused: Callable[..., str]) -> None:
    assert "no folder nowhere" in refused("audit", "--results", "nowhere")


def test_attacking_what_is_no_run_is_refused(refused: Callable[..., str], made: Made, tmp_path: Path) -> None:
    assert "no finished run" in refused("attack", tmp_path / "nowhere")
    checkpoint = made.folders[0] / "checkpoint.safetensors"
    checkpoint.write_bytes((made.folders[1] / "checkpoint.safetensors").read_bytes())
    assert "sha256" in refused("attack", made.folders[0], "--eps", "0.12")
    checkpoint.unlink()
    assert "missing" in refused("attack", made.folders[0], "--eps", "0.12")
    (made.folders[0] / "run.json").write_text("{")
    assert "run.json has no seal" in refused("attack", made.folders[0])


def test_a_checkpoint_of_another_architecture_is_refused_in_one_sentence(
    refused: Callable[..., str], made: Made
) -> None:
    """Its digest was put into run.json too, so only the network itself can tell."""
    folder = made.folders[0]
    checkpoint = folder / "checkpoint.safetensors"
    content = checkpoint.read_bytes().replace(b'kernel\\": 5', b'kernel\\": 3')
    checkpoint.write_bytes(content)
    record = files.read_json(folder / "run.json")
    files.write_sealed(folder / "run.json", record | {"checkpoint_sha256": files.sha256(checkpoint)})
    assert "it belongs to another architecture" in refused("attack", folder, "--eps", "0.12")


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ('title = "Tiny"', "title = ", "is not valid TOML"),
        ('title = "Tiny"', 'title = "Tiny"\nseeed = 3', "'seeed': no such setting; there are: title, caption"),
        ('title = "Tiny"', 'title = "Tiny"\nseeds = [1, 1]', "every seed should come once"),
        ('title = "Tiny"', 'title = "Tiny"\nseeds = [-1]', "greater than or equal to 0"),
        ("nodes = 2", "nodes = 2\nspeed = 1", "'network.speed': no such setting; there are: graph, nodes"),
        ("rounds = 24", "rounds = 0", "'blocks.0.rounds'"),
        ("[blocks.trainers.k_gt]", "[blocks.trainers.adam]", "no trainer 'adam'"),
        ('name = "uap"', 'name = "upa"', "no attack 'upa'"),
        ("steps = 10", "stepps = 10", "UAP has no setting 'stepps'"),
        ("eps = 0.1\n", "epps = 0.1\n", "Universal has no setting 'epps'"),
        ('dataset = "digits"', 'name = "quadratic"', "no setting"),
    ],
)
def test_a_specification_that_cannot_be_is_refused_in_one_sentence(
    old: str, new: str, sentence: str, refused: Callable[..., str], made: Made
) -> None:
    text = made.file.read_text()
    assert old in text
    made.file.write_text(text.replace(old, new, 1))
    assert sentence in refused("table", made.file, "--results", made.results, "--jobs", "1")


def test_what_is_no_specification_is_refused_in_one_sentence(
    refused: Callable[..., str], finished: Made, tmp_path: Path
) -> None:
    assert "no profile 'fast'; there are: smaller" in refused("table", finished.file, "--profile", "fast")
    assert "no specification" in refused("table", tmp_path / "none.toml")
    assert "no specification" in refused("render", tmp_path)
    assert "[tune]" in refused("tune", finished.file)
    assert "no finished run" in refused("render", finished.file)
    (tmp_path / "latin.toml").write_bytes(b'title = "caf\xe9"\n')
    assert "is not valid TOML" in refused("table", tmp_path / "latin.toml")


def test_a_results_folder_that_is_a_file_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("precious")
    assert "taken" in refused("train", "--rounds", "1", "--results", "taken")
    assert (tmp_path / "taken").read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_no_space_and_no_permission_are_one_sentence_and_leave_no_half_files(
    call: str, number: int, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fails)
    sentence = refused("train", "--rounds", "1")
    assert "cannot write" in sentence and os.strerror(number) in sentence and "choose a folder" in sentence
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_truncated_data_file_is_named_and_if_there_is_no_other_refused(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*arguments: Any) -> Any:
        raise sources.Unavailable("not reachable")
        yield

    monkeypatch.setattr(sources, "published", unreachable)
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    monkeypatch.delenv("ROBUSTBENCH_DEC_MIRROR", raising=False)
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    monkeypatch.setenv("ROBUSTBENCH_DEC_DATA", str(tmp_path / "data"))
    for words in (["data", "mnist"], ["train", "--dataset", "mnist", "--rounds", "1"]):
        code, _, err = command(*words)
        warning, sentence = err.splitlines()
        assert code == 2
        assert "train-images-idx3-ubyte is corrupt or partial" in warning
        assert sentence.startswith("robustbench-dec: cannot obtain train-images-idx3-ubyte")


@pytest.mark.slow
def test_who_holds_which_labels_is_told_and_drawn(command: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    code, out, err = command("data", "digits", "--split", "classes(2)", "--nodes", "10", "--plot", "--out", "here")
    assert code == 0, err
    rows = [line.split() for line in out.splitlines()[2:12]]
    assert [row[0] for row in rows] == [str(node) for node in range(10)]
    assert all(sum(count != "." for count in row[1:]) == 2 for row in rows)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        "digits-classes-2-10-nodes.pdf",
        "digits-classes-2-10-nodes.png",
    ]
    assert "needs a --split" in refused("data", "digits", "--plot")
    assert "no split 'labels'" in refused("data", "digits", "--split", "labels")
    assert "holds rows of features" in refused("data", "breast_cancer", "--split", "iid")


def test_unknown_data_are_refused_with_the_known_ones(refused: Callable[..., str]) -> None:
    assert re.search("imagenet.*cifar10.*digits|imagenet.*digits.*cifar10", refused("data", "imagenet"))


def test_what_a_users_file_raises_is_quoted_in_one_sentence(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('several\\nlines')\n")
    assert "mine.py cannot be imported: RuntimeError: several lines" in refused("train", "--trainer", "mine.py:Mine")
    (tmp_path / "empty.py").write_text("")
    assert "no class Mine" in refused("train", "--trainer", "empty.py:Mine")


def test_a_trainer_that_calls_sys_exit_is_told_and_has_trained_nothing(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file.py").write_text("import sys\nsys.exit(0)\n")
    assert "file.py cannot be imported: SystemExit: 0 (file.py, line 2)" in refused(
        "train", "--trainer", "file.py:Mine"
    )
    mine = (ROOT / "examples" / "mine.py").read_text().replace("X, Y, Vx, Vy, Gx_prev, Gy_prev = state", "exit(0)")
    (tmp_path / "step.py").write_text(mine)
    assert "step.py:Mine: step called sys.exit(0)" in refused("train", "--rounds", "2", "--trainer", "step.py:Mine")
    (tmp_path / "raises.py").write_text(mine.replace("exit(0)", "state.X.nothing()"))
    sentence = refused("train", "--rounds", "2", "--trainer", "raises.py:Mine")
    assert re.search(r"raises\.py:Mine: step raised AttributeError: .*\(raises\.py, line \d+\)", sentence)
    assert not list(tmp_path.glob("out/runs/*/run.json"))


# Ctrl-C


def test_ctrl_c_says_in_one_sentence_that_nothing_is_lost(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DecFedTrack, "step", interrupted)
        code, _, err = command("train", "--rounds", "1")
    assert code == 130
    assert err == "robustbench-dec: stopped; the same command goes on where this one was\n"
    assert command("train", "--rounds", "1")[0] == 0

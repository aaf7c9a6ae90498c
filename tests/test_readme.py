"""README and docs: commands that can be typed, links that lead somewhere, numbers that a file holds."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import typer

from robustbench_dec import shelf
from robustbench_dec.commands.app import app
from robustbench_dec.leaderboard.gather import COLUMNS
from robustbench_dec.rendering.text import with_parts
from robustbench_dec.running import suite, trials
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs import table as tables
from robustbench_dec.store.results import Results
from tests.support import ROOT, asked_by

README = ROOT / "README.md"
REPRODUCTION = ROOT / "docs" / "reproduction.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def flat(path: Path) -> str:
    return " ".join(path.read_text().split())


def typed(path: Path) -> Iterator[str]:
    """The command lines of a page: lines of its blocks, and code within a sentence that begins with a command."""
    text = path.read_text()
    for language, block in FENCE.findall(text):
        if not language:
            yield from (line.strip() for line in block.splitlines() if line.strip())
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        if code.startswith(("robustbench-dec ", "make ", "torchrun ")):
            yield code


COMMANDS = [pytest.param(line, id=f"{path.stem}: {line}") for path in PAGES for line in dict.fromkeys(typed(path))]


def arguments(line: str) -> list[str] | None:
    """What the suite's own command is given on a line, or None."""
    words = shlex.split(line, comments=True)
    if words[0] == "robustbench-dec":
        return words[1:]
    if "robustbench_dec" in words and words[words.index("robustbench_dec") - 1] == "-m":
        return words[words.index("robustbench_dec") + 1 :]
    return None


def parse(words: list[str]) -> None:
    """Resolve the sub-command and every option as the command line does, without running anything."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        if name.startswith("-"):
            assert name in {"--help", *(word for option in command.params for word in option.opts)}
            return
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    command.make_context(command.name, list(words))


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_is_printed_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)
    given = arguments(line)
    assert given is not None or words[0] in ("make", "source", "pip", "python", "tensorboard"), f"who knows {words[0]}?"
    if given is not None:
        parse(given)
        for word in given:
            if word.startswith(("tables/", "examples/", "benchmarks/")) and "NAME" not in word:
                assert (ROOT / word.partition(":")[0]).exists()
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        settings = set(re.findall(r"\b([A-Z]+)\b", (ROOT / "Makefile").read_text()))
        assert words[1] in targets and {word.partition("=")[0] for word in words[2:]} <= settings


@pytest.mark.parametrize("wrong", ["tabel tables/table2.toml", "train --graf ring", "zoo show", "compare", "--verson"])
def test_a_command_that_is_none_is_seen(wrong: str) -> None:
    with pytest.raises((AssertionError, typer.TyperException)):
        parse(shlex.split(wrong))


def test_the_readme_is_short_and_narrow() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 130
    assert [line for line in lines if len(line) > 110] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    links = [link for link in LINK.findall(FENCE.sub("", path.read_text())) if "://" not in link]
    links = [link for link in links if not link.startswith("made/")]  # `make docs` makes them, and Sphinx follows them
    assert [link for link in links if not (path.parent / link.partition("#")[0]).exists()] == []


def test_every_page_of_the_docs_can_be_reached_from_the_readme_and_stands_in_the_contents() -> None:
    contents = {line for _, block in FENCE.findall((ROOT / "docs" / "index.md").read_text()) for line in block.split()}
    assert {page.stem for page in DOCS} - {"index"} <= contents
    seen, new = set[Path](), {README, *(ROOT / "docs" / f"{name}.md" for name in ("index", "contributing", "changes"))}
    while new:
        seen |= new
        links = {(page.parent / link).resolve() for page in new for link in LINK.findall(page.read_text())}
        new = {link for link in links if link.suffix == ".md" and "made" not in link.parts} - seen
    assert set(DOCS) <= seen


# Numbers


def fill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/fill.py."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("fill")


def test_what_is_said_of_table_2_is_made_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = fill(monkeypatch)
    texts = [page.read_text() for page in maker.PAGES]
    assert [with_parts(text, maker.PARTS) for text in texts] == texts, "python docs/fill.py writes it"
    said = [set(re.findall(r"<!-- (\w+) -->", text)) & set(maker.PARTS) for text in texts]
    assert said == [{"results"}, maker.PARTS.keys() - {"results"}]


def test_every_cell_of_table_2_was_attacked_again(monkeypatch: pytest.MonkeyPatch, tracked: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    strength = importlib.import_module("attack_strength")
    asked = {key for job in strength.jobs(strength.table2(), Results(tracked / "results")) for key in job.keys}
    made = pd.read_csv(strength.FILE)[strength.KEYS]
    assert set(made.itertuples(index=False, name=None)) == asked and len(made) == len(asked)
    twice = [key for key in asked if strength.TWICE in key and strength.UAP in key]
    assert len(twice) == 3 * 20


def test_what_is_said_of_the_search_is_in_the_trials() -> None:
    rules = protocols.read(ROOT / "tables" / "protocol.toml")
    done = trials.read(ROOT / "tables" / rules.trials_file)
    cifar = done[done["block"] == "CIFAR-10"]
    order = trials.ranked(rules, cifar[cifar["stage"] == "short"])
    first = {method: order[order["method"] == method]["trial"].astype(int).tolist() for method in rules.methods}
    assert first["k_gt"].index(14) == 2 and first["dec_fedtrack"][2:4] == [8, 14]
    full = cifar[(cifar["stage"] == "full") & cifar["diverged"]]
    assert full[["method", "trial"]].values.tolist() == [["dec_fedtrack", 8]]
    said = flat(REPRODUCTION)
    assert "K-GT's trial 14 came third of its short trials" in said
    assert "Dec-FedTrack's trial 14 came fourth, behind trial 8, which diverged at full length" in said


def test_at_the_same_step_sizes_nothing_is_left_of_cifar_10s_margin(tracked: Path) -> None:
    found = pd.read_csv(ROOT / "benchmarks" / "same_steps.csv")
    wide = found[found["attack"].isin(["fgsm", "pgd"])].pivot_table(
        index=["trial", "attack", "eps"], columns=["method", "seed"], values="accuracy"
    )
    assert wide.shape == (2 * 6, 2 * 3) and not wide.isna().any(axis=None)
    ours, theirs = wide["dec_fedtrack"], wide["k_gt"]
    assert (ours.min(axis=1) <= theirs.max(axis=1)).all() and (theirs.min(axis=1) <= ours.max(axis=1)).all()
    assert "at the same step sizes nothing is left of it" in flat(REPRODUCTION)
    rules = protocols.read(ROOT / "tables" / "protocol.toml")
    points = rules.points(rules.blocks[1], "dec_fedtrack", rules.trials)
    radii = f"Dec-FedTrack's radius is {points[4]['radius']:g} at trial 4 and {points[14]['radius']:g} at trial 14"
    assert rules.blocks[1].title == "CIFAR-10" and radii in flat(REPRODUCTION)
    cells = pd.read_csv(tracked / "results" / "leaderboard.csv")
    asked = cells[(cells["dataset"] == "cifar10") & (cells["attack"] == "fgsm") & asked_by(cells, "table2")]
    stored = asked.set_index(["method", "seed", "eps"])["robust_acc"]
    chosen = found[(found["attack"] == "fgsm") & ((found["trial"] == 14) == (found["method"] == "k_gt"))]
    assert len(chosen) == 2 * 3 * 3
    for row in chosen.itertuples():  # those of each method's own trial are Table 2's
        assert stored[row.method, row.seed, row.eps] == row.accuracy


def test_what_is_said_of_runs_that_diverged_is_in_the_store(tracked: Path) -> None:
    results, said = Results(tracked / "results"), flat(REPRODUCTION)
    asked = [run for _, run in tables.read(ROOT / "tables" / "table2.toml").runs()]
    broken = {run.data_set for run in asked if results.run(run.id).divergence}
    assert broken == {"mnist"} and "runs diverge (above)" in said
    margins = pd.read_csv(tracked / "tables" / "table2-vs-paper.csv").set_index("dataset")
    assert margins.loc["mnist", "seeds"].max() <= 5 and set(margins.loc["mnist", "verdict"]) == {"undecided"}
    assert not (margins.loc["mnist", "p"] < 0.05).any()
    assert 2 / 2**5 > 0.05 and "With five pairs or fewer no exact test can give a p below .05" in said


def test_the_commits_of_table_2s_runs_are_those_that_the_text_names(tracked: Path) -> None:
    results, asked = Results(tracked / "results"), tables.read(ROOT / "tables" / "table2.toml").runs()
    made = {str(results.run(run.id).record.git_commit)[:7] for _, run in asked if results.run(run.id).exists}
    (named,) = re.findall(r"All published runs are of today's gossip \(commits ([^)]*)\)", flat(REPRODUCTION))
    assert set(named.replace(" and ", ", ").split(", ")) == made


def test_whether_a_run_diverges_is_decided_by_last_bits() -> None:
    frame = pd.read_csv(ROOT / "benchmarks" / "divergence.csv").set_index(["method", "seed", "threads"])
    broken = frame["diverged_in_round"].notna().unstack()
    assert (broken[1] != broken[2]).any() and "whether one does is decided by last bits" in flat(
        ROOT / "docs" / "reproduction.md"
    )
    assert broken.groupby(level="method").any().any(axis=1).all()  # "for both methods"


def test_the_made_parts_follow_their_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maker = fill(monkeypatch)
    here = ["protocol.md", "protocol-uap.md", "protocol.toml", "protocol-trials.csv"]
    here += [f"{stem}.{kind}" for stem in (maker.STEM, maker.BY_RADIUS) for kind in ("toml", "csv")]
    for path in (*(maker.TABLES / name for name in here), maker.STRENGTH, maker.SAME_STEPS):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    held = pd.read_csv(tmp_path / "table2.csv")
    held["seeds"] = 6
    held.loc[(held["dataset"] == "mnist") & (held["method"] == "dec_fedtrack"), "seeds"] = 5
    held.to_csv(tmp_path / "table2.csv", index=False)
    found = pd.read_csv(maker.TABLES / "table2-vs-paper.csv").set_index(["dataset", "attack", "eps"])
    found["verdict"] = "undecided"
    found.loc["mnist", "fgsm", 0.05] = [1.1, 2.25, 0.5, 1.5, 3.0, 0.031, 6, "reproduced"]
    found.loc["cifar10", "pgd", 0.003] = [1.9, -1.25, *[float("nan")] * 4, 1, "undecided"]
    found.to_csv(tmp_path / "table2-vs-paper.csv")
    monkeypatch.setattr(maker, "TABLES", tmp_path)
    for name in ("STRENGTH", "SAME_STEPS"):
        monkeypatch.setattr(maker, name, tmp_path / getattr(maker, name).name)
    monkeypatch.setattr(maker, "unmade", lambda: [])
    before = {name: part() for name, part in maker.PARTS.items()}
    assert "over seeds: 6, but Dec-FedTrack on MNIST 5." in before["results"].replace("\n", " ")
    assert "| MNIST | FGSM δ=0.05 | +1.1 | +2.2 ± 0.5 | +1.5 to +3.0 | 0.031 | reproduced |" in before["margins"]
    assert "| CIFAR-10 | PGD δ=0.003 | +1.9 | -1.2 | -- | -- | undecided |" in before["margins"]
    assert "MNIST: of 9 attacked columns 1 reproduced, 0 not reproduced, 8 undecided" in before["verdict"]
    assert "- K-GT on MNIST, seed 4, diverged in round 12 (loss 251)." in before["diverged"].splitlines()
    changes = {
        "table2.csv": ["mean"],
        "table2-vs-paper.csv": ["margin"],
        "protocol-trials.csv": ["clean"],
        "table2-radius.csv": ["mean"],
        "attack_strength.csv": ["table", "changed", "points_below_table"],
        "same_steps.csv": ["accuracy"],
    }
    for name, columns in changes.items():
        frame = pd.read_csv(tmp_path / name)
        frame[columns] = frame[columns].sub(0.03 * (frame.index % 7), axis=0)
        frame.to_csv(tmp_path / name, index=False)
    board = pd.read_csv(maker.RESULTS.leaderboard, keep_default_na=False)
    board.assign(reliability_flags="not_converged").to_csv(tmp_path / "leaderboard.csv", index=False)
    monkeypatch.setattr(maker, "RESULTS", Results(tmp_path))
    for name, part in maker.PARTS.items():
        assert part() != before[name], name


def test_the_minutes_of_table_2_are_those_of_the_times() -> None:
    clock = pd.read_csv(ROOT / "benchmarks" / "reproduced_times.csv").set_index(["command", "cpu"])["clock_seconds"]
    minutes = " to ".join(f"{clock['make table2', cpu] / 60:.0f}" for cpu in ("AVX512", "AVX2"))
    seeds = len(tables.read(ROOT / "tables" / "table2.toml").seeds)
    assert f"`SEEDS={seeds}` | Table 2: a seed; all | [{minutes}; {seeds} times that](docs" in README.read_text()


def test_the_minutes_of_the_table_by_radius_are_those_of_the_times(tracked: Path) -> None:
    spent = (
        pd.read_csv(ROOT / "benchmarks" / "reproduced_times.csv").set_index("command").loc["make radius RESULTS=out"]
    )
    assert f"| {spent['clock_seconds'] / 60:.0f}, beside Table 2 |" in README.read_text()
    others = {run.id for _, run in tables.read(ROOT / "tables" / "table2.toml").runs()}
    results, work = Results(tracked / "results"), suite.listed(tables.read(ROOT / "tables" / "table2-radius.toml"))
    alone = [item for item in work if item.run.id not in others]
    homes = [(item, home) for item in alone if (home := results.run(item.run.id)).exists]
    seconds = sum(
        home.record.wall_s + sum(home.cell(it.key).record.wall_s for it in item.cells) for item, home in homes
    )
    assert (len(alone), round(seconds)) == (spent["runs"], spent["core_seconds"])
    assert len(alone) - len(homes) == 4 and "of which four diverged" in flat(REPRODUCTION)


def test_no_verdict_is_given_before_all_runs_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maker = fill(monkeypatch)
    monkeypatch.setattr(maker, "RESULTS", Results(tmp_path))
    assert maker.unmade() == [0, 1, 2, 3, 4, 5]
    assert maker.verdict() == (
        "Runs of seeds 0, 1, 2, 3, 4, 5 are still to be made: no verdict on the paper's order before that."
    )


def test_no_other_number_of_the_readme_looks_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FENCE.sub("", README.read_text())
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", "", text, flags=re.DOTALL)  # made of files
    text = " ".join(text.split()).replace(report_on_speed(monkeypatch).sentence(), "")  # another test reads its file
    known = {"3.11", "2405.00965", "0.1.0"}
    assert set(re.findall(r"\d+(?:\.\d+)+|\d+ ?%", text)) <= known
    lines = len((ROOT / "examples" / "mine.py").read_text().splitlines())
    assert f"a whole trainer in {lines} lines" in flat(README)


def test_the_margins_of_table_2_are_those_of_the_leaderboard(tracked: Path) -> None:
    frame = pd.read_csv(tracked / "results" / "leaderboard.csv")
    cells = Results(tracked / "results").tables()["table2"].cells
    asked = frame[[cell in cells.get(run, ()) for run, cell in zip(frame["run_id"], frame["cell"], strict=True)]]
    wide = asked.pivot_table(index=["dataset", "attack", "eps", "seed"], columns="method", values="robust_acc")
    by_seed = 100 * (wide["dec_fedtrack"] - wide["k_gt"]).dropna()
    said = pd.read_csv(tracked / "tables" / "table2-vs-paper.csv").query("attack != 'clean'")
    assert len(said) == 18
    for row in said.itertuples():
        here = by_seed[row.dataset, row.attack, row.eps]
        assert (len(here), here.mean(), here.std()) == (
            row.seeds,
            *(pytest.approx(n, abs=1e-4, nan_ok=True) for n in row[5:7]),
        )


def test_what_is_said_about_ranks_and_kills_is_in_their_files() -> None:
    text = (ROOT / "docs" / "processes.md").read_text()
    frame = pd.read_csv(ROOT / "benchmarks" / "ranks.csv").set_index(["case", "engine"])["ratio_to_simulator_1_thread"]
    for case in ("network (mnist)", "logistic (a9a)"):
        ratios = [f"{frame[case, engine]:.2f}" for engine in ("simulator, 2 threads", "2 ranks, 1 thread each")]
        assert f"| {case} | {' | '.join(ratios)} |" in text
    kills = pd.read_csv(ROOT / "benchmarks" / "faults.csv")
    said = flat(ROOT / "docs" / "processes.md")
    assert f"at {kills['killed'].sum()} random moments" in said
    assert f"In that way {kills['folder'].nunique()} sweeps were finished" in said


def test_what_is_said_about_other_networks_is_in_their_table(tracked: Path) -> None:
    frame = pd.read_csv(tracked / "tables" / "robust-network.csv")
    keys = ["graph", "nodes", "loss", "stragglers", "varying"]
    wide = 100 * frame.pivot_table(index=keys, columns=["method", "measure"], values="mean")
    said = flat(ROOT / "docs" / "processes.md")
    ahead = {}
    for attack in ("fgsm@0.1", "pgd@0.1"):
        margin = wide["dec_fedtrack"][attack] - wide["k_gt"][attack]
        ahead[attack] = f"{margin.min():.1f} to {margin.max():.1f}"
    assert f"by {ahead['fgsm@0.1']} points under FGSM and by {ahead['pgd@0.1']} under PGD" in said
    large = wide.loc["ring", 20].iloc[0]
    worst = {method: large[method]["clean"] - large[method]["node_min"] for method in ("k_gt", "dec_fedtrack")}
    assert f"{worst['k_gt']:.1f} points (K-GT) and {worst['dec_fedtrack']:.1f} points (Dec-FedTrack)" in said
    ring = wide.loc["ring", 5]
    for method in ("k_gt", "dec_fedtrack"):
        for measure in ("clean", "node_min", "fgsm@0.1", "pgd@0.1"):
            column = ring[method][measure]
            assert (column - column.loc[0.0, 0.0, False]).abs().max() < 1


def report_on_speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/report.py."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("report")


def test_what_is_said_about_speed_is_in_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_on_speed(monkeypatch)
    pages = [path.read_text() for path in report.PAGES]
    assert [with_parts(page, report.PARTS) for page in pages] == pages, "python benchmarks/report.py writes the tables"
    assert sorted(re.findall(r"<!-- (\w+)\.csv -->", "".join(pages))) == sorted(report.TABLES)
    assert report.sentence() in flat(README)
    said = flat(ROOT / "docs" / "speed.md")
    faster = pd.read_csv(ROOT / "benchmarks" / "simplex_projection.csv")["speed_up"]
    assert f"{faster.min():.1f} to {faster.max():.1f} times as fast as sorting" in said
    peers = pd.read_csv(ROOT / "benchmarks" / "peer_agreement.csv")
    differ = int(peers[["foolbox_images_differ", "art_images_differ"]].to_numpy().max())
    images = peers["n_examples"].unique().item()
    assert f"differ on {differ} of {images:,} images in all {len(peers)} cells" in said


def test_the_docs_name_every_trainer_and_every_column() -> None:
    trainers = (ROOT / "docs" / "trainers.md").read_text()
    assert [name for name in shelf.names("trainer") if f"`{name}`" not in trainers] == []
    columns = (ROOT / "docs" / "results.md").read_text()
    assert [name for name in COLUMNS if f"`{name}`" not in columns] == []


def test_the_docs_name_the_methods_for_which_no_source_was_at_hand() -> None:
    named = flat(ROOT / "docs" / "agreement.md").partition("their docstrings say so: ")[2].partition(".")[0]
    word = "Neither the paper's text nor its authors' code was at hand"
    unread = {path.stem for path in (ROOT / "trainers").glob("*.py") if word in path.read_text()}
    assert len(unread) == 5 and set(re.findall(r"`(\w+)`", named)) == unread

"""`compare --table`: an attack on the networks of a table, beside the table's means over seeds."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from robustbench_dec.commands import app as cli
from robustbench_dec.errors import BadInput
from robustbench_dec.specs import table as spec
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results
from tests.support import by_path
from tests.support.tiny import TABLE


def compare(*words: str) -> str:
    done = CliRunner().invoke(cli.app, ["compare", "--attack", "pgd", "--set", "steps=4", "--n-examples", "30", *words])
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.mark.slow
def test_the_means_are_those_of_the_seeds_that_are_here_and_what_is_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tables" / "tiny.toml"
    file.parent.mkdir()
    file.write_text("seeds = [0, 1]\n" + TABLE.replace("rounds = 24", "rounds = 6"))
    by_path.make(spec.read(file), tmp_path / "results")
    assert CliRunner().invoke(cli.app, ["render", str(file)]).exit_code == 0
    for words, sentence in (
        (("--table", "table2"), "no table 'table2' in results; there are: tiny"),
        (("--table", "tiny", "--model", "mnist/*"), "--table tiny says which networks are attacked"),
    ):
        with pytest.raises(BadInput, match=sentence):
            compare(*words)
    said = compare("--table", "tiny", "--eps", "0.1")
    frame = pd.read_csv("out/leaderboard.csv")
    table = pd.read_csv("tables/tiny.csv").set_index(["method", "attack", "eps"])
    for method, title in (("k_gt", "K-GT"), ("dec_fedtrack", "Dec-FedTrack")):
        mine = 100 * frame[frame["method"] == method]["robust_acc"]
        assert len(mine) == 2
        part = said.partition(f"Digits, {title}\n")[2].splitlines()
        assert part[0].endswith("  in the table, seeds 0, 1")
        assert part[1].split()[:5] == ["0.1", "pgd", f"{mine.mean():.1f}", "±", f"{mine.std():.1f}"]
        known = table.loc[method, "fgsm", 0.1]
        assert part[2].split()[-3:] == [f"{100 * known['mean']:.1f}", "±", f"{100 * known['std']:.1f}"]
    assert "networks of tiny are here" not in said
    gone, kept, *others = Results(tmp_path / "results").runs()
    zoo.keep(kept)
    for run in (gone, kept):
        (run.folder / "checkpoint.safetensors").unlink()
    again = compare("--table", "tiny", "--eps", "0.1")
    assert "3 of the 4 networks of tiny are here; not: Dec-FedTrack on Digits (seeds 0); `robust" in again
    for run in (kept, *others):
        for path in run.folder.glob("*.safetensors"):
            path.unlink()
    with pytest.raises(BadInput, match=r"no network of tiny is here; `robustbench-dec train tables/tiny.toml` trains"):
        compare("--table", "tiny")

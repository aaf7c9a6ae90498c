"""Is anything lost when a sweep is killed? A small table on digits, killed (SIGKILL) again and again, then finished.

Every kill comes at a random moment after the sweep has made its first claim, one process without workers. When a kill
falls on the rendering or later, a clean run follows and the next kills fall on a new folder. Then all files must be
those of an undisturbed sweep, byte for byte apart from times and the seals over them, and no temporary, lock or journal
may be left. Writes benchmarks/faults.csv, a row per kill: the moment, and the phase as the files on disk show it.
"""

import argparse
import csv
import io
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pandas as pd

from robustbench_dec import files

TABLE = """
title = "Faults"
n_examples = 40
curve_points = 2
curve_examples = 40
[network]
graph = "complete"
nodes = 2
weights = "uniform"
[[blocks]]
title = "Digits"
rounds = 40
[blocks.problem]
dataset = "digits"
eps = 0.1
[blocks.trainers.k_gt]
eta_c = 0.2
batch = 32
[blocks.trainers.dec_fedtrack]
eta_c = 0.2
eta_d = 1.0
batch = 32
[[blocks.attacks]]
name = "fgsm"
eps = [0.05, 0.1]
[[blocks.attacks]]
name = "uap"
eps = [0.2]
steps = 40
search = 2
restarts = 1
"""
TIMES = ("sha256", "wall_s", "created_utc")
"""What differs between two sweeps that give the same numbers."""


def context() -> ForkServerContext:
    """Processes that have imported everything before they start, so that kills fall into the work."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["robustbench_dec.commands.app", "sklearn.datasets"])  # the latter has the digits
    return made


def start(*words: Any) -> ForkServerProcess:
    """The command line in a process of its own."""
    process = context().Process(target=_command, args=([str(word) for word in words],))
    process.start()
    return process


def _command(words: list[str]) -> None:
    from robustbench_dec.commands import app as cli

    sys.argv = ["robustbench-dec", *words]
    sys.stdout = io.StringIO()
    cli.main()


def sweep(home: Path) -> ForkServerProcess:
    """Start to make the table of a folder, with a journal at every second round."""
    words = ("--results", home / "results", "--jobs", 1, "--save-rounds", 2)
    return start("table", home / "tables" / "faults.toml", *words)


def prepare(home: Path, table: str = TABLE) -> Path:
    """A new folder with nothing but the specification."""
    (home / "tables").mkdir(parents=True)
    (home / "tables" / "faults.toml").write_text(table)
    return home


def finish(home: Path) -> None:
    """Make the table to its end."""
    process = sweep(home)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the sweep in {home} ended with exit code {process.exitcode}, not 0")


def kill(home: Path, most_seconds: float, randomness: random.Random) -> dict[str, Any]:
    """Start a sweep and kill it at some moment after it has begun to work."""
    before, process, began = _seen(home), sweep(home), time.monotonic()
    # The first new file is a claim; sweeping up after the former kill, which only removes files, is no work yet.
    while process.is_alive() and _seen(home) <= before and time.monotonic() - began < 5:
        time.sleep(0.002)
    delay = randomness.uniform(0, most_seconds)
    process.join(delay)
    alive = process.is_alive()
    process.kill()
    process.join()
    return {"seconds": round(delay, 3), "killed": alive, "phase": phase(home)}


def phase(home: Path) -> str:
    """What a sweep was at, judged by the files present."""
    names = {path.name for path in home.rglob("*")}
    if any(name.startswith(".leaderboard") for name in names):
        return "leaderboard"
    if (home / "tables" / "index.html").is_file():
        return "done"
    if (home / "results" / "leaderboard.csv").is_file():
        return "rendering"
    if ".run.json.lock" in names:
        return "training, from a journal" if any(name.startswith("resume") for name in names) else "training"
    return "attacking" if any(name.endswith(".json.lock") for name in names) else "between two pieces of work"


def contents(home: Path) -> dict[str, Any]:
    """Every file that should be the same in all sweeps, without its times; the page is left out for its own."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in home.rglob("*") if path.is_file() and path.suffix != ".html"):
        name = str(path.relative_to(home))
        if path.suffix == ".json":
            content = json.loads(path.read_bytes())
            found[name] = {key: value for key, value in content.items() if key not in TIMES}
        elif path.name == "leaderboard.csv":
            found[name] = pd.read_csv(path).drop(columns=["wall_s", "created_utc"]).to_csv(index=False)
        else:
            found[name] = path.read_bytes()
    return found


def differences(home: Path, undisturbed: Path) -> list[str]:
    """The files in which two finished sweeps differ, and those that only one of them has."""
    ours, theirs = contents(home), contents(undisturbed)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def _seen(home: Path) -> set[tuple[str, int]]:
    """All files of the results and their times, as far as they stay while we look."""
    found = set()
    for path in (home / "results").rglob("*"):
        try:
            found.add((str(path), path.stat().st_mtime_ns))
        except FileNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-seconds", type=float, default=2.0, help="a kill comes at most so late")
    options = parser.parse_args()
    randomness = random.Random(options.seed)
    rows: list[dict[str, Any]] = []
    folders = different = 0
    with tempfile.TemporaryDirectory() as name:
        undisturbed = prepare(Path(name) / "undisturbed")
        finish(undisturbed)
        while sum(row["killed"] for row in rows) < options.kills:
            folders += 1
            home = prepare(Path(name) / f"killed-{folders}")
            while sum(row["killed"] for row in rows) < options.kills:
                row = {"folder": folders, **kill(home, options.most_seconds, randomness)}
                if not row["killed"]:  # it was quicker
                    break
                rows.append(row)
                print(f"kill {len(rows)}: after {row['seconds']:.2f} s, {row['phase']}")
                if row["phase"] in ("rendering", "done"):  # else most kills would fall on the pictures
                    break
            finish(home)
            wrong = differences(home, undisturbed)
            different += bool(wrong)
            for path in wrong:
                print(f"differs: {path}")
            shutil.rmtree(home)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["folder", "seconds", "killed", "phase"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(Path(__file__).with_suffix(".csv"), text.getvalue())
    phases = ", ".join(f"{count} {phase}" for phase, count in Counter(row["phase"] for row in rows).most_common())
    print(f"{len(rows)} kills in {folders} sweeps ({phases}); {different} sweeps differ from the undisturbed one")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

"""How quick the page is with many rows: milliseconds from a click or a typed word until it is drawn, in Chromium.

    python benchmarks/page_speed.py          writes benchmarks/page_speed.csv

The committed leaderboard, its rows repeated under other seeds until there are enough. The median of seven times each;
`ratio` is to the first number of rows. Needs Chromium ($CHROMIUM, or one of its usual names).
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for tests/support, whose browser this is

from robustbench_dec import bars, files, page  # noqa: E402
from robustbench_dec.leaderboard import gather  # noqa: E402
from robustbench_dec.store.results import Results  # noqa: E402
from tests.support import browser  # noqa: E402

FILE = ROOT / "benchmarks" / "page_speed.csv"
COUNTS = (200, 2000)
TIMES = 7
DRAWN = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start))))"
)
TYPED = "field.value = {}; field.dispatchEvent(new Event('input', {{ bubbles: true }}));"
FIELD = "const field = document.querySelector('form.filters [name=q]'); "
SORTED = "document.querySelector('#rows button[data-key=robust]').click();"
DEEDS = {"sort by accuracy": SORTED, "filter by a word": FIELD + TYPED, "clear the filter": FIELD + TYPED}
WORDS = {"filter by a word": "pgd", "clear the filter": ""}


def timed(tab: browser.Browser, deed: str) -> float:
    """Milliseconds until what a deed changes is on the screen."""
    done = DEEDS[deed].format(json.dumps(WORDS[deed])) if deed in WORDS else DEEDS[deed]
    return float(tab.run(f"(() => {{ const start = performance.now(); {done} return {DRAWN}; }})()"))


def measured(tab: browser.Browser, address: str) -> dict[str, float]:
    """The median of each deed, done in turn so that none finds its work done."""
    tab.open(f"{address}#view=runs&table=all&sort=")
    found: dict[str, list[float]] = {deed: [] for deed in DEEDS}
    for _ in range(TIMES):
        for deed, times in found.items():
            times.append(timed(tab, deed))
    return {deed: median(times) for deed, times in found.items()}


def main() -> None:
    rows = gather.read(ROOT / "results" / "leaderboard.csv")
    lines = []
    with tempfile.TemporaryDirectory() as scratch, browser.started(Path(scratch) / "profile") as tab:
        for count in bars.bar(COUNTS, desc="page", unit="page"):
            copies = range(-(-count // len(rows)))
            many = pd.concat([rows.assign(seed=seed, run_id=rows["run_id"] + f"-{seed}") for seed in copies])[:count]
            home = Path(scratch) / str(count)
            home.mkdir()
            gather.write(many, home / "leaderboard.csv")
            written = page.write(Results(home), home / "index.html")
            lines += [(deed, count, round(ms, 1)) for deed, ms in measured(tab, written.as_uri()).items()]
    frame = pd.DataFrame(lines, columns=["deed", "rows", "ms"]).sort_values(["deed", "rows"], kind="stable")
    frame["ratio"] = (frame["ms"] / frame.groupby("deed")["ms"].transform("first")).round(2)
    files.write_text(FILE, frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

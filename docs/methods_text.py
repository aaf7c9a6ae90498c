"""What docs/leaderboard.md says of all methods and of the worst attack known, made of results/ and benchmarks/.

    python docs/methods_text.py

Its heart are five sentences about gradient tracking on unequal data, for and against the paper. The words are fixed;
the numbers, and which of two methods is ahead, are read from the runs of tables/methods.toml. "Ahead" needs ranges over
the seeds that do not meet (the rule at the head of that file). A part stands between <!-- NAME --> and <!-- end -->.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from statistics import fmean as mean
from statistics import median

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.rendering import methods_table
from robustbench_dec.rendering.blocks import column_title
from robustbench_dec.rendering.methods_table import CLEAN, WORST, Row
from robustbench_dec.rendering.text import grid, with_parts
from robustbench_dec.running import suite, tune
from robustbench_dec.specs import table as specs
from robustbench_dec.store import zoo
from robustbench_dec.store.results import Results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Results(ROOT / "results")
SPECIFICATION = ROOT / "tables" / "methods.toml"
PAGE = ROOT / "docs" / "leaderboard.md"
STRONG = ROOT / "benchmarks" / "strong.csv"
IID, MIDDLE, LABEL = "MNIST, iid", "MNIST, Dirichlet(0.1)", "MNIST, by label"
FASHION = "Fashion-MNIST, by label"
UNCORRECTED = ("local_sgda", "momentum_local_sgda", "fed_norm_sgda")
"""Methods whose local directions are not corrected for the nodes' differences; all of them have a server."""
LOCAL = ("k_gt", "dec_fedtrack", "sagda", "fedgda_gt", "lu_gt", *UNCORRECTED)
"""Methods that take several steps between two exchanges."""


@functools.cache
def work() -> list[suite.Work]:
    """The table's runs, with the step sizes that its trials chose."""
    wanted, _ = tune.taken(specs.read(SPECIFICATION), SPECIFICATION.with_name("methods-tune.csv"))
    return suite.listed(wanted)


@functools.cache
def blocks_as_listed() -> methods_table.Blocks:
    """The rows of each block."""
    return methods_table.collect(work(), RESULTS)


@functools.cache
def blocks() -> dict[str, dict[str, Row]]:
    """The rows of each block by their method, the yardstick's by "yardstick"."""
    return {
        block: {"yardstick" if "adversarial" in row.title else row.method: row for row in rows}
        for block, rows in blocks_as_listed().items()
    }


def sentences() -> str:
    """The five, as a list."""
    return "\n".join(f"{place}. {each()}" for place, each in enumerate(SENTENCES, start=1))


def diverged() -> str:
    """A line for each method and block with a run that diverged."""
    lines = [f"- {block}: {row.end}." for block, rows in blocks().items() for row in rows.values() if row.diverged]
    return "\n".join(lines) or "None."


def collapsed() -> str:
    """Rows with runs that ended at chance, a line for each block."""
    return "\n".join(f"- {words}." for words in methods_table.at_chance(blocks_as_listed())) or "None."


def told(one: Row, other: Row, measure: str) -> str:
    """Whether one row's range over the seeds is above another's."""
    ours, theirs = ([*row.measures.get(measure, {}).values()] for row in (one, other))
    if len(ours) < 2 or len(theirs) < 2:
        return "not told apart"
    if min(ours) > max(theirs):
        return "ahead"
    return "behind" if max(ours) < min(theirs) else "not told apart"


def said(block: str, method: str, measure: str) -> str:
    """A mean in percent, and how many of its seeds ended at chance."""
    row = blocks()[block][method]
    mean = row.mean(measure)
    lost = f" (at chance with {len(row.at_chance)} of {mean.seeds} seeds)" if row.at_chance else ""
    return f"{100 * mean.mean:.1f}{lost}" if mean.seeds else "no number (diverged)"


def fall(method: str, measure: str) -> float | None:
    """Points lost from iid to one class a node, where both have numbers."""
    before, after = (blocks()[block][method].mean(measure) for block in (IID, LABEL))
    return 100 * (before.mean - after.mean) if before.seeds and after.seeds else None


def pair(block: str, one: str, other: str, measure: str) -> str:
    """Two methods' means, and whether their seeds tell them apart."""
    rows = blocks()[block]
    return (
        f"{said(block, one, measure)} against {said(block, other, measure)} ({told(rows[one], rows[other], measure)})"
    )


def _against_local_sgda() -> str:
    places = (
        (IID, "iid"),
        (MIDDLE, "under Dirichlet(0.1)"),
        (LABEL, "by label"),
        (FASHION, "by label on Fashion-MNIST"),
    )
    pairs = [f"{pair(block, 'dec_fedtrack', 'local_sgda', CLEAN)} {words}" for block, words in places]
    return (
        "Clean, Dec-FedTrack beside Local SGDA, which has the same local steps, a server and no correction: "
        f"{', '.join(pairs)}."
    )


def _falls() -> str:
    methods = blocks()[IID].keys() - {"yardstick"}
    groups = ((methods - {*UNCORRECTED}, "that correct for it"), (methods & {*UNCORRECTED}, "that do not"))
    parts = []
    for group, words in groups:
        losses = [lost for each in group if (lost := fall(each, WORST)) is not None]
        spread = f"{median(losses):.1f} points in the median of the {len(losses)} methods {words}"
        parts.append(
            f"{spread} ({min(losses):.1f} to {max(losses):.1f})" if losses else f"no number of methods {words}"
        )
    return (
        f"From iid to one class a node the worst case loses {parts[0]}, {parts[1]}; methods without numbers left out."
    )


def _without_local_steps() -> str:
    others = {name: row for name, row in blocks()[LABEL].items() if name not in (*LOCAL, "yardstick")}
    name, best = max(others.items(), key=lambda pair: pair[1].mean(WORST).mean if pair[1].mean(WORST).seeds else -1.0)
    ours = blocks()[LABEL]["dec_fedtrack"]
    return (
        f"By label, the best of the {len(others)} methods without local steps in the worst case is {best.title}: "
        f"Dec-FedTrack has {pair(LABEL, 'dec_fedtrack', name, WORST)}; for the same calls {best.title} sends "
        f"{best.costs.get('megabytes', 0):,.0f} MB and Dec-FedTrack {ours.costs.get('megabytes', 0):,.0f}."
    )


def _universal() -> str:
    column, places = column_title("uap", 0.2), ((IID, "iid"), (MIDDLE, "under Dirichlet(0.1)"), (LABEL, "by label"))
    pairs = [f"{pair(block, 'dec_fedtrack', 'k_gt', column)} {words}" for block, words in places]
    return f"What y buys under a universal perturbation of 0.2, Dec-FedTrack beside K-GT: {', '.join(pairs)}."


def _yardstick() -> str:
    column = column_title("pgd", 0.1)
    pairs = [
        f"{pair(block, 'dec_fedtrack', 'k_gt', column)} {words}, where adversarial training on single images has "
        f"{said(block, 'yardstick', column)}"
        for block, words in ((IID, "iid"), (LABEL, "by label"))
    ]
    return f"What a universal y buys under PGD at 0.1, Dec-FedTrack beside K-GT: {'; '.join(pairs)}."


SENTENCES = (_against_local_sgda, _falls, _without_local_steps, _universal, _yardstick)


def excerpt() -> str:
    """Clean and worst case on MNIST, every method and split, and what was sent."""
    splits = {IID: "iid", MIDDLE: "Dirichlet(0.1)", LABEL: "by label"}
    head = ["method", *(f"{words}: {measure}" for words in splits.values() for measure in (CLEAN, WORST)), "MB"]
    body = []
    for method, row in blocks()[MIDDLE].items():
        rows = [blocks()[block][method] for block in splits]
        numbers = [number for each in rows for number in methods_table.accuracies(each, (CLEAN, WORST))]
        sent = next((each.costs["megabytes"] for each in rows if each.costs), None)
        body.append([row.title, *numbers, "--" if sent is None else f"{sent:,.0f}"])
    return grid(head, body)


def core_seconds() -> float:
    """What the runs and their attacks took, by their own records."""
    runs = [(item, run) for item in work() if (run := RESULTS.run(item.run.id)).exists]
    attacks = (run.cell(request.key).record.wall_s for item, run in runs for request in item.cells)
    return sum(run.record.wall_s for _, run in runs) + sum(attacks)


def hours() -> str:
    """How many runs there are, and what they cost."""
    runs = [run for item in work() if (run := RESULTS.run(item.run.id)).exists]
    cpus = sorted({run.record.machine.torch_isa for run in runs if run.record.machine is not None})
    return (
        f"{len(work())} runs, of which {len(runs)} have a network; these and their attacks took "
        f"{core_seconds() / 3600:.1f} hours of one core ({', '.join(cpus)})."
    )


def trained_y() -> str:
    """How far the trained y went within its ball, over the methods that train one; the nodes' mean y."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for item in work():
        run = RESULTS.run(item.run.id)
        y = run.perturbation() if run.exists and item.block.title == MIDDLE else None
        if y is not None:
            eps = float(item.run.problem["eps"])
            rows.setdefault(item.run.method, []).append((float(y.abs().max()) / eps, float(y.abs().mean()) / eps))
    pixels = {method: [100 * mean(each) for each in zip(*seeds, strict=True)] for method, seeds in rows.items()}
    ordered = sorted(pixels.items(), key=lambda pair: -pair[1][1])
    body = [[titles.method(method), f"{largest:.0f}", f"{average:.1f}"] for method, (largest, average) in ordered]
    return grid(["method", "largest pixel of y, % of its radius", "mean, %"], body)


def budget() -> str:
    """Gradients that a node computed, in samples, for the same budget of calls."""
    body = []
    for method in ("k_gt", "yardstick", "dec_fedtrack", "gt_gda", "gt_da", "lu_gt", "fedgda_gt"):
        row = blocks()[MIDDLE][method]
        mine = [item for item in work() if (item.block.title, methods_table.method_title(item)) == (MIDDLE, row.title)]
        ledgers = [run.record.ledger for item in mine if (run := RESULTS.run(item.run.id)).exists]
        numbers = [mean(getattr(ledger, name) for ledger in ledgers) for name in ("sfo", "sfo_x", "sfo_y", "rounds")]
        body.append([row.title, *(f"{number:,.0f}" for number in numbers)])
    return grid(["method", "calls", "gradients in x", "gradients in y", "rounds"], body)


@functools.cache
def attacked_by_strong() -> pd.DataFrame:
    """benchmarks/strong.csv of Table 2's networks and of those of the zoo that have other settings, told apart."""
    frame = pd.read_csv(STRONG)
    of_table = {run.id for _, run in specs.read(ROOT / "tables" / "table2.toml").runs()}
    of_zoo = {entry.record.id for entry in zoo.entries("*", RESULTS.zoo)} - of_table
    names = dict.fromkeys(of_table, "Table 2") | dict.fromkeys(of_zoo, "zoo, 0.1.0")
    named = frame.assign(network=frame["run"].map(names))
    return named.dropna(subset="network")


def strong() -> str:
    """Accuracy on the same images under each attack and under all of them, by data set and method."""
    body = []
    for (dataset, network, method), rows in attacked_by_strong().groupby(["dataset", "network", "method"]):
        under = [f"{100 * rows[name].mean():.1f}" for name in ("fgsm", "pgd", "strong", "worst_case")]
        radius = f"{rows['eps'].unique().item():g}"
        seeds = ", ".join(str(seed) for seed in sorted(rows["seed"]))
        what = [titles.dataset(str(dataset)), str(network), titles.method(str(method)), seeds, radius]
        body.append([*what, *under, f"{rows['only_strong'].mean():.1f}"])
    measured = ["radius", "FGSM", "PGD", "`strong`", "worst case", "only by `strong`"]
    return grid(["data set", "networks", "method", "seeds", *measured], body)


def strong_says() -> str:
    """How far `strong` goes below PGD, network by network."""
    parts = []
    for dataset, frame in attacked_by_strong().groupby("dataset", sort=False):
        below = 100 * (frame["pgd"] - frame["strong"])
        parts.append(
            f"{below.min():.1f} to {below.max():.1f} points ({below.median():.1f} in the median) on the {len(frame)} "
            f"networks of {titles.dataset(str(dataset))}"
        )
    images = attacked_by_strong()["images"].unique().item()
    return (
        f"On the first {images:,} test images `strong` leaves less than PGD with 20 steps by {' and by '.join(parts)}."
    )


PARTS: dict[str, Callable[[], str]] = {
    "sentences": sentences,
    "excerpt": excerpt,
    "methods_diverged": diverged,
    "collapsed": collapsed,
    "hours": hours,
    "trained_y": trained_y,
    "budget": budget,
    "strong": strong,
    "strong_says": strong_says,
}


if __name__ == "__main__":
    files.write_text(PAGE, with_parts(PAGE.read_text(encoding="utf-8"), PARTS))

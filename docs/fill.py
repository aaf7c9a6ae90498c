"""What README.md and docs/reproduction.md say in numbers of Table 2, made of files in tables/, results/, benchmarks/.

    python docs/fill.py

A part stands between <!-- NAME --> and <!-- end --> and is replaced by what `PARTS[NAME]` makes; a test makes all of
them again and compares.
"""

import textwrap
from collections import Counter
from collections.abc import Callable
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import get_args

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.rendering import methods_table, radius_table, report, verdicts
from robustbench_dec.rendering.blocks import column_title
from robustbench_dec.rendering.methods_table import CLEAN, WORST
from robustbench_dec.rendering.text import grid, with_parts
from robustbench_dec.rendering.verdicts import Verdict
from robustbench_dec.running import suite, trials
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs import table as specs
from robustbench_dec.store.results import Results

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tables"
RESULTS = Results(ROOT / "results")
PAGES = [ROOT / "README.md", ROOT / "docs" / "reproduction.md"]
STEM, BY_RADIUS = "table2", "table2-radius"
STRENGTH = ROOT / "benchmarks" / "attack_strength.csv"
MEAN_MOVES, CELL_MOVES = 1.0, 2.0
"""Points by which twice the steps may move a column's mean, and a single cell, if an attack has converged."""
ASCENTS = {
    "table": "the table's",
    "twice the steps": "twice the steps",
    "another seed": "another seed",
    "sign steps alone": "sign steps alone",
    "Adam alone": "Adam alone",
    "SGA alone": "SGA, or sign steps if better",
}
SAME_STEPS = ROOT / "benchmarks" / "same_steps.csv"

UAP, FORMER = "uap_annealed", "uap"
"""Table 2's universal attack, and the one that stood there under protocol.md alone."""

SHORT = {
    "mnist": {"clean": 0.0, "fgsm": 0.1, "pgd": 0.1, UAP: 0.2},
    "cifar10": {"clean": 0.0, "fgsm": 0.005, "pgd": 0.005, UAP: 0.03},
}
"""The columns of the excerpt, one radius of each attack."""

SHOWN = ("fgsm", "pgd", FORMER)
METHODS = ("k_gt", "dec_fedtrack")
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10 (cat, dog)"}
WIDTH = 108
"""Of README's lines."""


def results() -> str:
    """README's part: an excerpt of the table in percent, and what it says of the paper's order."""
    paired = pd.read_csv(TABLES / f"{STEM}-vs-paper.csv").set_index(["dataset", "attack", "eps"])
    held = pd.read_csv(TABLES / f"{STEM}.csv").set_index(["dataset", "method", "attack", "eps"])
    head = ["", *(titles.attack(attack) for attack in SHORT["mnist"])]
    body = []
    for dataset, radii in SHORT.items():
        body.append([f"{TITLES[dataset]}, attack radius", "", *(f"{eps:g}" for eps in [*radii.values()][1:])])
        for method in METHODS:
            entries = [held.loc[(dataset, method, *column)] for column in radii.items()]
            body.append([titles.method(method), *(_percent(entry["mean"], entry["std"]) for entry in entries)])
        margins = [paired.loc[(dataset, *column)] for column in radii.items()]
        both = sorted(set.intersection(*({*seeds} for seeds in _finished(dataset).values())))
        words = f"difference, on {_listed(both)}" if both else "difference"
        body.append([words, *(_spread(f"{row['margin']:+.1f}", row["std"]) for row in margins)])
    lost = "; ".join(
        f"{titles.method(method)} on {titles.dataset(data_set)} with {_listed(seeds)}"
        for (data_set, method), seeds in _lost().items()
    )
    spread = f"Test accuracy in percent, mean ± standard deviation over seeds: {_seeds(held['seeds'])}."
    if lost:
        spread = f"{spread} Diverged: {lost}."
    below = textwrap.fill(f"{verdict()} {_step_sizes()} {_not_converged()}", WIDTH, break_on_hyphens=False)
    return f"{textwrap.fill(spread, WIDTH, break_on_hyphens=False)}\n\n{grid(head, body)}\n\n{below}"


def _finished(dataset: str) -> dict[str, list[int]]:
    """The seeds of the runs that finished on a data set, by method."""
    seeds: dict[str, list[int]] = {method: [] for method in METHODS}
    for _, run in specs.read(TABLES / f"{STEM}.toml").runs():
        if run.data_set == dataset and RESULTS.run(run.id).exists:
            seeds[run.method].append(run.seed)
    return seeds


def _step_sizes() -> str:
    """Whether the methods differ on CIFAR-10 at the same step sizes, which the search did not give them."""
    under = _under_pgd()
    told = {
        _told(under[trial, METHODS[1]], under[trial, METHODS[0]]) for trial, method in under if method == METHODS[0]
    }
    apart = "not told apart" if all("not told apart" in each for each in told) else "told apart"
    return f"Step sizes differ there: at the same ones, either method's, the two are {apart} under PGD."


def _under_pgd() -> dict[tuple[int, str], "pd.Series[float]"]:
    """Percent by seed, by trial and method, of both methods at both trials."""
    found = pd.read_csv(SAME_STEPS)
    found = found[(found["attack"] == "pgd") & (found["eps"] == SHORT["cifar10"]["pgd"])]
    return {key: 100 * rows.set_index("seed")["accuracy"] for key, rows in found.groupby(["trial", "method"])}


def _not_converged() -> str:
    """How far twice the steps move UAP's means, by data set."""
    found = pd.read_csv(STRENGTH)
    found = found[(found["attack"] == UAP) & (found["kind"] == "twice the steps")]
    moved = found.groupby(["dataset", "method", "eps"])["points_below_table"].mean().abs().groupby("dataset").max()
    parts = [f"{points:.1f} ({titles.dataset(str(dataset))})" for dataset, points in moved.items()]
    return f"Twice the steps move UAP's means by up to {' and '.join(parts)} points."


def _seeds(held: "pd.Series[int]") -> str:
    """How many seeds the entries of each method rest on, of how many."""
    asked = len(specs.read(TABLES / f"{STEM}.toml").seeds)
    counts = held.groupby(level=["dataset", "method"], sort=False).min()
    fewer = counts[counts < asked]
    each = [f"{titles.method(method)} on {titles.dataset(dataset)} {n}" for (dataset, method), n in fewer.items()]
    return f"{asked}" if fewer.empty else f"{asked}, but {', '.join(each)}"


def unmade() -> list[int]:
    """The seeds of which a run is not there yet; one that diverged is."""
    runs = [run for _, run in specs.read(TABLES / f"{STEM}.toml").runs()]
    missing = [run for run in runs if not RESULTS.run(run.id).exists and RESULTS.run(run.id).divergence is None]
    return sorted({run.seed for run in missing})


def diverged() -> str:
    """The runs of the table that broke, a line each."""
    lines = [
        f"- {titles.method(run.method)} on {titles.dataset(run.data_set)}, seed {run.seed}, "
        f"{why.removeprefix('training ').partition(')')[0]})."
        for run, why in _broken()
    ]
    return "\n".join(lines) or "None."


def _broken() -> list[tuple[specs.RunSpec, str]]:
    """The runs that diverged, and how."""
    found = [(run, RESULTS.run(run.id).divergence) for _, run in specs.read(TABLES / f"{STEM}.toml").runs()]
    return [(run, why) for run, why in found if why is not None]


def _lost() -> dict[tuple[str, str], list[int]]:
    """Their seeds, by data set and method."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for run, _ in _broken():
        seeds.setdefault((run.data_set, run.method), []).append(run.seed)
    return seeds


def _listed(seeds: list[int]) -> str:
    return f"seed{'s' if seeds[1:] else ''} {', '.join(map(str, seeds))}"


def verdict() -> str:
    """How much of the paper's order is found again, a sentence for each data set; none before all runs are made."""
    if missing := unmade():
        return f"Runs of {_listed(missing)} are still to be made: no verdict on the paper's order before that."
    margins = pd.read_csv(TABLES / f"{STEM}-vs-paper.csv")
    attacked = margins[margins["attack"] != titles.CLEAN]
    sentences = []
    for dataset, rows in attacked.groupby("dataset", sort=False):
        found = Counter(rows["verdict"])
        counts = ", ".join(f"{found[kind]} {kind}" for kind in get_args(Verdict))
        low, high = rows["margin"].min(), rows["margin"].max()
        sentences.append(
            f"{titles.dataset(str(dataset))}: of {len(rows)} attacked columns {counts}; Dec-FedTrack's margins are "
            f"{low:+.1f} to {high:+.1f} points."
        )
    return textwrap.fill(" ".join(sentences), WIDTH, break_on_hyphens=False)


def converged() -> str:
    """How many cells of iterated attacks were still getting further when they ended, by attack."""
    rows = pd.read_csv(RESULTS.leaderboard, keep_default_na=False)
    asked = {
        (item.run.id, request.key.stem)
        for item in suite.listed(specs.read(TABLES / f"{STEM}.toml"))
        for request in item.cells
        if request.name != "fgsm"
    }
    rows = rows[[pair in asked for pair in zip(rows["run_id"], rows["cell"], strict=True)]]
    lines = []
    for attack, cells in rows.groupby("attack"):
        moved = int(cells["reliability_flags"].str.contains("not_converged").sum())
        lines.append(f"- {titles.attack(str(attack))}: {moved} of {len(cells)} cells have the flag `not_converged`.")
    return "\n".join(lines)


def margins() -> str:
    """The margin of every column, beside the paper's."""
    head = ["data set", "column", "margin, paper", "margin, here", "95 % interval", "corrected p", "verdict"]
    body = [
        [
            titles.dataset(row.dataset),
            column_title(row.attack, row.eps),
            f"{row.paper:+.1f}",
            _spread(f"{row.margin:+.1f}", row.std),
            "--" if isnan(row.low) else f"{row.low:+.1f} to {row.high:+.1f}",
            "--" if isnan(row.p) else f"{row.p:.3f}",
            row.verdict,
        ]
        for row in pd.read_csv(TABLES / f"{STEM}-vs-paper.csv").itertuples()
    ]
    return grid(head, body)


def choice() -> str:
    """What the protocol's trials chose, and how it did on held-out images."""
    rules = protocols.read(TABLES / "protocol.toml")
    done = trials.read(TABLES / rules.trials_file)
    full = done[done["stage"] == "full"].set_index(["block", "method", "trial"])
    body, notes = [], list[str]()
    for (block, method), taken in trials.choice(rules, done).items():
        point = ", ".join(f"{name} {value:g}" for name, value in taken.point.items())
        held = full.loc[(block, method, taken.number)]
        accuracies = [f"{100 * held['clean']:.1f}", f"{100 * held['score']:.1f}"]
        body.append([block, titles.method(method), taken.candidate.title, str(taken.number), point, *accuracies])
        best = done[(done["stage"] == "full") & (done["block"] == block)]["clean"].max()
        if held["clean"] < best - rules.clean_within:
            notes.append(
                f"No trial of {titles.method(method)} on {block} is within a point of the highest clean accuracy, "
                f"{100 * best:.1f}: by the rule it takes the one with its own highest, whatever its score."
            )
    table = grid(["data set", "method", "data handling", "trial", "settings", "clean, held out", "score"], body)
    return "\n\n".join([table, *notes])


def radius() -> str:
    """Dec-FedTrack by its training radius: clean, each attack at its middle radius, and the worst case of all."""
    head = ["data set", "radius in training", CLEAN, *map(titles.attack, SHOWN), WORST, "seeds"]
    body = []
    for block, rows in _by_radius().items():
        for rho, row in rows.items():
            who = f"{rho:g}" if rho else f"none ({titles.method(row.method)})"
            texts = methods_table.accuracies(row, (CLEAN, *_middle()[block], WORST))
            body.append([block, who, *texts, radius_table.seeds_of(row)])
    return grid(head, body)


def radius_says() -> str:
    """For each data set and column the radii with the lowest and the highest mean, over the seeds of all of them."""
    lines = []
    for block, rows in _by_radius().items():
        ours = {rho: row.measures for rho, row in rows.items() if rho}
        common = set.intersection(*({*measures[CLEAN]} for measures in ours.values())) if ours else set[int]()
        if len(common) < 2:
            finished = _listed(sorted(common)) if common else "no seed"
            lines.append(
                f"- {block}: rows rest on different seeds, only {finished} finished at all radii; nothing is said."
            )
            continue
        parts = []
        for name in (CLEAN, *_middle()[block], WORST):
            seeds = {rho: [measures[name][seed] for seed in common] for rho, measures in ours.items()}
            means = {rho: 100 * round(fmean(values), 6) for rho, values in seeds.items()}
            low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            words = "" if min(seeds[high]) > max(seeds[low]) else ", ranges over the seeds meet"
            parts.append(f"{name} {means[low]:.1f} at {low:g}, {means[high]:.1f} at {high:g}{words}")
        lines.append(f"- {block}, lowest and highest over {_listed(sorted(common))}: {'; '.join(parts)}.")
    return "\n".join(lines)


def _by_radius() -> dict[str, radius_table.Rows]:
    """The rows of the table by training radius, block by block."""
    wanted = specs.read(TABLES / f"{BY_RADIUS}.toml")
    work = suite.listed(wanted)
    return {block.title: radius_table.collect(block, work, RESULTS) for block in wanted.blocks}


def _middle() -> dict[str, list[str]]:
    """The columns of each block that are shown: every attack at its middle radius."""
    blocks = specs.read(TABLES / f"{BY_RADIUS}.toml").blocks
    return {block.title: radius_table.middle_columns(block) for block in blocks}


def strength() -> str:
    """How far twice the steps lower a cell and a column's mean, and whether that is within what was asked for."""
    found = pd.read_csv(STRENGTH)
    twice = found[found["kind"] == "twice the steps"]
    lines = []
    for (dataset, attack), rows in twice.groupby(["dataset", "attack"]):
        means, cells = rows.groupby(["method", "eps"])["points_below_table"].mean(), rows["points_below_table"]
        moved, most = means.abs().max(), cells.abs().max()
        words = "within" if moved <= MEAN_MOVES and most <= CELL_MOVES else "beyond"
        lines.append(
            f"- {titles.dataset(str(dataset))}, {titles.attack(str(attack))}, {len(rows)} cells: means of columns fall "
            f"by {means.min():.2f} to {means.max():.2f} points, single cells by {cells.min():.2f} to {cells.max():.2f} "
            f"(below 0: more images stay right), {words} the goal."
        )
    return "\n".join(lines)


def doubled() -> str:
    """UAP's columns of the table beside those with twice the steps, and the former UAP with its own and twice its
    steps, in means over the same networks."""
    found = pd.read_csv(STRENGTH)
    found = found[(found["attack"] == UAP) & (found["kind"] == "twice the steps")]
    body = []
    for (dataset, method, eps), rows in found.groupby(["dataset", "method", "eps"]):
        texts = [_percent(rows[name].mean(), rows[name].std()) for name in ("table", "changed")]
        former = _former()[dataset, method, eps]
        texts += [_percent(column.mean(), column.std()) for column in former]
        body.append(
            [titles.dataset(str(dataset)), titles.method(str(method)), f"{eps:g}", str(rows["seed"].nunique()), *texts]
        )
    former_head = ["UAP by ascents", "UAP by ascents, twice"]
    return grid(["data set", "method", "radius", "networks", "UAP of the table", "twice the steps", *former_head], body)


def _former() -> dict[tuple[str, str, float], list["pd.Series[float]"]]:
    """What the former UAP leaves right of Table 2's networks, by column: by seed, with its own and twice its steps."""
    rows = pd.read_csv(RESULTS.leaderboard, keep_default_na=False)
    runs = {run.id for _, run in specs.read(TABLES / f"{STEM}.toml").runs()}
    rows = rows[rows["run_id"].isin(runs) & (rows["attack"] == FORMER)].astype({"steps": float})
    return {
        column: [each.set_index("seed")["robust_acc"].astype(float) for _, each in cells.groupby("steps")]
        for column, cells in rows.groupby(["dataset", "method", "eps"])
    }


def former() -> str:
    """Dec-FedTrack's margins under the former universal attack and the table's, in points, with 95 % intervals."""
    rules, table = protocols.read(TABLES / "protocol.toml"), specs.read(TABLES / f"{STEM}.toml")
    given = {block.title: block.attacks for block in rules.blocks}
    alone = [block.model_copy(update={"attacks": given[block.title]}) for block in table.blocks]
    before = table.model_copy(update={"blocks": alone, "redefined": {}, "redefined_sha256": {}})
    asked = [(RESULTS.run(item.run.id), request) for item in suite.listed(before) for request in item.cells]
    known = [record for run, request in asked if (record := run.cell(request.key).known())]
    was = verdicts.measured(report.blocks(before), known)
    now = pd.read_csv(TABLES / f"{STEM}-vs-paper.csv").set_index(["dataset", "attack", "eps"])
    body = []
    for dataset, attack, eps in was:
        if attack != FORMER:
            continue
        then, row = was[dataset, attack, eps], now.loc[(dataset, UAP, eps)]
        numbers = [100 * then.mean, 100 * then.low, 100 * then.high, row["margin"], row["low"], row["high"]]
        signed = [f"{number:+.1f}" for number in numbers]
        intervals = f"{signed[1]} to {signed[2]}", f"{signed[4]} to {signed[5]}"
        body.append([titles.dataset(dataset), f"{eps:g}", signed[0], intervals[0], signed[3], intervals[1]])
    names = [titles.attack(FORMER), titles.attack(UAP)]
    head = ["data set", "radius", *(word for name in names for word in (f"margin, {name}", "95 % interval"))]
    return grid(head, body)


def beaten() -> str:
    """In how many of the table's cells the former UAP, with its own or twice its steps, leaves fewer images right."""
    found = pd.read_csv(STRENGTH)
    found = found[(found["attack"] == UAP) & (found["kind"] == "twice the steps")]
    less: list[list[float]] = [[], []]
    for column, rows in found.groupby(["dataset", "method", "eps"]):
        ours = rows.set_index("seed")["table"]
        for points, former in zip(less, _former()[column], strict=True):
            points += (100 * (ours - former)).tolist()
    own, twice = less
    said = (
        f"The former attack leaves fewer images right than the table's in {sum(x > 0 for x in own)} of {len(own)} "
        f"cells, by up to {max(own):.1f} points, and with twice its steps in {sum(x > 0 for x in twice)}, by up to "
        f"{max(twice):.1f}; the table's leaves up to {-min(own):.1f} and {-min(twice):.1f} points fewer."
    )
    return textwrap.fill(said, WIDTH, break_on_hyphens=False)


def ascents() -> str:
    """What other starts and single ascents from y = 0 leave right, on each method's first network."""
    found = pd.read_csv(STRENGTH)
    found = found[found["attack"] == UAP]
    alone = found[found["kind"].isin(ASCENTS) & (found["kind"] != "twice the steps")]
    body = []
    for (dataset, method, seed, eps), rows in alone.groupby(["dataset", "method", "seed", "eps"]):
        twice = found[(found["kind"] == "twice the steps") & (found["checkpoint"] == rows["checkpoint"].iloc[0])]
        left = rows.set_index("kind")["changed"].to_dict()
        left |= {"twice the steps": twice.loc[twice["eps"] == eps, "changed"].item(), "table": rows["table"].iloc[0]}
        what = [titles.dataset(str(dataset)), titles.method(str(method)), str(seed), f"{eps:g}"]
        body.append([*what, *(f"{100 * left[kind]:.1f}" if kind in left else "--" for kind in ASCENTS)])
    return grid(["data set", "method", "seed", "radius", *ASCENTS.values()], body)


def same_steps() -> str:
    """CIFAR-10 with both methods at both chosen trials, on the same seeds."""
    found = pd.read_csv(SAME_STEPS)
    columns = {name: eps for name, eps in SHORT["cifar10"].items() if name != UAP} | {FORMER: 0.05}
    head = ["trial", "method", *(column_title(*column) for column in columns.items()), "seeds"]
    body = []
    for (trial, method), rows in found.groupby(["trial", "method"]):
        held = rows.set_index(["attack", "eps"])["accuracy"]
        numbers = [held.loc[column] for column in columns.items()]
        texts = [_percent(number.mean(), number.std()) for number in numbers]
        body.append([str(trial), titles.method(str(method)), *texts, str(rows["seed"].nunique())])
    return grid(head, body)


def same_steps_says() -> str:
    """Dec-FedTrack beside K-GT at the same trial, and what the trial makes of K-GT."""
    under = _under_pgd()
    first, second = sorted({trial for trial, _ in under})
    pairs = [
        f"at trial {trial} {_told(under[trial, 'dec_fedtrack'], under[trial, 'k_gt'])}" for trial in (first, second)
    ]
    steps = [
        f"{titles.method(method)}'s {_told(under[first, method], under[second, method])}"
        for method in reversed(METHODS)
    ]
    said = (
        f"Under PGD at {SHORT['cifar10']['pgd']:g}, Dec-FedTrack's accuracy minus K-GT's is {' and '.join(pairs)}. "
        f"Trial {first} minus trial {second} is {' and '.join(steps)}."
    )
    return textwrap.fill(said, WIDTH, break_on_hyphens=False)


def _told(one: "pd.Series[float]", other: "pd.Series[float]") -> str:
    """A difference paired by seed; ahead or behind where the ranges over the seeds do not meet."""
    if min(len(one), len(other)) < 2:
        words = "not told apart"
    else:
        behind = "behind" if one.max() < other.min() else "not told apart"
        words = "ahead" if one.min() > other.max() else behind
    return f"{round((one - other).dropna().mean(), 1) + 0.0:+.1f} points ({words})"  # never -0.0


def _percent(mean: float, std: float) -> str:
    return _spread(f"{100 * mean:.1f}", 100 * std)


def _spread(number: str, std: float) -> str:
    """A number with its standard deviation, if there is one: not of a single seed."""
    return number if isnan(std) else f"{number} ± {std:.1f}"


PARTS: dict[str, Callable[[], str]] = {
    "results": results,
    "verdict": verdict,
    "margins": margins,
    "choice": choice,
    "diverged": diverged,
    "converged": converged,
    "radius": radius,
    "radius_says": radius_says,
    "strength": strength,
    "doubled": doubled,
    "beaten": beaten,
    "former": former,
    "ascents": ascents,
    "same_steps": same_steps,
    "same_steps_says": same_steps_says,
}


if __name__ == "__main__":
    for page in PAGES:
        files.write_text(page, with_parts(page.read_text(encoding="utf-8"), PARTS))

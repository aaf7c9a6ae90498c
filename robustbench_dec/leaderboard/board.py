"""Board: one row per trained network, in RobustBench's form, table by table.

    network | clean | each attack at each radius | worst case at each radius | seeds | images

A block of a table has one data set and one norm, since radii of different norms cannot be compared. An entry is the
mean over seeds with its 95 % interval: Student's over the seeds, or Wilson's over the images where there is one seed.
The best entry of a column is marked only where it is ahead of every other network by more than chance: the 95 %
interval of the difference, over seeds (paired) and images, lies above 0. One seed says nothing of that.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
from scipy.stats import norm as normal
from scipy.stats import t as student

from robustbench_dec import data, shelf, titles
from robustbench_dec.attack import Attack
from robustbench_dec.leaderboard import labelled_rows
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.leaderboard.worst_case import within, worst_case
from robustbench_dec.store.records import CellRecord, TableRecord
from robustbench_dec.store.results import Run

LEVEL = 0.95


@dataclass(frozen=True)
class Entry:
    """An accuracy of a network, as a fraction."""

    mean: float
    std: float | None
    low: float
    high: float
    seeds: int
    images: int
    label: str = ""  # the attack with its settings; in a worst case, the attacks that break images alone
    paper: float | None = None
    flags: tuple[str, ...] = ()
    best: bool = False
    by_seed: Mapping[int, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Column:
    """An attack at one radius."""

    attack: str
    title: str
    eps: float
    universal: bool

    @property
    def key(self) -> str:
        return f"{self.attack}@{self.eps:g}"


@dataclass(frozen=True)
class Network:
    """A row: the seeds of one training."""

    setup: str
    title: str
    method: str
    rows: tuple[int, ...]  # places in the frame
    seeds: int
    images: tuple[int, int]  # the fewest and the most of its cells
    spectral_rate: float | None
    worst_node: float | None  # clean accuracy
    clean: Entry
    attacks: Mapping[str, Entry]
    worst: Mapping[str, Entry]


@dataclass(frozen=True)
class Block:
    """The networks of one data set in one norm."""

    dataset: str
    norm: str
    columns: tuple[Column, ...]
    networks: tuple[Network, ...]


@dataclass(frozen=True)
class Table:
    """What a rendered table asked for."""

    stem: str
    title: str
    caption: str
    blocks: tuple[Block, ...]


def tables(frame: pd.DataFrame, runs: Mapping[str, Run], known: Mapping[str, TableRecord]) -> list[Table]:
    """The board of a labelled leaderboard (see `labelled_rows.labelled`): known tables in order, then the rest."""
    frame = frame.reset_index(drop=True)
    stems = [labelled_rows.stems_of(table) for table in frame["table"]]
    unknown = sorted(set().union(*stems) - {*known, labelled_rows.OTHERS})
    rest = TableRecord(title="Other networks", caption="Networks that no table asked for.", networks={}, paper={})
    named = {stem: TableRecord(title=stem, caption="", networks={}, paper={}) for stem in unknown}
    found = []
    for stem, record in {**known, **named, labelled_rows.OTHERS: rest}.items():
        rows = frame[[stem in each for each in stems]]
        if not rows.empty:
            found.append(Table(stem, record.title, record.caption, _blocks(rows, runs, record)))
    return found


def _blocks(frame: pd.DataFrame, runs: Mapping[str, Run], record: TableRecord) -> tuple[Block, ...]:
    datasets = titles.in_order(frame["dataset"], data.titles())
    groups = {(str(key[0]), str(key[1])): rows for key, rows in frame.groupby(["dataset", "norm"])}
    ordered = sorted(groups, key=lambda key: (datasets.index(key[0]), key[1] != "Linf", key[1]))
    return tuple(_block(dataset, norm, groups[dataset, norm], runs, record) for dataset, norm in ordered)


def _block(dataset: str, norm: str, frame: pd.DataFrame, runs: Mapping[str, Run], record: TableRecord) -> Block:
    own = frame[frame["submitter"] == ""]
    shown = frame if own.empty else own
    pairs = zip(shown["run_id"], shown["cell"], strict=True)
    asked = {*shown.loc[[cell in record.cells.get(run_id, ()) for run_id, cell in pairs], "attack"]}
    shown = shown[~shown["attack"].isin([name for name in {*shown["attack"]} - asked if _stands_in(name, asked)])]
    attacks = titles.in_order(shown["attack"], titles.attacks())
    pairs = shown[["attack", "eps", "universal"]].drop_duplicates(["attack", "eps"]).itertuples(index=False)
    columns = sorted(
        (Column(attack, titles.attack(attack), float(eps), bool(universal)) for attack, eps, universal in pairs),
        key=lambda column: (attacks.index(column.attack), column.eps),
    )
    networks = []
    for _, rows in frame.groupby("setup", sort=False):
        mine = rows[rows["submitter"] == ""]
        alone = shown.loc[shown["method"] == rows["method"].iloc[0], "setup"].nunique() == 1
        paper = record.paper.get(dataset, {}).get(rows["method"].iloc[0], {}) if alone else {}
        network = _network(rows, rows if mine.empty else mine, columns, norm, runs, paper, record.cells)
        called = {record.networks[run_id] for run_id in rows["run_id"] if run_id in record.networks}
        networks.append(replace(network, title=called.pop()) if len(called) == 1 else network)
    return Block(dataset, norm, tuple(columns), tuple(_marked(networks)))


def _stands_in(name: str, asked: Collection[str]) -> bool:
    """Whether an attack is the successor of one that a table asked for, or the predecessor: then it is no column."""
    found = {each: shelf.known("attack", each, Attack) for each in (name, *asked)}
    after = {each: "" if cls is None else cls.successor for each, cls in found.items()}
    return after[name] in asked or name in (after[each] for each in asked)


def _network(
    rows: pd.DataFrame,
    own: pd.DataFrame,
    columns: Sequence[Column],
    norm: str,
    runs: Mapping[str, Run],
    paper: Mapping[str, float],
    asked: Mapping[str, Sequence[str]],
) -> Network:
    first = own.iloc[0]
    most = own[own["n_examples"] == own["n_examples"].max()].drop_duplicates("run_id")
    records = [runs[run_id].record for run_id in rows["run_id"].unique() if run_id in runs]
    classifiers = [record.classifier for record in records if record.classifier is not None]
    return Network(
        setup=first["setup"],
        title=first["model"],
        method=first["method"],
        rows=tuple(int(place) for place in rows.index),
        seeds=rows["seed"].nunique(),
        images=(int(own["n_examples"].min()), int(own["n_examples"].max())),
        spectral_rate=records[0].spectral_rate if records else None,
        worst_node=min((each.clean.node_min for each in classifiers), default=None),
        clean=_entry(most, "clean_acc", _share(paper, titles.CLEAN)),
        attacks={
            column.key: _attacked(own, column, _share(paper, column.key), asked)
            for column in columns
            if _there(own, column)
        },
        worst=_worst_cases(rows, own, norm, runs),
    )


def _there(rows: pd.DataFrame, column: Column) -> bool:
    return bool(((rows["attack"] == column.attack) & (rows["eps"] == column.eps)).any())


def _share(paper: Mapping[str, float], key: str) -> float | None:
    return paper[key] / 100 if key in paper else None


def _attacked(rows: pd.DataFrame, column: Column, paper: float | None, asked: Mapping[str, Sequence[str]]) -> Entry:
    """Of several variants of an attack the table's own; else the one on the most images, then the strongest."""
    here = rows[(rows["attack"] == column.attack) & (rows["eps"] == column.eps)]
    pairs = zip(here["run_id"], here["cell"], strict=True)
    of_table = here[[cell in asked.get(run_id, ()) for run_id, cell in pairs]]
    here = here if of_table.empty else of_table
    variants = [variant for _, variant in here.groupby("strength", sort=True)]
    best = min(variants, key=lambda variant: (-variant["n_examples"].iloc[0], variant["robust_acc"].mean()))
    return _entry(best, "robust_acc", paper, label=best["attack_label"].iloc[0])


def _entry(rows: pd.DataFrame, measure: str, paper: float | None, label: str = "") -> Entry:
    by_seed = {int(seed): float(value) for seed, value in zip(rows["seed"], rows[measure], strict=True)}
    flags = sorted({flag for flags in rows["reliability_flags"] for flag in flags.split(";") if flag} if label else ())
    return _of_seeds(by_seed, int(rows["n_examples"].iloc[0]), label, paper, tuple(flags))


def _of_seeds(
    by_seed: Mapping[int, float], images: int, label: str, paper: float | None = None, flags: tuple[str, ...] = ()
) -> Entry:
    mean = Mean.of(by_seed.values())
    if mean.seeds > 1:
        half = _half(mean.std, mean.seeds)
        low, high = max(0.0, mean.mean - half), min(1.0, mean.mean + half)
    else:
        low, high = wilson(round(mean.mean * images), images)
    std = mean.std if mean.seeds > 1 else None
    return Entry(mean.mean, std, low, high, mean.seeds, images, label, paper, flags, by_seed=by_seed)


def _half(std: float, seeds: int) -> float:
    """Half the width of Student's interval for the mean."""
    return float(student.ppf((1 + LEVEL) / 2, seeds - 1)) * std / math.sqrt(seeds)


def _worst_cases(rows: pd.DataFrame, own: pd.DataFrame, norm: str, runs: Mapping[str, Run]) -> dict[str, Entry]:
    """By radius; a user's cell counts where it has at least as many images as our own."""
    cells: dict[int, list[CellRecord]] = {}
    our_cells: dict[int, list[CellRecord]] = {}
    ours = {(run_id, stem) for run_id, stem in own[["run_id", "cell"]].itertuples(index=False)}
    for run_id, stem, seed in rows[["run_id", "cell", "seed"]].itertuples(index=False):
        cell = runs[run_id].find(stem) if run_id in runs else None
        if cell is not None:
            cells.setdefault(int(seed), []).append(cell.record)
            if (run_id, stem) in ours:
                our_cells.setdefault(int(seed), []).append(cell.record)
    found = {}
    for delta in sorted({float(eps) for eps in own["eps"]}):
        by_seed, alone, images = {}, dict[str, int](), 0
        for seed, records in cells.items():
            here = within(records, norm, delta)
            own_here = within(our_cells.get(seed, ()), norm, delta)
            enough = min((record.n_examples for record in own_here), default=0)
            if not (joined := [record for record in here if record.n_examples >= enough]):
                continue
            worst = worst_case(joined)
            by_seed[seed], images = worst.accuracy, len(worst.right)
            for attack, broken in worst.alone.items():
                alone[attack] = alone.get(attack, 0) + broken
        if by_seed:
            label = ", ".join(
                f"{titles.attack(name)} {round(broken / len(by_seed)):,}" for name, broken in alone.items()
            )
            found[f"{delta:g}"] = _of_seeds(by_seed, images, label)
    return found


def _marked(networks: Sequence[Network]) -> list[Network]:
    """The networks with the best entry of each column marked, where there is one."""
    marked = []
    for network in networks:
        others = [other for other in networks if other is not network]
        clean = replace(network.clean, best=_ahead(network.clean, [other.clean for other in others]))
        attacks = {
            key: replace(entry, best=_ahead(entry, [other.attacks.get(key) for other in others]))
            for key, entry in network.attacks.items()
        }
        worst = {
            key: replace(entry, best=_ahead(entry, [other.worst.get(key) for other in others]))
            for key, entry in network.worst.items()
        }
        marked.append(replace(network, clean=clean, attacks=attacks, worst=worst))
    return marked


def _ahead(entry: Entry, others: Sequence[Entry | None]) -> bool:
    """Whether an entry is higher than every other by more than chance."""
    rivals = [other for other in others if other is not None]
    return entry.seeds > 1 and bool(rivals) and all(_above(entry, rival) for rival in rivals)


def _above(entry: Entry, rival: Entry) -> bool:
    common = [seed for seed in entry.by_seed if seed in rival.by_seed]
    if len(common) < 2:
        return entry.low > rival.high
    margin = Mean.of(entry.by_seed[seed] - rival.by_seed[seed] for seed in common)
    # All seeds share their test images, so what other images would give is not in the spread over seeds. That both see
    # the same ones narrows it; taken as if they did not, it is never too narrow.
    images = float(normal.ppf((1 + LEVEL) / 2)) * math.sqrt(
        sum(each.mean * (1 - each.mean) / each.images for each in (entry, rival))
    )
    return margin.mean > math.hypot(_half(margin.std, margin.seeds), images)

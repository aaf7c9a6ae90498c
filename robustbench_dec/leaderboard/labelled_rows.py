"""Labelled rows: the leaderboard as its readers see it. Chosen rows, each with a label for its model and for its
attack, and their means over seeds.

Seeds are averaged where everything else is equal: the training settings, the attack's settings, the number of test
images. Two trainings of one method (another radius, other rounds) are two models, and `names` tells them apart.
"""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from types import MappingProxyType

import pandas as pd

from robustbench_dec import data, files, shelf, titles
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather as leaderboard
from robustbench_dec.leaderboard import names
from robustbench_dec.leaderboard.means import Mean
from robustbench_dec.store.records import TableRecord
from robustbench_dec.store.results import Results, Run

ADDED = ["submitter", "setup", "model", "strength", "attack_label"]
"""Columns that `read` adds to the leaderboard's own."""

NEEDED = ("run_id", "cell", "dataset", "method", "attack", "attack_params_json", "norm", "eps", "seed", "robust_acc")
"""Without these columns a file is no leaderboard at all."""

OTHERS = "others"
"""Stands for a table where no table asked for a network."""

NO_TABLES: Mapping[str, TableRecord] = MappingProxyType({})

Settings = dict[str, object]


@dataclass(frozen=True)
class Group:
    """The seeds of one model under one attack at one radius: what they share, and their means with the sample standard
    deviations (fractions; None below two seeds)."""

    id: str
    rows: list[Hashable]  # the labels of their rows in the frame
    dataset: str
    method: str
    model: str
    setup: str
    attack: str
    attack_label: str
    norm: str
    eps: float
    submitter: str
    seeds: int
    images: int
    robust: float
    robust_std: float | None
    clean: float
    clean_std: float | None
    sfo: int
    rounds: int
    megabytes: float
    flags: list[str]


def tables(results: Results, also: Mapping[str, TableRecord] = NO_TABLES) -> dict[str, TableRecord]:
    """What the rendered tables asked for, and those of `also`; first the ones that stand beside a paper's numbers."""
    known = {**results.tables(), **also}
    return dict(sorted(known.items(), key=lambda pair: (not pair[1].paper, pair[0])))


def read(results: Results) -> pd.DataFrame:
    """All rows of results/leaderboard.csv with the columns in `ADDED`."""
    path = results.leaderboard
    if not path.is_file():
        raise BadInput(f"no leaderboard at {path}; `robustbench-dec table tables/table2.toml` or `render` writes one")
    try:
        frame = leaderboard.read(path)
    except (ValueError, KeyError) as error:
        raise BadInput(f"{path} is not a leaderboard ({error}); `robustbench-dec render` writes it again") from error
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise BadInput(f"{path} lacks the columns {', '.join(missing)}; `robustbench-dec render` writes it again")
    if frame.empty:
        raise BadInput(f"the leaderboard {path} has no row yet; attack a trained model first, then render a table")
    return labelled(frame, results)


def labelled(frame: pd.DataFrame, results: Results, also: Mapping[str, TableRecord] = NO_TABLES) -> pd.DataFrame:
    """A leaderboard with the columns in `ADDED`; `also` are tables that are yet to be written.

    `submitter` says who brought a row's attack: the column submitted_by where there is one, "a user" where the column
    submitted is "user", and "" for our own rows.
    """
    return _labelled(frame.assign(submitter=_submitters(frame)), runs(results, frame["run_id"]), tables(results, also))


def runs(results: Results, run_ids: Iterable[str]) -> dict[str, Run]:
    """Every run that is there; a model that was attacked elsewhere is not."""
    found = {run_id: results.find(run_id) for run_id in dict.fromkeys(run_ids)}
    return {run_id: run for run_id, run in found.items() if run is not None}


def select(
    frame: pd.DataFrame,
    dataset: Collection[str] = (),
    method: Collection[str] = (),
    attack: Collection[str] = (),
    eps: Collection[str] = (),
    norm: Collection[str] = (),
    table: Collection[str] = (),
) -> pd.DataFrame:
    """The rows with one of the values asked for in each column; no value asked for means all."""
    if table:
        stems = [stems_of(row) for row in frame["table"]]
        there = sorted({stem for each in stems for stem in each})
        for name in table:
            if name not in there:
                raise BadInput(f"no row of the leaderboard is of the table '{name}'; there are: {', '.join(there)}")
        frame = frame[[bool(each & {*table}) for each in stems]]
    for column, wanted in {"dataset": dataset, "method": method, "attack": attack, "norm": norm}.items():
        for name in wanted:
            if name not in set(frame[column]):
                known = ", ".join(sorted(set(frame[column])))
                raise BadInput(f"no row of the leaderboard has the {column} '{name}'; there are: {known}")
        if wanted:
            frame = frame[frame[column].isin(wanted)]
    radii = {round(shelf.number(text), 9): text for text in eps}
    rounded = frame["eps"].round(9)
    for radius, text in radii.items():
        if radius not in set(rounded):
            known = ", ".join(f"{value:g}" for value in sorted(set(rounded)))
            raise BadInput(f"no row that is left has the eps '{text}'; there are: {known}")
    chosen = frame[rounded.isin(list(radii))] if radii else frame
    if chosen.empty:
        raise BadInput("no row of the leaderboard has all these values together; leave one of them out")
    return chosen


def averaged(frame: pd.DataFrame) -> list[Group]:
    """One group per data set, model, attack and radius, the best first among equals."""
    shared = ["dataset", "setup", "attack", "strength", "norm", "eps", "submitter"]
    groups = [_group(key, rows) for key, rows in frame.groupby(shared, sort=False, dropna=False)]
    datasets = _ranks(titles.in_order((group.dataset for group in groups), data.titles()))
    attacks = _ranks(titles.in_order((group.attack for group in groups), titles.attacks()))

    def order(group: Group) -> tuple[int, int, str, float, float]:
        return datasets[group.dataset], attacks[group.attack], group.attack_label, group.eps, -group.robust

    return sorted(groups, key=order)


def _group(key: tuple[object, ...], rows: pd.DataFrame) -> Group:
    first = rows.iloc[0]
    robust, clean = Mean.of(rows["robust_acc"]), Mean.of(rows["clean_acc"])
    return Group(
        id=files.digest([str(value) for value in key])[:10],
        rows=list(rows.index),
        dataset=first["dataset"],
        method=first["method"],
        model=first["model"],
        setup=first["setup"],
        attack=first["attack"],
        attack_label=first["attack_label"],
        norm=first["norm"],
        eps=float(first["eps"]),
        submitter=first["submitter"],
        seeds=rows["seed"].nunique(),
        images=int(first["n_examples"]),
        robust=robust.mean,
        robust_std=robust.std if robust.seeds > 1 else None,
        clean=clean.mean,
        clean_std=clean.std if clean.seeds > 1 else None,
        sfo=round(mean(rows[["sfo_x", "sfo_y"]].max(axis=1).tolist())),
        rounds=round(mean(rows["comm_rounds"].tolist())),
        megabytes=mean(rows["bytes_payload"].tolist()) / 1e6,
        flags=sorted({flag for flags in rows["reliability_flags"] for flag in flags.split(";") if flag}),
    )


def stems_of(table: object) -> set[str]:
    """The tables in a row's column `table`; "others" where there is none."""
    return {stem for stem in str(table).split(";") if stem} or {OTHERS}


def method_ranks(names: Iterable[str]) -> dict[str, int]:
    """Methods in the order of the printed tables, which is that of their colours, then the others by alphabet."""
    return _ranks(titles.in_order(names, titles.methods()))


def _ranks(names: Iterable[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(names)}


def _submitters(frame: pd.DataFrame) -> list[str]:
    if "submitted_by" in frame:
        return list(frame["submitted_by"].fillna("").astype(str))
    return ["a user" if mark == "user" else "" for mark in frame.get("submitted", [""] * len(frame))]


def _labelled(frame: pd.DataFrame, runs: Mapping[str, Run], tables: Mapping[str, TableRecord]) -> pd.DataFrame:
    rows = frame.to_dict("records")
    setups = [_setup(row, runs.get(row["run_id"])) for row in rows]
    settings = list(zip(frame["attack"], frame["attack_params_json"], strict=True))
    strong = {each: _strength(*each) for each in dict.fromkeys(settings)}
    strengths = [strong[each] for each in settings]
    of_methods = {name: titles.method(name) for name in frame["method"].unique()}
    of_attacks = {name: titles.attack(name) for name in frame["attack"].unique()}
    given = {run_id: name for record in reversed(list(tables.values())) for run_id, name in record.networks.items()}
    models = names.distinct(
        [of_methods[name] for name in frame["method"]],
        list(zip(frame["dataset"], frame["method"], strict=True)),
        setups,
        [given.get(run_id) for run_id in frame["run_id"]],
    )
    first = next(iter(tables), None)  # its attacks bear the plain names
    attacks = [of_attacks[name] for name in frame["attack"]]
    plain = [title if first in str(row["table"]).split(";") else None for title, row in zip(attacks, rows, strict=True)]
    families = list(zip(frame["dataset"], frame["attack"], strict=True))
    images = frame["n_examples"]
    return frame.assign(
        setup=[files.digest(setup)[:10] for setup in setups],
        strength=[files.digest([each, int(n)])[:10] for each, n in zip(strengths, images, strict=True)],
        model=models,
        attack_label=names.distinct(attacks, families, strengths, plain),
    )


def _setup(row: Settings, run: Run | None) -> Settings:
    """All that decides a trained model but its seed."""
    if run is None:
        columns = ("dataset", "method", "architecture", "topology", "n_clients", "comm_rounds")
        return {name: json_value(row[name]) for name in columns} | {"problem.eps": json_value(row["train_delta"])}
    return names.training(run.record)


def _strength(attack: str, params: str) -> Settings:
    """All that decides an attack but its radius and the images; a step size counts relative to the radius."""
    given: Settings = json.loads(params or "{}")
    settings = names.filled("attack", given, attack)
    eps, alpha = leaderboard.number(settings.pop("eps", None)), settings.pop("alpha", None)
    step = leaderboard.number(alpha)
    if eps and step is not None:
        settings["rel_alpha"] = round(step / eps, 6)
    elif alpha is not None and step is None:  # a word, which a user's attack takes for one
        settings["alpha"] = alpha
    return settings


def json_value(value: object) -> object:
    """A cell of the leaderboard as JSON knows it, None where it is empty."""
    return None if pd.isna(value) else value.item() if hasattr(value, "item") else value

"""A table's files from the results on disk. Everything is made before anything is written.

results/leaderboard.csv, results/tables/<stem>.json    every attacked table that is published; see leaderboard/gather.py
tables/<stem>.csv, .md, .tex                           attacks (with pictures) and networks
tables/<stem>.csv, .md, .tex, -curves, -heat           methods
tables/<stem>.csv, .md, .tex, -tradeoff                radius
tables/<stem>.csv, <stem>-1.png, <stem>-2.png, ...     figures
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.data import own
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.problem import Classifier
from robustbench_dec.rendering import (
    attacks_table,
    curves,
    figures,
    methods_table,
    networks_table,
    pictures,
    radius_table,
    verdicts,
)
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.running.suite import Work
from robustbench_dec.specs.table import BlockSpec, Spec
from robustbench_dec.store.records import TableRecord
from robustbench_dec.store.results import Results, Run

Finished = Sequence[tuple[Work, Run]]
"""A table's finished runs, each with what the table asks of it."""


@dataclass(frozen=True)
class Report:
    """What rendering will write, and the leaderboard that it rests on with what the table asks for, if it has one."""

    contents: dict[Path, bytes]
    leaderboard: pd.DataFrame | None = None
    asked: TableRecord | None = None


def report(specification: Spec, work: Sequence[Work], stem: str, results: Results, tables: Path) -> list[Path]:
    """Render a table whose work is listed, and write its files; their paths."""
    with results.claim_leaderboard():  # the last one who writes it has seen all cells
        return files.write_all(prepare(specification, work, stem, results, tables).contents)


def prepare(specification: Spec, work: Sequence[Work], stem: str, results: Results, tables: Path) -> Report:
    """What a table's files will hold; nothing is written, and what cannot be rendered is refused."""
    check(specification)
    if specification.layout == "figures":
        return Report(figures.render(specification, work, results, tables / stem))
    runs = _finished(work, results)
    asked = TableRecord(
        title=specification.title,
        caption=specification.caption,
        networks=dict(sorted((item.run.id, _title(specification, item)) for item in work)),
        cells=_cells(work),
        paper=specification.paper,
    )
    everything = gather.gather(results, {stem: asked})
    wanted = [(run.id, request.key.stem) for item, run in runs for request in item.cells]
    rows = everything[pd.MultiIndex.from_frame(everything[["run_id", "cell"]]).isin(wanted)]
    contents: dict[Path, bytes] = {}
    if published := results.shows(stem):  # else leaderboard and page stay as they are
        contents = {results.leaderboard: gather.content(everything), **results.table_file(stem, asked)}
    if specification.layout == "networks":
        contents |= networks_table.render(specification, work, rows, results, tables / stem)
    elif specification.layout == "methods":
        contents |= methods_table.render(specification, work, results, tables / stem)
    elif specification.layout == "radius":
        contents |= radius_table.render(specification, work, results, tables / stem)
    else:
        paper = specification.paper or None
        places, margins = blocks(specification), None
        if specification.protocol is not None:
            known = [record for item, run in runs for asks in item.cells if (record := run.cell(asks.key).known())]
            margins = verdicts.measured(places, known)
        diverged = methods_table.divergences(work, results)
        contents |= attacks_table.render(rows, places, tables / stem, specification.caption, paper, margins, diverged)
        lines = pd.concat([_curve(run) for _, run in runs])
        contents |= curves.curves(lines, tables / stem, _measured(specification))
        trained, universal = _pictures(_shown(runs))
        if trained or universal:
            contents |= pictures.perturbations(trained, universal, tables / stem)
    return Report(contents, everything, asked) if published else Report(contents)


def check(specification: Spec) -> None:
    """Refuse a layout that does not fit the problems, before anything is trained or written."""
    for block in specification.blocks:
        problem = specification.run(block, next(iter(block.trainers)), specification.seeds[0]).build_problem()
        images = isinstance(problem, Classifier)
        if images and specification.layout == "figures":
            raise BadInput(f"layout 'figures' shows Phi, but block '{block.title}' has none; layout 'attacks' would do")
        if not images and specification.layout != "figures":
            raise BadInput(
                f"layout '{specification.layout}' shows accuracies under attack, but block '{block.title}' has no "
                "images to attack; layout 'figures' would do"
            )


def blocks(specification: Spec) -> list[Block]:
    """The specification as the table has it."""
    if specification.layout == "figures":
        raise BadInput(f"'{specification.title}' has figures and no attacks; tables/table2.toml has some, for example")
    check(specification)
    return [_block(block) for block in specification.blocks]


def network_title(block: BlockSpec, trainer: str) -> str:
    """What a table calls a trained network: the method, and the block where it is not just the data set."""
    if trainer in block.titles:
        return block.titles[trainer]
    method, rest = titles.method(trainer), _beside_data_set(block)
    if not rest:
        return method
    return f"{method}, {rest if rest[1:2].isupper() else rest[:1].lower() + rest[1:]}"


def _beside_data_set(block: BlockSpec) -> str:
    """What a block's title says beside its data set, which stands over its networks anyway."""
    return block.title.removeprefix(titles.dataset(str(block.problem.get("dataset", "")))).lstrip(", ")


def _title(specification: Spec, item: Work) -> str:
    if specification.layout == "methods":  # a method may stand there twice, on two problems
        return ", ".join(filter(None, (methods_table.method_title(item), _beside_data_set(item.block))))
    if specification.layout == "radius":
        return radius_table.row_title(item)
    return network_title(item.block, item.run.trainer)


def _cells(work: Sequence[Work]) -> dict[str, tuple[str, ...]]:
    """The cells that a table asks for, by their runs; two blocks may share a run."""
    asked: dict[str, set[str]] = {}
    for item in work:
        asked.setdefault(item.run.id, set()).update(request.key.stem for request in item.cells)
    return {run_id: tuple(sorted(asked[run_id])) for run_id in sorted(asked)}


def _finished(work: Sequence[Work], results: Results) -> Finished:
    finished = [(item, run) for item in work if (run := results.run(item.run.id)).exists]
    if not finished:
        raise BadInput(f"no finished run of this table is in {results.root}; make the table first")
    return finished


def _block(block: BlockSpec) -> Block:
    columns = tuple((attack.label, eps) for attack in block.attacks for eps in attack.eps)
    dataset, chosen = str(block.problem["dataset"]), block.problem.get("classes")
    return Block(
        block.title,
        own.label(dataset),
        tuple(block.trainers),
        columns,
        classes=len(chosen or own.class_names(dataset)),
        universal=frozenset(attack.label for attack in block.attacks if attack_named(attack.name).universal),
    )


def _curve(run: Run) -> pd.DataFrame:
    record = run.record
    costs = {"nodes": record.ledger.nodes, "directed_edges": record.ledger.directed_edges}
    return run.curve().assign(dataset=record.dataset, method=record.method, seed=record.seed, **costs)


def _measured(specification: Spec) -> str:
    """On what a curve's points rest, which is less than the table's numbers do."""
    attacks = [attack for block in specification.blocks for attack in block.curve]
    steps = {titles.attack(each.name): (each.model_extra or {}).get("steps") for each in attacks}
    named = " and ".join(f"{title} of {count} steps" if count else title for title, count in steps.items())
    images = f"Measured in training on the first {specification.curve_examples:,} test images"
    return f"{images}, {named}; the table has all images and its own settings." if named else f"{images}."


def _shown(runs: Finished) -> Finished:
    """Of each block the runs of the first seed that most of its methods finished."""
    finished = Counter((item.block.title, item.run.seed) for item, _ in runs)
    seeds: dict[str, int] = {}
    for title, seed in sorted(finished, key=lambda key: (-finished[key], key[1])):
        seeds.setdefault(title, seed)
    return [(item, run) for item, run in runs if item.run.seed == seeds[item.block.title]]


def _pictures(runs: Finished) -> tuple[list[pictures.Picture], list[pictures.Picture]]:
    """The trained y of every method that has one, and the UAPs against every method."""
    trained, universal = [], []
    for item, run in runs:
        record = run.record
        if (y := run.perturbation()) is not None:
            eps = record.settings.problem["eps"]
            trained.append(pictures.Picture(record.dataset, record.method, y, eps))
        for request in item.cells:
            cell = run.cell(request.key)
            if (known := cell.known()) is not None and (y := cell.perturbation()) is not None:
                picture = pictures.Picture(record.dataset, record.method, y, known.eps, known.robust_acc)
                if known.class_hit is not None and record.classifier is not None:
                    name, share = record.classifier.classes[known.class_hit[0]], known.class_hit[1]
                    picture = replace(picture, hit=(name, share))
                universal.append(picture)
    return trained, universal

"""A table's files from the results on disk. Everything is made before anything is written.

results/leaderboard.csv, results/tables/<stem>.json    every attacked table; see leaderboard/gather.py
tables/<stem>.csv, .md, .tex                           attacks (with pictures) and networks
tables/<stem>.csv, <stem>-1.png, <stem>-2.png, ...     figures
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from robustbench_dec import files
from robustbench_dec.attacking.foreign import attack_named
from robustbench_dec.data import catalogue
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.problem import Classifier
from robustbench_dec.rendering import attacks_table, curves, figures, networks_table, pictures
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.running.suite import Work
from robustbench_dec.specs.table import BlockSpec, Spec
from robustbench_dec.store.results import Results, Run

Finished = Sequence[tuple[Work, Run]]
"""A table's finished runs, each with what the table asks of it."""


@dataclass(frozen=True)
class Report:
    """What rendering will write, and the leaderboard that it rests on, where there is one."""

    contents: dict[Path, bytes]
    leaderboard: pd.DataFrame | None


def report(specification: Spec, work: Sequence[Work], stem: str, results: Results, tables: Path) -> list[Path]:
    """Render a table whose work is listed, and write its files; their paths."""
    with results.claim_leaderboard():  # the last one who writes it has seen all cells
        return files.write_all(prepare(specification, work, stem, results, tables).contents)


def prepare(specification: Spec, work: Sequence[Work], stem: str, results: Results, tables: Path) -> Report:
    """What a table's files will hold; nothing is written, and what cannot be rendered is refused."""
    check(specification)
    if specification.layout == "figures":
        return Report(figures.render(specification, work, results, tables / stem), None)
    runs = _finished(work, results)
    asked = frozenset(item.run.id for item in work)
    everything = gather.gather(results, {stem: asked})
    wanted = [(run.id, request.key.stem) for item, run in runs for request in item.cells]
    rows = everything[pd.MultiIndex.from_frame(everything[["run_id", "cell"]]).isin(wanted)]
    contents = {results.leaderboard: gather.content(everything), **results.table_file(stem, asked)}
    if specification.layout == "networks":
        contents |= networks_table.render(specification, work, rows, results, tables / stem)
    else:
        paper = specification.paper or None
        contents |= attacks_table.render(rows, blocks(specification), tables / stem, specification.caption, paper)
        contents |= curves.curves(pd.concat([_curve(run) for _, run in runs]), tables / stem)
        trained, universal = _pictures([pair for pair in runs if pair[0].run.seed == specification.seeds[0]])
        if trained or universal:
            contents |= pictures.perturbations(trained, universal, tables / stem)
    return Report(contents, everything)


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
    check(specification)
    if specification.layout == "figures":
        raise BadInput(f"'{specification.title}' has figures and no attacks; tables/table2.toml has some, for example")
    return [_block(block) for block in specification.blocks]


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
        dataset,
        tuple(block.trainers),
        columns,
        classes=len(chosen or catalogue.find(dataset, catalogue.IMAGES).classes),
        universal=frozenset(attack.label for attack in block.attacks if attack_named(attack.name).universal),
    )


def _curve(run: Run) -> pd.DataFrame:
    record = run.record
    costs = {"nodes": record.ledger.nodes, "directed_edges": record.ledger.directed_edges}
    return run.curve().assign(dataset=record.dataset, method=record.method, seed=record.seed, **costs)


def _pictures(runs: Finished) -> tuple[list[pictures.Picture], list[pictures.Picture]]:
    """The trained y of every method that has one, and the UAPs against every method."""
    trained, universal = [], []
    for item, run in runs:
        record = run.record
        title = f"{record.dataset}, {record.method}"
        if (y := run.perturbation()) is not None:
            trained.append((title, y, record.settings.problem["eps"]))
        for request in item.cells:
            cell = run.cell(request.key)
            if cell.known() is not None and (y := cell.perturbation()) is not None:
                universal.append((title, y, cell.record.eps))
    return trained, universal

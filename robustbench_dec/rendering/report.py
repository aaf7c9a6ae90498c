"""A table's files from the results on disk. Everything is made before anything is written.

results/leaderboard.csv, results/tables/<stem>.json    every attacked table; see leaderboard/gather.py, store/tables.py
tables/<stem>.csv, .md, .tex                           attacks (with pictures) and networks
tables/<stem>.csv, <stem>-1.png, <stem>-2.png, ...     figures
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import safetensors.torch

from robustbench_dec import files
from robustbench_dec.attacking.foreign import attack_named
from robustbench_dec.data import catalogue
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.problem import Classifier
from robustbench_dec.rendering import attacks_table, curves, figures, networks_table, pictures
from robustbench_dec.rendering.blocks import Block
from robustbench_dec.running import cells, suite
from robustbench_dec.specs.table import BlockSpec, Spec
from robustbench_dec.store import locks
from robustbench_dec.store import results as store
from robustbench_dec.store import tables as rendered

Finished = Mapping[Path, BlockSpec]
"""The folders of a table's finished runs, each with its block."""


@dataclass(frozen=True)
class Report:
    """What rendering will write, and the leaderboard that it rests on, where there is one."""

    contents: dict[Path, bytes]
    leaderboard: pd.DataFrame | None


def report(specification: Spec, stem: str, results: Path, tables: Path) -> list[Path]:
    """Render a table and write its files; their paths."""
    with locks.claim(gather.path(results)):  # the last one who writes it has seen all cells
        return files.write_all(prepare(specification, stem, results, tables).contents)


def prepare(specification: Spec, stem: str, results: Path, tables: Path) -> Report:
    """What a table's files will hold; nothing is written, and what cannot be rendered is refused."""
    check(specification)
    if specification.layout == "figures":
        return Report(figures.render(specification, results, tables / stem), None)
    runs = _finished(specification, results)
    known = rendered.read(results) | {stem: {run.id for _, run in specification.runs()}}
    everything = gather.gather(results, known)
    rows = _rows_of(everything, runs, specification)
    contents = {
        gather.path(results): gather.content(everything),
        rendered.path(results, stem): rendered.content(known[stem]),
    }
    if specification.layout == "networks":
        contents |= networks_table.render(specification, rows, results, tables / stem)
    else:
        paper = specification.paper or None
        contents |= attacks_table.render(rows, blocks(specification), tables / stem, specification.caption, paper)
        contents |= curves.curves(pd.concat([_curve(folder) for folder in runs]), tables / stem)
        trained, universal = _pictures(runs, specification)
        if trained or universal:
            contents |= pictures.perturbations(trained, universal, tables / stem)
    return Report(contents, everything)


def rebuild(results: Path) -> pd.DataFrame:
    """The leaderboard anew from all cells."""
    path = gather.path(results)
    with locks.claim(path):
        everything = gather.gather(results, rendered.read(results))
        files.write_bytes(path, gather.content(everything))
    return everything


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


def _finished(specification: Spec, results: Path) -> Finished:
    runs = {results / "runs" / run.id: block for block, run in specification.runs()}
    finished = {folder: block for folder, block in runs.items() if (folder / "run.json").is_file()}
    if not finished:
        raise BadInput(f"no finished run of this table is in {results}; make the table first")
    return finished


def _rows_of(everything: pd.DataFrame, runs: Finished, specification: Spec) -> pd.DataFrame:
    """The rows of the leaderboard that the table asks for."""
    wanted = []
    for folder, block in runs.items():
        seed = files.read_sealed(folder / "run.json")["seed"]
        wanted += [(folder.name, path.stem) for path in suite.cell_paths(folder, specification.n_examples, block, seed)]
    return everything[pd.MultiIndex.from_frame(everything[["run_id", "cell"]]).isin(wanted)]


def _block(block: BlockSpec) -> Block:
    columns = tuple((attack.name, eps) for attack in block.attacks for eps in attack.eps)
    dataset, chosen = str(block.problem["dataset"]), block.problem.get("classes")
    return Block(
        block.title,
        dataset,
        tuple(block.trainers),
        columns,
        classes=len(chosen or catalogue.find(dataset, catalogue.IMAGES).classes),
        universal=frozenset(attack.name for attack in block.attacks if attack_named(attack.name).universal),
    )


def _curve(folder: Path) -> pd.DataFrame:
    record = files.read_sealed(folder / "run.json")
    added = {name: record[name] for name in ("dataset", "method", "seed")}
    ledger = {name: record["ledger"][name] for name in ("nodes", "directed_edges")}
    return store.curve(folder, record).assign(**added, **ledger)


def _pictures(runs: Finished, specification: Spec) -> tuple[list[pictures.Picture], list[pictures.Picture]]:
    """The trained y of every method that has one, and the UAPs against every method, of the first seed."""
    trained, universal = [], []
    for folder, block in runs.items():
        record = files.read_sealed(folder / "run.json")
        if record["seed"] != specification.seeds[0]:
            continue
        title = f"{record['dataset']}, {record['method']}"
        if record.get("perturbation_sha256") is not None:
            data = files.verified(folder / "perturbation.safetensors", record["perturbation_sha256"])
            y = safetensors.torch.load(data)["y"]
            trained.append((title, y, record["settings"]["problem"]["eps"]))
        for path in suite.cell_paths(folder, specification.n_examples, block, record["seed"]):
            cell = cells.known_cell(path, record["checkpoint_sha256"])
            if cell is not None and cell["perturbation_file"] is not None:
                data = files.verified(path.with_name(cell["perturbation_file"]), cell["perturbation_sha256"])
                y = safetensors.torch.load(data)["y"]
                universal.append((title, y, cell["eps"]))
    return trained, universal

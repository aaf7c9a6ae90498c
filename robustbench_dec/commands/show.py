"""What there is: `data`, `list`, and the leaderboard as a `page` or as an `export`."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from robustbench_dec.commands.options import Results, grouped, page_home
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput


@dataclass(frozen=True)
class Dealt:
    """How the samples are dealt to nodes."""

    split: Annotated[str | None, typer.Option(help="Show who holds what: iid, dirichlet(0.1), classes(2), label.")] = (
        None
    )
    nodes: Annotated[int, typer.Option(min=1, help="With --split: among so many nodes.")] = 10
    seed: Annotated[int, typer.Option(min=0, help="With --split: the run's seed, which decides the split.")] = 0
    plot: Annotated[bool, typer.Option("--plot", help="With --split: draw it, nodes x classes.")] = False
    out: Annotated[Path, typer.Option(help="With --plot: the folder for the .png and .pdf.")] = Path("out")


Split = dict[str, list[str] | list[list[int]]]


@grouped
def data(
    names: Annotated[list[str], typer.Argument(help="Data sets, for example: mnist cifar10.")],
    dealt: Dealt,
    folder: Annotated[Path | None, typer.Option(help="Where to keep them (default ./data).")] = None,
    mirror: Annotated[Path | None, typer.Option(help="An offline copy (default $ROBUSTBENCH_DEC_MIRROR).")] = None,
    as_json: Json = False,
) -> None:
    """Fetch data sets and verify every byte; with --split, show which node holds how many samples of each class."""
    from robustbench_dec import data as sets

    if dealt.plot and dealt.split is None:
        raise BadInput("--plot draws who holds what, so it needs a --split, for example --split 'dirichlet(0.1)'")
    found: list[dict[str, object]] = []
    for name in names:
        paths = sets.fetch(name, folder=folder, mirror=mirror)
        there = f"{len(paths)} files verified in {paths[0].parent}" if paths else "bundled, verified"
        found.append({"name": name, "files": [str(path) for path in paths]})
        if not as_json:
            typer.echo(f"{name}: {there}")
    for fact in found if dealt.split is not None else ():
        lines, split = _show_split(str(fact["name"]), dealt, folder, mirror)
        fact |= split
        if not as_json:
            tell(lines, split, as_json)
    if as_json:
        tell([], found, as_json)


def _show_split(name: str, dealt: Dealt, folder: Path | None, mirror: Path | None) -> tuple[list[str], Split]:
    """A table of nodes x classes, in lines and for programs; and the picture where it is asked for."""
    from robustbench_dec import data as sets
    from robustbench_dec import files, titles

    images = sets.load(name, folder=folder, mirror=mirror)
    shares = sets.split(images.train_labels, dealt.nodes, str(dealt.split), dealt.seed)
    counts = sets.holdings(images.train_labels, shares, len(images.classes))
    width = max(6, *(len(each) for each in images.classes))
    lines = ["node".rjust(6) + "".join(each.rjust(width + 1) for each in images.classes)]
    for i, row in enumerate(counts):
        lines.append(f"{i:6}" + "".join((f"{count}" if count else ".").rjust(width + 1) for count in row))
    left = len(images.train_labels) - shares.numel()
    lines.append(f"{shares.shape[1]} samples a node, {left} of {len(images.train_labels)} left out")
    pictures = list[Path]()
    if dealt.plot:
        from robustbench_dec.rendering import holdings

        plain = re.sub(r"[^\w.]+", "-", str(dealt.split)).strip("-")
        stem = dealt.out / f"{name}-{plain}-{dealt.nodes}-nodes"
        title = f"{titles.dataset(name)}, {dealt.split}, {dealt.nodes} nodes, seed {dealt.seed}"
        pictures = files.write_all(holdings.picture(counts, images.classes, title, stem))
    facts = {"classes": [*images.classes], "holdings": counts.tolist(), "pictures": [*map(str, pictures)]}
    return [*lines, *(f"wrote {path}" for path in pictures)], facts


def list_parts(as_json: Json = False) -> None:
    """What there is: trainers, attacks, networks, data sets, graphs."""
    from robustbench_dec import data as sets
    from robustbench_dec import shelf
    from robustbench_dec.networks import topology

    others = {
        "trainer": "path/to/mine.py:Mine",
        "attack": "torchattacks:NAME, path/to/mine.py:Mine, y.safetensors",
        "architecture": "path/to/net.py:Net",
    }
    if as_json:
        parts = {f"{kind}s": [name for name in shelf.names(kind) if name not in shelf.broken(kind)] for kind in others}
        parts |= {"data_sets": sets.names(), "graphs": list(topology.GRAPHS), "weights": list(topology.WEIGHTS)}
        tell([], parts, as_json)
        return
    for kind, more in others.items():
        reasons = shelf.broken(kind)
        typer.echo(f"{kind}s: {', '.join(name for name in shelf.names(kind) if name not in reasons)} (and {more})")
        for reason in reasons.values():
            typer.echo(f"BROKEN: {reason}")
    typer.echo(f"data sets: {', '.join(sets.names())} (and images.npz, images.safetensors, a folder, rows.svm)")
    typer.echo(f"graphs: {', '.join(topology.GRAPHS)}")
    typer.echo(f"weights: {', '.join(topology.WEIGHTS)}")


def flags(
    names: Annotated[list[str] | None, typer.Argument(help="Flags, for example: budget rises (default: all).")] = None,
) -> None:
    """What the flags of the audit mean: docs/flags.md, or what it says of the flags that are named."""
    from robustbench_dec import shipped
    from robustbench_dec.leaderboard.audit import FLAGS

    text = (shipped.place("docs") / "flags.md").read_text()
    if not names:
        typer.echo(text, nl=False)
        return
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    for name in names:
        if name not in FLAGS:
            raise BadInput(f"no flag '{name}'; there are: {', '.join(FLAGS)}")
        seen, meaning = rows[name].split(" | ")
        typer.echo(f"{name}\n  seen: {seen}\n  it usually means: {meaning}")


def page(
    results: Results = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: index.html in tables/ beside results/).")
    ] = None,
) -> None:
    """Write the leaderboard as one self-contained web page: open it in a browser, no network needed."""
    from robustbench_dec import page as pages
    from robustbench_dec.store.results import Results as Store

    typer.echo(f"wrote {pages.write(Store(results), out or page_home(results) / 'index.html')}")


def radius(
    pattern: Annotated[
        str, typer.Argument(help="Which networks: a pattern of runs' ids, for example 'mnist-*'.")
    ] = "*",
    norm: Annotated[str, typer.Option(help="Linf, L2, L1 or L0.")] = "Linf",
    n_examples: Annotated[
        int | None,
        typer.Option(min=1, help="Only cells of at least so many test images (default: the most)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Stem of the .csv, .png and .pdf.")] = Path("out/radius"),
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """Accuracy against the radius, network by network, from stored cells alone; the median smallest radius."""
    from robustbench_dec import files
    from robustbench_dec.leaderboard.radius_curves import curves
    from robustbench_dec.rendering import radius_picture
    from robustbench_dec.store.results import Results as Store

    found = curves(Store(results), pattern, norm, n_examples)
    written = files.write_all(radius_picture.files_of(found, out))
    lines, facts = [], []
    for each in found:
        most = each.radii[-1]
        half = f"above {most:g}" if each.median is None else f"{each.median:g}"
        end = (
            f"chance at {each.chance_at:g}" if each.chance_at is not None else f"{each.accuracies[-1]:.1%} at {most:g}"
        )
        lines.append(f"{each.run.id}: median smallest radius {half}, {end} ({len(each.smallest):,} images)")
        curve = [{"eps": eps, "accuracy": left} for eps, left in zip(each.radii, each.accuracies, strict=True)]
        facts.append({"run_id": each.run.id, "norm": each.norm, "n_examples": len(each.smallest), "curve": curve})
        facts[-1] |= {"median_radius": each.median, "chance": each.chance, "chance_at": each.chance_at}
    short = sum(each.chance_at is None for each in found)
    if short:
        lines.append(
            f"{short} of {len(found)} curves end above chance; `robustbench-dec attack` at larger radii goes on"
        )
    wrote = [f"wrote {path}" for path in written]
    tell([*lines, *wrote], {"curves": facts, "files": [str(path) for path in written]}, as_json)


@dataclass(frozen=True)
class Chosen:
    """Which rows of the leaderboard."""

    dataset: Annotated[list[str], typer.Option(help="Only these data sets; may be given several times.")] = field(
        default_factory=list
    )
    method: Annotated[list[str], typer.Option(help="Only these methods.")] = field(default_factory=list)
    attack: Annotated[list[str], typer.Option(help="Only these attacks.")] = field(default_factory=list)
    eps: Annotated[list[str], typer.Option(help="Only these radii, for example 0.1 or 8/255.")] = field(
        default_factory=list
    )
    norm: Annotated[list[str], typer.Option(help="Only radii in these norms, for example Linf.")] = field(
        default_factory=list
    )
    table: Annotated[list[str], typer.Option(help="Only networks of these tables, for example table2.")] = field(
        default_factory=list
    )


@grouped
def export(
    chosen: Chosen,
    form: Annotated[str, typer.Option("--format", help="csv, latex, json (RobustBench's keys) or bibtex.")] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="A file (default: print); with json, a folder gets a file per model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    results: Results = Path("results"),
) -> None:
    """Print or write a part of the leaderboard for a paper, a spreadsheet or another benchmark."""
    from robustbench_dec import files
    from robustbench_dec.leaderboard import labelled_rows
    from robustbench_dec.rendering import export as exports
    from robustbench_dec.store.results import Results as Store

    rows = labelled_rows.select(
        labelled_rows.read(Store(results)),
        chosen.dataset,
        chosen.method,
        chosen.attack,
        chosen.eps,
        chosen.norm,
        chosen.table,
    )
    if out is None:
        typer.echo(exports.text(rows, form), nl=False)
        return
    if out.is_file() and not force:
        raise BadInput(f"{out} is there already; --force replaces it, and another name leaves it alone")
    if form == "json" and (out.is_dir() or not out.suffix):
        written = exports.write_documents(exports.robustbench(rows), out)
    else:
        files.write_text(out, exports.text(rows, form))
        written = [out]
    for path in written:
        typer.echo(f"wrote {path}")

"""`score` somebody's images, and `submit` a folder with an attack, images or a network, a claim and a card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec import shipped
from robustbench_dec.commands.options import Device, Limiting, Stores, checked, grouped, radii
from robustbench_dec.commands.telling import Json, tell
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.leaderboard.worst_case import WorstCase
    from robustbench_dec.store.records import CellRecord
    from robustbench_dec.store.results import Results as Store


@grouped
def score(
    images: Annotated[Path, typer.Argument(help="A .safetensors file with the tensor images (N, C, H, W).")],
    model: Annotated[str, typer.Option(help="A network of the zoo, such as mnist/k_gt, or a run's folder.")],
    eps: Annotated[str, typer.Option(help="The radius in which they are said to lie, for example 0.1 or 8/255.")],
    norm: Annotated[str, typer.Option(help="Linf, L2, L1 or L0.")] = "Linf",
    n_examples: Annotated[int, typer.Option(help="Of how many test images, the first ones.")] = 1000,
    *,
    stores: Stores,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Judge somebody's adversarial images by one forward pass: budget, box and number are checked, nothing is run."""
    from robustbench_dec.running.scoring import Images
    from robustbench_dec.running.scoring import score as scored
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    asked, known, own = radii(eps), Store(stores.stored or shipped.results()), Store(stores.results)
    if len(asked) != 1:
        raise BadInput(f"images are scored at one radius, not at {len(asked)}; give one --eps")
    (radius,) = asked
    wanted = Images(images, norm, radius, n_examples)
    entries = zoo.chosen(model, own, known)
    if len(entries) != 1:
        raise BadInput(f"images are scored on one network, but '{model}' names {len(entries)}; name one")
    record = scored(wanted, entries[0], own, device=checked(device))
    count, worst = _beside(record, known, own)
    alone = worst.alone.get(record.attack, 0)
    lines = [
        f"{entries[0].name}, {norm} {radius:g}: {record.n_correct} of {record.n_examples} images right",
        f"without attack {record.clean_acc:.1%}, under these images {record.robust_acc:.1%}",
        f"worst case of {count} cells at this radius or below: {worst.accuracy:.1%}; these images break {alone} that "
        "nothing else broke",
    ]
    facts = {"model": entries[0].name, "cell": record.model_dump(mode="json", exclude={"bits", "clean_bits"})}
    tell(lines, facts | {"cells": count, "worst_case": worst.accuracy, "broken_alone": alone}, as_json)


@grouped
def submit(
    folder: Annotated[Path, typer.Argument(help="A folder with claim.toml, card.md and what is submitted.")],
    stores: Stores,
    limiting: Limiting,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure what somebody submits, hold their claim against it, and add it to out/; see docs/submit.md.

    A claim that does not hold is refused, and nothing is written. "robustbench-dec publish out" puts it on the tracked
    leaderboard.
    """
    from robustbench_dec.running import submission as submissions
    from robustbench_dec.specs import submission as specs
    from robustbench_dec.store.results import Results as Store

    checked(device)
    asked, own, known = specs.read(folder), Store(stores.results), Store(stores.stored or shipped.results())
    added = submissions.add(asked, own, known, device=device, limits=limiting.read())
    claim = asked.claim
    lines = [f"{added.entry.name}: {added.accuracy:.2%} of {added.images:,} images right, {claim.accuracy:.2%} claimed"]
    facts: dict[str, object] = {"kind": claim.kind, "model": added.entry.name, "images": added.images}
    facts |= {"accuracy": added.accuracy, "claimed": claim.accuracy, "files": [str(path) for path in added.written]}
    if added.record is not None:
        count, worst = _beside(added.record, known, own)
        alone = worst.alone.get(added.record.attack, 0)
        lines.append(
            f"worst case of {count} cells at this radius or below: {worst.accuracy:.1%}; breaks {alone} images that "
            "nothing else broke"
        )
        if added.record.flags:
            lines.append(f"flags: {', '.join(added.record.flags)}; `robustbench-dec flags` tells what they mean")
        facts |= {"cells": count, "worst_case": worst.accuracy, "broken_alone": alone, "flags": [*added.record.flags]}
    tell([*lines, *(f"wrote {path}" for path in added.written)], facts, as_json)


def _beside(record: "CellRecord", *homes: "Store") -> "tuple[int, WorstCase]":
    """How many stored cells of the network are at the images' radius or below, and their worst case."""
    from robustbench_dec.leaderboard.worst_case import within, worst_case

    runs = [run for home in homes if (run := home.find(record.run_id)) is not None]
    cells = {cell.stem: cell.record for run in runs for cell in run.cells()}
    same = [
        cell
        for cell in cells.values()
        if (cell.part, cell.checkpoint_sha256) == ("test", record.checkpoint_sha256)
        and cell.n_examples >= record.n_examples
    ]
    near = within(same, record.norm, record.eps)
    return len(near), worst_case(near, record.n_examples)

"""`score` somebody's images, and `submit` a folder with an attack, images or a network, a claim and a card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustbench_dec.commands.options import Device, Results, checked, radii
from robustbench_dec.errors import BadInput

if TYPE_CHECKING:
    from robustbench_dec.store.records import CellRecord
    from robustbench_dec.store.results import Results as Store

Stored = Annotated[Path, typer.Option(help="Where the stored cells are that they are set beside; only read.")]


def score(
    images: Annotated[Path, typer.Argument(help="A .safetensors file with the tensor images (N, C, H, W).")],
    model: Annotated[str, typer.Option(help="A network of the zoo, such as mnist/k_gt, or a run's folder.")],
    eps: Annotated[str, typer.Option(help="The radius in which they are said to lie, for example 0.1 or 8/255.")],
    norm: Annotated[str, typer.Option(help="Linf, L2, L1 or L0.")] = "Linf",
    n_examples: Annotated[int, typer.Option(help="Of how many test images, the first ones.")] = 1000,
    results: Results = Path("out"),
    stored: Stored = Path("results"),
    device: Device = "cpu",
) -> None:
    """Judge somebody's adversarial images by one forward pass: budget, box and number are checked, nothing is run."""
    from robustbench_dec.running.scoring import Images
    from robustbench_dec.running.scoring import score as scored
    from robustbench_dec.store import zoo
    from robustbench_dec.store.results import Results as Store

    asked = radii(eps)
    if len(asked) != 1:
        raise BadInput(f"images are scored at one radius, not at {len(asked)}; give one --eps")
    (radius,) = asked
    wanted = Images(images, norm, radius, n_examples)
    entries = zoo.chosen(model, Store(stored))
    if len(entries) != 1:
        raise BadInput(f"images are scored on one network, but '{model}' names {len(entries)}; name one")
    record = scored(wanted, entries[0], Store(results), device=checked(device))
    typer.echo(f"{entries[0].name}, {norm} {radius:g}: {record.n_correct} of {record.n_examples} images right")
    typer.echo(f"without attack {record.clean_acc:.1%}, under these images {record.robust_acc:.1%}")
    typer.echo(_beside(record, Store(stored), Store(results)))


def _beside(record: "CellRecord", *homes: "Store") -> str:
    """What the images break that no stored cell of the network does, and the worst case with them."""
    from robustbench_dec.leaderboard.worst_case import within, worst_case

    runs = [run for home in homes if (run := home.find(record.run_id)) is not None]
    cells = {cell.stem: cell.record for run in runs for cell in run.cells()}
    same = [
        cell
        for cell in cells.values()
        if (cell.part, cell.checkpoint_sha256) == ("test", record.checkpoint_sha256)
        and cell.n_examples >= record.n_examples
    ]
    worst = worst_case(within(same, record.norm, record.eps), record.n_examples)
    return (
        f"worst case of {len(same)} cells at this radius or below: {worst.accuracy:.1%}; these images break "
        f"{worst.alone.get(record.attack, 0)} that nothing else broke"
    )

"""Every attack of the shelf and of torchattacks against networks for which an adversarial image is known to exist.

    python benchmarks/binary_heads.py            writes benchmarks/binary_heads.csv

See robustbench_dec/theory/binary_head.py. Settings are the defaults; radii: 0.25 in Linf, 1 in L2, 5 in L1, 10 pixels.
An attack that needs more than two classes, or more than one colour, cannot be tried; its row says why.
"""

import csv
import io
from pathlib import Path

import torch
from torch import nn

from robustbench_dec import files, shelf
from robustbench_dec.attacking import torchattacks_shelf as library
from robustbench_dec.attacking.find_attack import attack_named
from robustbench_dec.errors import BadInput
from robustbench_dec.theory import binary_head, check_attack

RADII = {"Linf": 0.25, "L2": 1.0, "L1": 5.0, "L0": 10.0}
COLUMNS = ("attack", "norm", "eps", "heads", "found", "passed", "why_not")


def row(name: str) -> dict[str, object]:
    """One attack with its default settings."""
    cls = attack_named(name)
    eps = RADII[cls.norm]
    network, images, *_ = check_attack.bench()
    assert isinstance(network, nn.Sequential)
    said = {"attack": name, "norm": cls.norm, "eps": eps}
    try:
        outcome = binary_head.tried(shelf.make(cls, {"eps": eps}), network[:-1], images[: check_attack.HEADS])
    except BadInput as error:
        return said | {"passed": False, "why_not": str(error)}
    except Exception as error:
        return said | {"passed": False, "why_not": f"it raised {type(error).__name__}"}
    return said | {"heads": outcome.heads, "found": outcome.found, "passed": outcome.passed}


def main() -> None:
    torch.set_num_threads(1)
    names = [
        *shelf.names("attack"),
        *(f"torchattacks:{name}" for name in library.names() if name not in library.REFUSED),
    ]
    rows = []
    for name in names:
        rows.append(row(name))
        print(rows[-1], flush=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(Path(__file__).with_suffix(".csv"), text.getvalue())


if __name__ == "__main__":
    main()

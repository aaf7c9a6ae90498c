"""A submission: a folder with claim.toml, card.md and one thing that is submitted.

    kind = "images"                  # or "attack", or "network"
    file = "images.safetensors"      # or "mine.py:Mine", or "mine.safetensors" as `zoo add` writes it, with its card
    model = "mnist/k_gt"             # images, attack: the network of the zoo that is attacked
    norm = "Linf"                    # images
    eps = 0.1                        # images, attack
    n_examples = 1000                # the first so many test images
    settings = { steps = 20 }        # attack
    name = "mnist/mine"              # network: what the zoo calls it
    accuracy = 0.523                 # the claim: what is left under attack; of a network, its clean accuracy

card.md says who, what, and how the settings were chosen.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings
from robustbench_dec.specs.toml import Number, Strict, validated

CLAIM, CARD = "claim.toml", "card.md"
NEEDED = {"images": ("model", "norm", "eps"), "attack": ("model", "eps"), "network": ("name",)}
"""What a claim of each kind says beside the file and the accuracy."""

OPTIONAL = {"images": (), "attack": ("settings",), "network": ()}


class Claim(Strict):
    """What somebody submits, and what they say of it."""

    kind: Literal["images", "attack", "network"]
    file: str
    accuracy: Annotated[Number, Field(ge=0, le=1)]
    n_examples: Annotated[int, Field(ge=1)] = 1000
    model: str | None = None
    norm: str | None = None
    eps: Number | None = None
    settings: Settings | None = None
    name: str | None = None


class Submission(Strict):
    """A folder that was read: its claim, its card, and the path of what is submitted."""

    folder: Path
    claim: Claim
    said: dict[str, bytes]
    """claim.toml and card.md, as they were read: what is submitted may change them while it is measured."""

    @property
    def path(self) -> Path:
        """The file, without the class in it."""
        return self.folder / self.claim.file.partition(":")[0]

    @property
    def part(self) -> str:
        """An attack as every command takes it: path/to/mine.py:Mine."""
        return str(self.folder / self.claim.file)


def read(folder: Path) -> Submission:
    """What a folder submits; refused where something is missing, or leads out of the folder."""
    if not folder.is_dir():
        raise BadInput(f"no folder {folder}; a submission is a folder with {CLAIM}, {CARD} and what is submitted")
    if not _inside(folder, CLAIM):
        raise BadInput(f"{folder} has no {CLAIM}; docs/submit.md says what stands in it")
    said = {name: (folder / name).read_bytes() for name in (CLAIM, CARD) if _inside(folder, name)}
    claim = validated(Claim, folder / CLAIM, "docs/submit.md")
    given = {name for name in ("model", "norm", "eps", "settings", "name") if getattr(claim, name) is not None}
    for name in NEEDED[claim.kind]:
        if name not in given:
            raise BadInput(f"{folder / CLAIM}: a claim about {claim.kind} says '{name}' too; see docs/submit.md")
    for name in sorted(given - {*NEEDED[claim.kind], *OPTIONAL[claim.kind]}):
        raise BadInput(f"{folder / CLAIM}: a claim about {claim.kind} has no '{name}'; leave it out")
    if "eps" in (claim.settings or {}):
        raise BadInput(f"{folder / CLAIM}: the radius is the claim's own 'eps', not one of the settings")
    if not said.get(CARD, b"").decode(errors="ignore").strip():
        raise BadInput(f"{folder} has no {CARD}, or an empty one; it says who, what, and how settings were chosen")
    if not _inside(folder, claim.file.partition(":")[0]):
        raise BadInput(f"{folder / CLAIM} names the file '{claim.file}', which is not in {folder}")
    return Submission(folder=folder, claim=claim, said=said)


def _inside(folder: Path, name: str) -> bool:
    """Whether a folder has a file of that name itself: what a link leads to may not be the sender's to publish."""
    try:
        place = (folder / name).resolve()
        return place.parent == folder.resolve() and place.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False

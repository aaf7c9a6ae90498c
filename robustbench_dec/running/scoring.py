"""Score: somebody's adversarial images, judged by one forward pass. Nothing of theirs is executed.

A file of images (safetensors, tensor "images" (N, C, H, W) of floats in [0, 1]) holds what an attack made of the first
N test images, in their order. Images outside the ball or the box are refused, not put back: who submits them says that
they are inside. A claim in the file (tensor "right" (N,), which of them the network still gets right) must be what the
forward pass says. As for every attack on single images, an image that is wrong without attack stays wrong.
"""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from robustbench_dec import shelf
from robustbench_dec.attack import NORMS, TOLERANCE, as_floats, distances, largest_radius, put_back, slack
from robustbench_dec.attacking.find_attack import label
from robustbench_dec.attacking.scene import Judge
from robustbench_dec.errors import BadInput
from robustbench_dec.running.cells import BATCH_SIZE
from robustbench_dec.store import provenance
from robustbench_dec.store.bits import pack
from robustbench_dec.store.records import SCHEMA, CellRecord
from robustbench_dec.store.results import CellKey, Results
from robustbench_dec.store.zoo import Entry
from robustbench_dec.tensors import FLOATS, read


@dataclass(frozen=True)
class Images:
    """A file of adversarial images, and in which ball around how many test images they are said to lie."""

    path: Path
    norm: str
    eps: float
    n_examples: int

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise BadInput(f"no norm '{self.norm}'; there are: {', '.join(NORMS)}")
        if not 0 <= self.eps < float("inf"):
            raise BadInput(f"a radius is a number from 0 on, not {self.eps:g}")
        if self.norm == "L0" and self.eps != int(self.eps):
            raise BadInput(f"an L0 radius is a whole number of pixels, not {self.eps:g}")
        if self.n_examples < 1:
            raise BadInput(f"at least 1 image is scored, not {self.n_examples}")

    def read(self) -> tuple[Tensor, Tensor | None, str]:
        """The images, what the file claims of them, and the sha256 of the very bytes that were read."""
        if self.path.suffix != ".safetensors" or not self.path.is_file():
            what = "is no .safetensors file" if self.path.exists() else "is not there"
            raise BadInput(f"{self.path} {what}; adversarial images are a .safetensors file with one tensor 'images'")
        shelf.check_name(self.path)
        tensors, data = read(self.path)
        images, claimed = tensors.pop("images", None), tensors.pop("right", None)
        if images is None or images.dtype not in FLOATS or tensors:
            there = ", ".join(sorted(tensors)) or "no floats of that name"
            raise BadInput(
                f"{self.path} should hold a tensor 'images' of floats in [0, 1], and may hold 'right'; it has {there}"
            )
        if claimed is not None and claimed.dtype != torch.bool:
            raise BadInput(f"the tensor 'right' of {self.path} holds booleans, one for each image, not {claimed.dtype}")
        return images.float(), claimed, hashlib.sha256(data).hexdigest()


def score(submitted: Images, entry: Entry, results: Results, *, device: str = "cpu") -> CellRecord:
    """The cell of the images, written to the network's home in `results`; refused if anything is not as it is said."""
    began = time.perf_counter()
    record, problem = entry.record, entry.problem()
    if record.classifier is None:
        raise BadInput(f"{entry.name} is no classifier of images; take a run of one")
    images, claimed, sha256 = submitted.read()
    clean = as_floats(problem.images.test_images[: submitted.n_examples])  # or all that there are, if these are fewer
    labels = problem.images.test_labels[: submitted.n_examples]
    check(submitted, images, clean, record.dataset)
    images = put_back(clean, images, submitted.eps, submitted.norm)  # without what only rounding explains
    judge = Judge(entry.model(device))
    right = torch.cat([_right(judge, part, labels, device) for part in (clean, images)]).view(2, -1)
    robust = right.all(0)
    if claimed is not None:
        _hold(claimed, robust, f"the tensor 'right' of {submitted.path}")
    home = results.run(record.id)
    name = label(str(submitted.path))
    settings = {"eps": submitted.eps, "norm": submitted.norm, "images_sha256": sha256}
    cell = home.cell(CellKey.of("images", submitted.eps, [SCHEMA, name, settings, len(labels)]))
    known = cell.usable() if home.exists else None
    if known is not None:  # of the same images: it must say the same
        _hold(known.right, robust, f"the cell {cell.stem} of {home.folder}")
        return known
    home.adopt(record)
    scored = CellRecord(
        schema_version=SCHEMA,
        run_id=record.id,
        dataset=record.dataset,
        method=record.method,
        seed=record.seed,
        attack=name,
        submitted="user",
        source_sha256=sha256,
        settings=settings,
        norm=submitted.norm,
        eps=submitted.eps,
        universal=False,
        part="test",
        n_examples=len(labels),
        batch_size=BATCH_SIZE,
        n_correct=int(robust.sum()),
        rarest_class=labels.bincount(minlength=len(record.classifier.classes)).min().item() / len(labels),
        clean_acc=right[0].double().mean().item(),
        robust_acc=robust.double().mean().item(),
        bits=pack(robust),
        clean_bits=pack(right[0]),
        attack_seed=0,
        forwards=0,
        backwards=0,
        zero_gradients=None,
        flags=(),
        checkpoint_sha256=record.checkpoint_sha256,
        perturbation_sha256=None,
        **provenance.stamp(time.perf_counter() - began),
    )
    with cell.claim():
        cell.write(scored, None)
    return scored


def check(submitted: Images, images: Tensor, clean: Tensor, dataset: str) -> None:
    """Refuse another number or shape of images, and any that leaves the box or the ball."""
    if images.shape != clean.shape:
        raise BadInput(
            f"{submitted.path} has images {tuple(images.shape)}, but the first {len(clean)} test images of "
            f"{dataset} are {tuple(clean.shape)}; --n-examples says how many there should be"
        )
    if not images.isfinite().all():
        raise BadInput(
            f"{submitted.path} has NaN or infinity, first in image {_first(~images.isfinite().flatten(1).all(1))}"
        )
    outside = ((images < -TOLERANCE) | (images > 1 + TOLERANCE)).flatten(1).any(1)
    if outside.any():
        raise BadInput(
            f"{int(outside.sum())} of the {len(images)} images leave [0, 1], first image {_first(outside)}; they would "
            "have to be clipped before they are submitted"
        )
    largest = largest_radius(submitted.norm, tuple(clean.shape[1:]))
    if submitted.eps > largest:
        raise BadInput(f"no two such images are {submitted.eps:g} apart in {submitted.norm}; at most {largest:g}")
    far = distances(images - clean, submitted.norm)
    if (far > submitted.eps + slack(submitted.eps)).any():
        outside = far > submitted.eps + slack(submitted.eps)
        raise BadInput(
            f"{int(outside.sum())} of the {len(images)} images are outside the {submitted.norm} ball of radius "
            f"{submitted.eps:g}: the farthest, image {int(far.argmax())}, is {far.max().item():.6g} away"
        )


def _right(judge: Judge, images: Tensor, labels: Tensor, device: str) -> Tensor:
    parts = zip(images.clamp(0, 1).split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True)
    return torch.cat([judge.right(part.to(device), mine.to(device)).cpu() for part, mine in parts])


def _hold(claimed: Tensor, found: Tensor, what: str) -> None:
    """Refuse a claim that the forward pass does not bear out."""
    if claimed.shape != found.shape:
        raise BadInput(f"{what} says something of {tuple(claimed.shape)} images, but there are {len(found)}")
    differ = claimed.bool() != found
    if differ.any():
        raise BadInput(
            f"{what} claims {int(claimed.bool().sum())} images right, but the network gets {int(found.sum())} right; "
            f"they differ in {int(differ.sum())}, first in image {_first(differ)}"
        )


def _first(where: Tensor) -> int:
    return int(where.nonzero()[0, 0])

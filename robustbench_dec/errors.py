"""The one exception that a user is meant to read, and how it tells an error in a user's own file."""

import traceback
from pathlib import Path

USERS = "robustbench_dec_user_"
"""How the modules of users' own files are called."""

PLUGGED = (USERS, "trainers.", "attacks.", "architectures.", "robustbench_dec.shelves.")
"""The modules whose authors want to read file and line in the sentence."""


class BadInput(Exception):
    """Something the user gave cannot be used. The message is one sentence: what was expected, what came, what would do.

    The command line prints it and exits with code 2; nothing that was on disk before is touched.
    """


class Diverged(BadInput):
    """Training left the finite numbers; the message names the round and the step sizes."""


def details(error: BaseException) -> str:
    """The traceback of a refusal, with what other processes told of theirs."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__
    theirs = [str(getattr(each, "details", "")) for each in chain]
    return "".join([*traceback.format_exception(error), *(f"In its own process:\n{text}" for text in theirs if text)])


LONGEST = 2000
"""Characters of what somebody's code says that are repeated."""


def printable(text: str) -> str:
    """A text as it may reach a terminal: what is neither a line's end nor to be seen is spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def raised(error: BaseException) -> str:
    """What a part's code raised, and in which line of its file."""
    try:
        said = str(error)
    except Exception:  # it is its author's
        said = ""
    said = printable(said if len(said) <= LONGEST else f"{said[:LONGEST]} ...")
    what = f"{type(error).__name__}: {said}".rstrip(": ")
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(PLUGGED)
    ]
    return f"{what} ({lines[-1]})" if lines and not isinstance(error, SyntaxError) else what

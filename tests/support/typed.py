"""Commands as a user types them, in this process."""

from pathlib import Path

from typer.testing import CliRunner

from robustbench_dec.commands.app import app


def run(*words: str | Path) -> str:
    """A command's output; its refusal is raised as BadInput."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done.output

"""What a command prints: lines for people, or with --json one document for programs."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def tell(lines: Iterable[str], document: object, as_json: bool) -> None:
    """Print the lines as they come, or the document; progress and remarks go to standard error in both cases."""
    if as_json:
        typer.echo(json.dumps(_finite(document), indent=1, allow_nan=False))
    else:
        for line in lines:
            typer.echo(line)


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value

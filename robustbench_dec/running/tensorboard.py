"""The curve of a training as it grows, for TensorBoard: results/tensorboard/<id>/, one scalar per measured column.

The costs are scalars too. It is a copy for the eye: nothing reads it again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robustbench_dec.errors import BadInput

Shown = Callable[[str, Sequence[Mapping[str, Any]]], None]
"""Who is given a run's id and the rows of its curve whenever there is a new one."""


class TensorBoard:
    """Writes the rows that are new since it was last called; a curve that begins again replaces what was there."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._writers: dict[str, Any] = {}
        self._rows: dict[str, int] = {}
        _writer_class()

    def __call__(self, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if run_id not in self._writers:
            first = int(rows[0]["round"])
            self._writers[run_id] = _writer_class()(self._home / run_id, purge_step=first)
        for row in rows[self._rows.get(run_id, 0) :]:
            for name, value in row.items():
                if name != "round" and isinstance(value, int | float) and math.isfinite(value):
                    self._writers[run_id].add_scalar(name, value, int(row["round"]))
        self._rows[run_id] = len(rows)
        self._writers[run_id].flush()


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise BadInput(
            "--log tensorboard needs the package tensorboard, which is not installed; "
            "pip install 'robustbench-dec[tensorboard]' brings it"
        ) from error
    return SummaryWriter

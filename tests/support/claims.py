"""Folders as people submit them."""

import json
from pathlib import Path
from typing import Any


def claim(folder: Path, **said: Any) -> Path:
    """A submission's folder; values that are None are left out."""
    folder.mkdir(exist_ok=True)
    (folder / "card.md").write_text("Somebody; one step along the sign; settings by hand on training images.\n")
    lines = [f"{name} = {json.dumps(value)}" for name, value in said.items() if value is not None]
    (folder / "claim.toml").write_text("\n".join(lines) + "\n")
    return folder

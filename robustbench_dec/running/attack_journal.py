"""Batches: what an unfinished attack has done so far, in one file that is replaced after every batch."""

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from robustbench_dec import bars as progress_bars
from robustbench_dec import files
from robustbench_dec.attack import Look
from robustbench_dec.attacking.evaluate import Part
from robustbench_dec.store.bits import pack, unpack


class Kept(MutableMapping[int, Part]):
    """The finished batches by number; those of a file that was written for another `key` are forgotten."""

    def __init__(self, path: Path, key: object) -> None:
        self.path, self.key = path, files.digest(key)
        self._parts: dict[int, Part] = {}
        try:
            content = files.read_sealed(path) if path.is_file() else {}
        except files.Damaged as error:
            progress_bars.say(f"{error.fact}; its batches are attacked again")
            content = {}
        if content.get("key") == self.key:
            self._parts = {int(number): _read(part) for number, part in content["batches"].items()}

    def __getitem__(self, number: int) -> Part:
        return self._parts[number]

    def __setitem__(self, number: int, part: Part) -> None:
        self._parts[number] = part
        self._write()

    def __delitem__(self, number: int) -> None:
        del self._parts[number]
        self._write()

    def __iter__(self) -> Iterator[int]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def _write(self) -> None:
        batches = {str(number): _written(part) for number, part in self._parts.items()}
        files.write_sealed(self.path, {"key": self.key, "batches": batches})


def _written(part: Part) -> dict[str, Any]:
    bits = {"images": len(part.clean), "clean": pack(part.clean), "robust": pack(part.robust)}
    return bits | {"counts": list(part[2:6]), "flags": list(part.flags), "trace": [list(look) for look in part.trace]}


def _read(content: dict[str, Any]) -> Part:
    clean, robust = (unpack(content[name], content["images"]) for name in ("clean", "robust"))
    forwards, backwards, gradients, zeros = content["counts"]
    trace = tuple(Look(*look) for look in content.get("trace", ()))
    return Part(clean, robust, forwards, backwards, gradients, zeros, tuple(content["flags"]), trace)

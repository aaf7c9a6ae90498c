"""A user's attack from a file, seen from the harness: the file is read, and its code runs, in processes of its own.

What it prints, raises, patches or leaves behind, and how it exits, stays there; a time limit and a limit of memory end
it. The harness sends the network and the images and gets images, which it checks like those of any attack.
"""

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

import robustbench_dec
from robustbench_dec import files
from robustbench_dec.architecture import NormalisedNetwork, flat_parameters
from robustbench_dec.attack import Attack, device_of, eval_mode
from robustbench_dec.attacking import wire
from robustbench_dec.attacking.evaluate import Limits, Played
from robustbench_dec.attacking.model_use import copied, digest
from robustbench_dec.errors import BadInput
from robustbench_dec.parts import Settings, Source

LOOK = 0.05
"""Seconds between two looks at a process that works."""

PRINTED = 1_000_000
"""The most bytes of what an attack prints that are kept."""

READING = Limits(seconds=120.0)
"""For reading a user's file and building its attack."""


ASKED = 1_000_000_000
"""The most bytes that an attack may have a network asked that stays here."""


class Raised(BadInput):
    """A user's code failed in its process; `details` has its traceback and the end of what it printed."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details


class Nursery:
    """The process that has torch loaded and starts the others; one for this process, for as long as it lives."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        package = str(Path(robustbench_dec.__file__).resolve().parents[1])
        path = os.pathsep.join(dict.fromkeys([package, *(entry for entry in sys.path if entry)]))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "robustbench_dec.attacking.attack_worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the harness
        )
        theirs.close()
        self.control, self.owner, self.turn = ours, os.getpid(), threading.Lock()
        self._answers = ours.makefile("rb")
        atexit.register(self.close)

    def start(self, connection: int, printed: int) -> int:
        """A new process at the other end of a socket; its number."""
        with self.turn:
            try:
                socket.send_fds(self.control, [b'{"begin": true}'], [connection, printed])
            except BrokenPipeError as error:
                raise self._gone() from error
            return int(self._answer()["pid"])

    def end(self, pid: int, patience: float) -> int:
        """End a process, at the latest after so many seconds; its exit code, negative for a signal."""
        with self.turn:
            self.control.sendall(json.dumps({"end": pid, "patience": patience}).encode())
            return int(self._answer()["status"])

    def close(self) -> None:
        """End it, and with it all that it started."""
        if os.getpid() == self.owner:
            self._answers.close()
            self.control.close()
            self.process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._gone()
        return dict(json.loads(line))

    def _gone(self) -> BadInput:
        nursery.cache_clear()
        return BadInput("no process for an attack can be started here; the lines above this one tell why")


@functools.cache
def nursery(owner: int) -> Nursery:
    """The one of this process; a process that was forked gets its own."""
    return Nursery()


class Room:
    """One process with one user's attack in it."""

    def __init__(self, name: str, sha256: str | None, limits: Limits) -> None:
        self.limits = limits
        self.nursery = nursery(os.getpid())
        self.printed = tempfile.NamedTemporaryFile(prefix="robustbench-dec-")  # noqa: SIM115 (closed with the room)
        writing = os.open(self.printed.name, os.O_WRONLY | os.O_APPEND)
        self.socket, theirs = socket.socketpair()
        try:
            self.pid = self.nursery.start(theirs.fileno(), writing)
        finally:
            theirs.close()
            os.close(writing)
        self.status: int | None = None
        self.about = self.ask({"do": "find", "name": name, "path": sys.path, "sha256": sha256}).words

    def close(self, patience: float = 0.0) -> None:
        """End it."""
        if self.status is None:
            self.socket.close()
            self.status = self.nursery.end(self.pid, patience)
            self.printed.close()

    def ask(
        self, words: Mapping[str, object], *, most: int = 0, copy: nn.Module | None = None, **tensors: Tensor
    ) -> wire.Message:
        """Tell it something and have its answer; passes of a network that stays here are made on `copy`."""
        self._began = time.monotonic()
        try:
            self._send(words, tensors)
            answer = wire.receive(self.socket, most, self._watch)
            while "ask" in answer.words and copy is not None:
                self._send(*_passed(copy, answer))
                answer = wire.receive(self.socket, most, self._watch)
        except wire.Closed:
            raise self._over(None) from None
        except TimeoutError:
            raise self._over("did not take what it was sent, and was ended") from None
        except BadInput:
            self.close()
            raise
        if "error" in answer.words:
            sentence, details = str(answer.words["error"]), str(answer.words.get("traceback", "")) + self._tail()
            raise Raised(sentence if answer.words.get("expected") else f"it raised {sentence}", details)
        return answer

    def _send(self, words: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
        self.socket.settimeout(self.limits.seconds)
        wire.send(self.socket, words, **tensors)
        self.socket.settimeout(LOOK)

    def _watch(self) -> None:
        seconds, gigabytes = self.limits.seconds, self.limits.gigabytes
        if seconds is not None and time.monotonic() - self._began > seconds:
            raise self._over(f"took more than {seconds:g} seconds (--max-seconds), and was ended")
        if gigabytes is not None and _resident(self.pid) > gigabytes * 1e9:
            raise self._over(f"took more than {gigabytes:g} GB of memory (--max-memory), and was ended")
        if os.fstat(self.printed.fileno()).st_size > PRINTED:
            os.ftruncate(self.printed.fileno(), 0)

    def _over(self, what: str | None) -> Raised:
        """The end of this process, by us or, without a word, by itself."""
        details = self._tail()
        self.close(patience=0.0 if what else 2.0)
        status = self.status or 0
        how = f"with exit code {status}" if status >= 0 else f"by signal {-status}"
        return Raised(f"it {what or f'ended its own process {how}, without an answer'}", details)

    def _tail(self) -> str:
        """The end of what was printed."""
        size = os.fstat(self.printed.fileno()).st_size
        said = os.pread(self.printed.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").strip()
        return f"\nWhat it printed last:\n{said}\n" if said else ""


@contextlib.contextmanager
def room(name: str, sha256: str | None, limits: Limits) -> Iterator[Room]:
    """A process in which the user's file was read; it ends with the block."""
    opened = Room(name, sha256, limits)
    try:
        yield opened
    finally:
        opened.close()


@dataclass(frozen=True)
class FromFile(Attack):
    """An attack in a user's file. Its class stays in its own process; this one has its name, its kind and settings."""

    file: ClassVar[str]
    about: ClassVar[Mapping[str, Any]]
    made: ClassVar[dict[str, "FromFile"]]

    given: Mapping[str, Any]
    described: Mapping[str, Any]
    """What its process tells of it: the settings as they are used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", self.described["norm"])
        super().__post_init__()

    @classmethod
    def make(cls, settings: Mapping[str, object]) -> Self:
        """Built once in a process of its own, which refuses what cannot be."""
        known = cls.about["settings"]
        for name in settings:
            if name not in known:
                raise BadInput(f"{cls.__name__} has no setting '{name}'; there are: {', '.join(known)}")
        try:
            key = json.dumps(settings, sort_keys=True)
        except TypeError as error:
            raise BadInput(f"settings of {cls.file} are plain values: numbers, words, lists; {error}") from error
        if key not in cls.made:
            with room(cls.file, cls.source.sha256, READING) as opened:
                described = opened.ask({"do": "make", "settings": settings}).words
            cls.made[key] = cls(eps=described["eps"], given=json.loads(key), described=described)
        return cls.made[key]  # type: ignore[return-value]

    def settings(self) -> Settings:
        return dict(self.described["settings"])

    def recipe(self) -> Settings:
        return dict(self.given)

    def remarks(self) -> tuple[str, ...]:
        return tuple(self.described["remarks"])

    @contextlib.contextmanager
    def apart(self, network: nn.Module, classes: int, shape: tuple[int, ...], limits: Limits) -> Iterator["Apart"]:
        """Its process, with a copy of the network."""
        there = Apart(self, network, classes, shape, limits)
        try:
            yield there
        finally:
            there.room.close()


class Apart:
    """A user's attack in its process, asked from here; one whose process has ended gets another for the next batch."""

    def __init__(
        self, attack: FromFile, network: nn.Module, classes: int, shape: tuple[int, ...], limits: Limits
    ) -> None:
        self.attack, self.network, self.limits = attack, network, limits
        self.about = {"classes": classes, "shape": shape, "threads": torch.get_num_threads()}
        self.room = self._opened()

    def _opened(self) -> Room:
        opened = Room(self.attack.file, self.attack.source.sha256, self.limits)
        try:
            opened.ask({"do": "make", "settings": self.attack.given})
            network = self.network
            # One from a user's own file stays here: its code is the network author's, not the attack's to run.
            card = None
            if isinstance(network, NormalisedNetwork) and network.architecture.source_sha256 is None:
                card = network.architecture.as_json()
            x = torch.zeros(0) if card is None else flat_parameters(network)
            sha256 = opened.ask({"do": "network", "card": card, **self.about}, x=x).words["sha256"]
            self.stays = card is None or sha256 != digest(network)  # or it is not what its card says
            if self.stays and card is not None:
                opened.ask({"do": "network", "card": None, **self.about}, x=x)
        except BaseException:
            opened.close()
            raise
        return opened

    def fit(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played:
        return self._play("fit", images, labels, seed, most)

    def perturb(self, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played:
        return self._play("perturb", images, labels, seed, most)

    def _play(self, method: str, images: Tensor, labels: Tensor, seed: int, most: int | None) -> Played:
        if self.room.status is not None:
            self.room = self._opened()
        words = {"do": method, "seed": seed, "most": most, "device": str(device_of(self.network))}
        longest = 8 * images[0].numel() * (1 if method == "fit" else len(images))
        copy = copied(self.network) if self.stays else None
        answer = self.room.ask(words, most=ASKED if self.stays else longest, copy=copy, images=images, labels=labels)
        try:
            forwards, backwards, gradients, zeros = (int(count) for count in answer.words["counts"])
            flags = frozenset(str(flag) for flag in answer.words["flags"])
            return Played(answer.tensors["result"], (forwards, backwards, gradients, zeros), flags)
        except (KeyError, TypeError, ValueError) as error:
            raise Raised("it answered with something that is no answer") from error


def attack_in_file(name: str) -> type[FromFile]:
    """The attack in a user's file, path/to/mine.py:Mine, of which only its process reads the code."""
    path, extension, wanted = name.partition(".py")
    file = Path(path + extension)
    if not file.is_file():
        raise BadInput(f"no file {file} for the attack '{name}'; give it as path/to/file.py:Class")
    return _described(f"{file.resolve()}{wanted}", files.sha256(file))


@functools.lru_cache(maxsize=64)
def _described(name: str, sha256: str) -> type[FromFile]:
    with room(name, sha256, READING) as opened:
        about = opened.about
    kind = {"norm": about["norm"], "universal": about["universal"], "one_step": about["one_step"]}
    body = {**kind, "file": name, "about": about, "made": {}, "__doc__": about["doc"]}
    body |= {"title": about["title"]} if about["title"] else {}
    cls = cast(type[FromFile], type(str(about["class"]), (FromFile,), body))
    cls.source = Source(Path(name.partition(".py")[0]).name, str(about["class"]), sha256)
    return cls


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where that cannot be told."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _passed(copy: nn.Module, asked: wire.Message) -> tuple[dict[str, object], dict[str, Tensor]]:
    """What a network that stays here answers, or the gradient of what it answers."""
    device = device_of(copy)
    try:
        with eval_mode(copy), torch.enable_grad():
            images = asked.tensors["images"].to(device).requires_grad_(asked.words["ask"] == "gradient")
            result = copy(images)
            if images.requires_grad:
                (result,) = torch.autograd.grad(result, images, asked.tensors["gradient"].to(device))
        return {}, {"result": result}
    except Exception as error:  # what the attack sent, or the network
        return {"error": f"{type(error).__name__}: {error}"}, {}

"""A user's attack from a file, seen from the harness: the file is read, and its code runs, in processes of its own.

What it prints, raises, patches or leaves behind, and how it exits, stays there; a time limit and a limit of memory end
it. The harness sends the network and the images and gets images, which it checks like those of any attack.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

import robustbench_dec
from robustbench_dec import files, shelf
from robustbench_dec.architecture import NormalisedNetwork, flat_parameters
from robustbench_dec.attack import NORMS, OWN_FLAGS, TOO_MANY, Attack, OutOfPasses, device_of, eval_mode
from robustbench_dec.attacking import processes, wire
from robustbench_dec.attacking.evaluate import Limits, Played
from robustbench_dec.attacking.model_use import copied, digest, digest_of
from robustbench_dec.attacking.witness import Seen, kept
from robustbench_dec.errors import LONGEST, BadInput, printable, raised
from robustbench_dec.parts import Settings, Source

LOOK = 0.05
"""Seconds between two looks at a process that works."""

PRINTED = 1_000_000
"""The most bytes of what an attack prints that are kept."""

READING = Limits(seconds=120.0)
"""For reading a user's file and building its attack."""

UNHEARD = 60.0
"""Seconds that the process which starts the others may take to end one: an attack could have stopped it."""

ASKED = 1_000_000_000
"""The most bytes that an attack may have a network asked that stays here."""

AT_ONCE = 2000
"""Images that such a network is asked at once: what it needs is this process's memory."""

MOST = 2**53
"""A process may tell so many passes."""


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
        self.rooms: set[int] = set()
        self._answers = ours.makefile("rb")
        atexit.register(self.close)

    def start(self, connection: int, printed: int) -> int:
        """A new process at the other end of a socket; its number."""
        with self.turn:
            try:
                socket.send_fds(self.control, [b'{"begin": true}'], [connection, printed])
                pid = int(self._answer()["pid"])
            except OSError as error:
                raise self._gone() from error
        self.rooms.add(pid)
        return pid

    def end(self, pid: int, patience: float) -> int:
        """End a process, at the latest after so many seconds; its exit code, negative for a signal.

        If this one is gone itself (an attack may have killed it), the process has ended with it, or does so now.
        """
        self.rooms.discard(pid)
        with self.turn:
            try:
                self.control.settimeout(patience + UNHEARD)
                self.control.sendall(json.dumps({"end": pid, "patience": patience}).encode())
                return int(self._answer()["status"])
            except (OSError, ValueError):
                self._gone()
            finally:
                self.control.settimeout(None)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        return -signal.SIGKILL

    def memory(self, pid: int) -> int:
        """Bytes that a process holds with all that it has started, those that it has let go of included."""
        let_go = processes.children(self.process.pid) - self.rooms
        return sum(processes.resident(each) for each in processes.family({pid, *let_go}))

    def close(self) -> None:
        """End it, and with it all that it started."""
        if os.getpid() == self.owner:
            self._answers.close()
            self.control.close()
            self.process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise ConnectionResetError
        return dict(json.loads(line))

    def _gone(self) -> BadInput:
        nursery.cache_clear()
        self.process.kill()  # it may only be stopped
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
        self, words: Mapping[str, object], *, most: int = 0, hosted: "Hosted | None" = None, **tensors: Tensor
    ) -> wire.Message:
        """Tell it something and have its answer; passes of a network that stays here are made by `hosted`."""
        self._began = time.monotonic()
        try:
            self._send(words, tensors)
            answer = wire.receive(self.socket, most, self._watch)
            while "ask" in answer.words and hosted is not None:
                self._send(*hosted.passed(answer, self._watch))
                answer = wire.receive(self.socket, most, self._watch)
        except wire.Closed:
            raise self._over(None) from None
        except TimeoutError:
            raise self._over("did not take what it was sent, and was ended") from None
        except BadInput:
            self.close()
            raise
        if "error" in answer.words:
            sentence = printable(str(answer.words["error"])[:LONGEST])
            details = str(answer.words.get("traceback", "")) + self._tail()
            raise Raised(sentence if answer.words.get("expected") is True else f"it raised {sentence}", details)
        return answer

    def _send(self, words: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
        self.socket.settimeout(self.limits.seconds)
        wire.send(self.socket, words, **tensors)
        self.socket.settimeout(LOOK)

    def _watch(self) -> None:
        seconds, gigabytes = self.limits.seconds, self.limits.gigabytes
        if seconds is not None and time.monotonic() - self._began > seconds:
            raise self._over(f"took more than {seconds:g} seconds (--max-seconds), and was ended")
        if gigabytes is not None and self.nursery.memory(self.pid) > gigabytes * 1e9:
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
            try:
                made = cls(eps=float(described["eps"]), given=json.loads(key), described=_description(described))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise BadInput(f"the process of {cls.__name__} tells nothing of use about it") from error
            made.refuse_if_not(settings)
            cls.made[key] = made
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
            # One from a user's own file stays here: its code is the network author's, not the attack's to run. So does
            # every network whose passes are limited: who has the weights needs to ask nobody.
            card = None
            own = isinstance(network, NormalisedNetwork) and network.architecture.source_sha256 is None
            if isinstance(network, NormalisedNetwork) and own and self.limits.passes is None:
                card = network.architecture.as_json()
            x = torch.zeros(0) if card is None else flat_parameters(network)
            sha256 = opened.ask({"do": "network", "card": card, **self.about}, x=x).words.get("sha256")
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
        hosted = Hosted(copied(self.network), tuple(images.shape[1:]), most) if self.stays else None
        answer = self.room.ask(
            words, most=longest if hosted is None else ASKED, hosted=hosted, images=images, labels=labels
        )
        try:
            result, flags = answer.tensors["result"], _flags(answer.words["flags"])
            if result.dtype not in (torch.float32, torch.float64):
                raise ValueError
            if hosted is None:
                return Played(result, _counts(answer.words["counts"]), flags)
            counts = hosted.forwards, hosted.backwards, hosted.gradients, hosted.zeros
            return Played(result, counts, flags, seen=hosted.seen)
        except (KeyError, TypeError, ValueError) as error:
            raise Raised("it answered with something that is no answer") from error


def _description(answer: Mapping[str, Any]) -> dict[str, Any]:
    described = {"settings": dict(answer["settings"]), "norm": str(answer["norm"])}
    return described | {"remarks": sorted(_flags(answer["remarks"]))}


def _counts(counts: object) -> tuple[int, int, int, int]:
    """Passes as a process tells them: whole numbers that can be, of which nothing more is known here."""
    if not isinstance(counts, list) or not all(type(each) is int and 0 <= each <= MOST for each in counts):
        raise ValueError("no counts")
    forwards, backwards, gradients, zeros = counts
    if zeros > gradients:
        raise ValueError("more zeros than gradients")
    return forwards, backwards, gradients, zeros


def _flags(flags: object) -> frozenset[str]:
    """Flags as a process tells them: those that an attack can have by itself, and no words of its own."""
    if not isinstance(flags, list) or not all(isinstance(each, str) and each in OWN_FLAGS for each in flags):
        raise ValueError("no flags")
    return frozenset(flags)


def attack_in_file(name: str) -> type[FromFile]:
    """The attack in a user's file, path/to/mine.py:Mine, of which only its process reads the code."""
    file, wanted = shelf.file_of(name) or (Path(name), "")
    if not file.is_file():
        raise BadInput(f"no file {file} for the attack '{name}'; give it as path/to/file.py:Class")
    shelf.check_name(file, wanted)
    return _described(f"{file.resolve()}:{wanted}" if wanted else str(file.resolve()), files.sha256(file))


@functools.lru_cache(maxsize=64)
def _described(name: str, sha256: str) -> type[FromFile]:
    with room(name, sha256, READING) as opened:
        about = opened.about
    try:
        known = str(about["class"]).isidentifier() and about["norm"] in NORMS and type(about["universal"]) is bool
        known &= type(about["one_step"]) is bool and all(isinstance(each, str) for each in about["settings"])
    except (KeyError, TypeError):
        known = False
    if not known:
        raise BadInput(f"{name} tells no class, norm ({', '.join(NORMS)}) and settings of an attack")
    kind = {"norm": about["norm"], "universal": about["universal"], "one_step": about["one_step"]}
    body = {**kind, "file": name, "about": about, "made": {}, "__doc__": about.get("doc")}
    body |= {"title": printable(str(about["title"]))} if about.get("title") else {}
    cls = cast(type[FromFile], type(str(about["class"]), (FromFile,), body))
    cls.source = Source(Path(name).name.partition(".py")[0], str(about["class"]), sha256)
    return cls


class Hosted:
    """A copy of a network that stays here. An attack in its process asks for passes; they are counted and limited."""

    def __init__(self, network: nn.Module, shape: tuple[int, ...], most: int | None) -> None:
        self.network, self.device, self.shape, self.most = network, device_of(network), shape, most
        self.forwards = self.backwards = self.gradients = self.zeros = self._asked = 0
        self._known: set[str] = set()  # digests of images whose logits it has told
        self.seen: Seen | None = None

    def passed(self, asked: wire.Message, meanwhile: Callable[[], None]) -> tuple[dict[str, object], dict[str, Tensor]]:
        """What the network answers, or the gradient of what it answers."""
        try:
            images, pull = asked.tensors["images"], asked.tensors.get("gradient")
            self._count(images, pull)
            pulls = [None] * len(images) if pull is None else pull.to(self.device).split(AT_ONCE)
            found = []
            for part, pulled in zip(images.to(self.device).split(AT_ONCE), pulls, strict=False):
                found.append(self._part(part, pulled))
                meanwhile()
            result = torch.cat(found)
            if pull is not None:
                self.gradients += len(images)
                self.zeros += int((result.flatten(1).abs().amax(1) == 0).sum())
            return {}, {"result": result}
        except OutOfPasses as error:
            return {"error": str(error), "over": True}, {}
        except Raised:  # by who looks at the clock
            raise
        except Exception as error:  # what the attack sent, or the network
            return {"error": raised(error)}, {}

    def _count(self, images: Tensor, pull: Tensor | None) -> None:
        if tuple(images.shape[1:]) != self.shape:  # many images in the shape of one would be counted as one
            raise ValueError(f"images have the shape (N, {', '.join(map(str, self.shape))}), not {tuple(images.shape)}")
        sha256 = digest_of([("images", images)])
        forward = 0 if pull is not None and sha256 in self._known else len(images)
        backward = 0 if pull is None else len(images)
        if self.most is not None and self.forwards + self.backwards + forward + backward > self.most:
            raise OutOfPasses(TOO_MANY)
        self.forwards, self.backwards = self.forwards + forward, self.backwards + backward
        self._known.add(sha256)

    def _part(self, images: Tensor, pull: Tensor | None) -> Tensor:
        self._asked += 1
        with eval_mode(self.network), torch.enable_grad():
            images = images.requires_grad_(pull is not None)
            logits: Tensor = self.network(images)
            if kept(self._asked):
                self.seen = Seen.of(images, logits)
            if pull is None:
                return logits
            (gradient,) = torch.autograd.grad(logits, images, pull)
            if kept(self._asked) and self.seen is not None:
                self.seen.goes_back(pull)
                self.seen.went_back(gradient)
            return gradient

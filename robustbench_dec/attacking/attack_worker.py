"""The process of a user's attack. `python -m robustbench_dec.attacking.attack_worker FD` waits, with torch loaded, and
makes a fresh process of itself for every attack that is tried; such a process reads the user's file, gets the network
and the images, and gives images back. It never gets the network that judges.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Set
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from robustbench_dec import parts
from robustbench_dec.architecture import Architecture
from robustbench_dec.attack import Attack, OutOfPasses, as_floats
from robustbench_dec.attacking import find_attack, processes, wire
from robustbench_dec.attacking.evaluate import check_methods, play
from robustbench_dec.attacking.model_use import PassCounter, digest
from robustbench_dec.errors import BadInput, raised

Answer = tuple[Mapping[str, object], dict[str, Tensor]]
"""Words and tensors."""

SUBREAPER, END_WITH_PARENT = 36, 1
"""Of Linux's prctl."""

ORPHANS = 10.0
"""Seconds that are spent on ending what an attack has started, however fast it starts more."""


def waiting(control: socket.socket) -> None:
    """Start and end processes as they are asked for; when the harness is gone, all of them end."""
    children: set[int] = set()
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 4096, 2)
            if not data:
                return
            asked = json.loads(data)
            if "end" in asked:
                status = _end(asked["end"], patience=asked["patience"])
                children.discard(asked["end"])
                _end_orphans(children)
                control.sendall(json.dumps({"status": status}).encode() + b"\n")
                continue
            pid = os.fork()
            if pid == 0:
                control.close()
                _begin(*descriptors)
            children.add(pid)
            for descriptor in descriptors:
                os.close(descriptor)
            control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    finally:
        for pid in children:
            _end(pid)
        _end_orphans(set())


def adopt_orphans() -> None:
    """Have the children of processes that end become ours, on Linux; elsewhere a session of their own lets them go."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Have this process end when the one that made it does, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _end_orphans(children: Set[int]) -> None:
    """End what processes that are gone have left behind, whatever session or group they gave it."""
    me, until = os.getpid(), time.monotonic() + ORPHANS
    while orphans := processes.children(me) - children:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if time.monotonic() > until:
            return


def _end(pid: int, patience: float = 0.0) -> int:
    """End a process with all that it has started; how it ended by itself, if it does so before patience does."""
    until = time.monotonic() + patience
    done, status = os.waitpid(pid, os.WNOHANG)
    while not done and time.monotonic() < until:
        time.sleep(0.01)
        done, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it may not have a group of its own yet
        os.waitpid(pid, 0)
        return -signal.SIGKILL
    return os.waitstatus_to_exitcode(status)


def _begin(connection: int, printed: int) -> NoReturn:
    os.setsid()
    end_with_parent()
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.close(printed)
    try:
        Serving(socket.socket(fileno=connection)).serve()
    except (wire.Closed, KeyboardInterrupt):
        os._exit(0)
    finally:
        os._exit(70)  # without the attack's exit handlers and threads


class Serving:
    """One user's attack, from its file to the images it proposes."""

    def __init__(self, harness: socket.socket) -> None:
        self.harness = harness
        self.cls: type[Attack] | None = None
        self.attack: Attack | None = None
        self.network: tuple[Architecture, Tensor] | None = None
        self.classes = 0

    def serve(self) -> None:
        """Answer until the harness hangs up."""
        while True:
            words, tensors = wire.receive(self.harness)
            try:
                answer, given = getattr(self, f"do_{words.pop('do')}")(tensors, **words)
            except wire.Closed:
                raise
            except BaseException as error:  # whatever a user's code raises, sys.exit too
                expected = isinstance(error, BadInput)
                sentence = str(error) if expected else raised(error)
                details = "".join(traceback.format_exception(error))[-20_000:]
                wire.send(self.harness, {"error": sentence, "expected": expected, "traceback": details})
            else:
                wire.send(self.harness, answer, **given)

    def do_find(self, tensors: dict[str, Tensor], *, name: str, path: list[str], sha256: str | None) -> Answer:
        """Read the user's file."""
        sys.path[:] = path
        cls = find_attack.in_file(name)
        if sha256 is not None and cls.source.sha256 != sha256:
            raise BadInput(f"{name} was edited while it was in use; start again")
        self.cls = cls
        about: dict[str, object] = {"class": cls.__name__, "doc": cls.__doc__, "title": str(getattr(cls, "title", ""))}
        about |= {"norm": str(cls.norm), "universal": bool(cls.universal), "one_step": bool(cls.one_step)}
        return about | {"settings": parts.settable(cls)}, {}

    def do_make(self, tensors: dict[str, Tensor], *, settings: dict[str, object]) -> Answer:
        """Build the attack."""
        assert self.cls is not None
        self.attack = attack = self.cls.make(settings)
        check_methods(attack)
        described = {"settings": attack.settings(), "norm": str(attack.norm), "eps": float(attack.eps)}
        return json.loads(json.dumps(described, default=str)) | {"remarks": list(attack.remarks())}, {}

    def do_network(
        self, tensors: dict[str, Tensor], *, card: dict[str, Any] | None, classes: int, shape: list[int], threads: int
    ) -> Answer:
        """Take the network, as its card and parameters; or learn that its passes are made by the harness."""
        assert self.attack is not None
        torch.set_num_threads(threads)
        self.classes = classes
        self.network = None
        if card is not None:
            self.network = Architecture(**card), tensors["x"]
        self.attack.check(tuple(shape), classes)
        sha256 = digest(self.network[0].build(self.network[1])) if self.network is not None else None
        return {"sha256": sha256}, {}

    def do_fit(self, tensors: dict[str, Tensor], *, seed: int, most: int | None, device: str) -> Answer:
        return self._play("fit", tensors, seed, most, device)

    def do_perturb(self, tensors: dict[str, Tensor], *, seed: int, most: int | None, device: str) -> Answer:
        return self._play("perturb", tensors, seed, most, device)

    def _play(self, method: str, tensors: dict[str, Tensor], seed: int, most: int | None, device: str) -> Answer:
        assert self.attack is not None
        if self.network is None:
            model: nn.Module = Elsewhere(self.harness, device)
        else:
            architecture, x = self.network
            model = architecture.build(x.to(device))
        images, labels = as_floats(tensors["images"]).to(device), tensors["labels"].to(device)
        played = play(self.attack, method, PassCounter(model, self.classes, most), images, labels, seed)
        return {"counts": played.counts, "flags": sorted(played.flags)}, {"result": played.result}


class Elsewhere(nn.Module):
    """A network whose passes, forward and back, are made by the harness, on a copy there."""

    def __init__(self, harness: socket.socket, device: str) -> None:
        super().__init__()
        self._ask = Asking(harness)
        self.nothing = nn.Parameter(torch.zeros(0, device=device))  # tells the device, as other networks do

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = Pass.apply(images, self._ask)
        return logits


class Asking:
    """One question at a time to the harness."""

    def __init__(self, harness: socket.socket) -> None:
        self.harness, self.turn = harness, threading.Lock()

    def __deepcopy__(self, memo: object) -> "Asking":
        return self

    def __call__(self, what: str, **tensors: Tensor) -> Tensor:
        with self.turn:
            wire.send(self.harness, {"ask": what}, **tensors)
            words, answer = wire.receive(self.harness)
        if words.get("over"):
            raise OutOfPasses(words["error"])
        if "error" in words:
            raise RuntimeError(words["error"])
        return answer["result"].to(tensors["images"].device)


class Pass(torch.autograd.Function):
    """h(a) and its gradient g h'(a), asked of the harness; second derivatives are not there."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, ask: Asking) -> Tensor:
        ctx.save_for_backward(images)
        ctx.ask = ask
        return ask("logits", images=images)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (images,) = ctx.saved_tensors
        return ctx.ask("gradient", images=images, gradient=gradient), None


def main() -> None:
    """Wait on the socket whose number is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    waiting(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()

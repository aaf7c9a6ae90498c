"""Ranks: the processes that share the nodes of a run, started by torchrun, and what they send to each other.

Everything that crosses processes goes through here and is counted. Nothing is pickled: rows travel as bytes whose
shapes both sides know, words as JSON.
"""

import contextlib
import datetime
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from robustbench_dec.errors import BadInput
from robustbench_dec.networks.lifelines import Lifelines

TIMEOUT = 600.0
"""Seconds after which a rank that says nothing is given up; the others wait while rank 0 measures and writes."""


class Lost(BadInput):
    """Another rank died or fell silent; the message names both."""


class Ranks:
    """The processes of one run: this one's number, and how many there are."""

    def __init__(self, device: str = "cpu", timeout: float = TIMEOUT) -> None:
        """Meet the other processes, as torchrun's environment variables say."""
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:  # one GPU for every process of this machine
            here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
            if here > gpus:
                raise BadInput(f"{here} processes on a machine need {here} GPUs, this one has {gpus}; start fewer")
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        if self.device.type == "cuda":
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a lost neighbour is then an error, not an abort
            torch.cuda.set_device(self.device)
        self.where = "before the first round"
        self.handed = 0
        """Bytes that this rank has handed to the transport: messages, and its part of every reduction and broadcast."""
        self._stopped = False
        # Before the group: the kernel closes what a dead process had opened first, first.
        self.lifelines = Lifelines(self.rank, self.size)
        backend, patience = "nccl" if self.device.type == "cuda" else "gloo", datetime.timedelta(seconds=timeout)
        try:
            store, _, _ = next(rendezvous("env://", timeout=patience))
            group = dist.PrefixStore("group", store)
            dist.init_process_group(backend, store=group, rank=self.rank, world_size=self.size, timeout=patience)
            self.lifelines.meet(dist.PrefixStore("lifelines", store))
        except (RuntimeError, ValueError) as error:
            raise BadInput(
                f"rank {self.rank} of {self.size} could not meet the others ({_first_line(error)}); start all of them "
                "by torchrun with the same rendezvous settings"
            ) from error

    @staticmethod
    def present() -> bool:
        """Whether this process was started by torchrun."""
        return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()

    @property
    def writes(self) -> bool:
        """Whether this process measures and writes: rank 0."""
        return self.rank == 0

    def rows(self, nodes: int) -> range:
        """The nodes of this rank."""
        return self.split(nodes)[self.rank]

    def split(self, nodes: int) -> list[range]:
        """Who holds which nodes: blocks of neighbouring numbers, their sizes differing by one at most."""
        if self.size > nodes:
            raise BadInput(f"{nodes} nodes can be spread over {nodes} processes at most, not over {self.size}")
        edges = [nodes * r // self.size for r in range(self.size + 1)]
        return [range(edges[r], edges[r + 1]) for r in range(self.size)]

    def swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, int]) -> dict[int, Tensor]:
        """Send bytes to some ranks while receiving so many bytes from some; one message for each."""
        received = {
            rank: torch.empty(size, dtype=torch.uint8, device=self.device) for rank, size in sorted(incoming.items())
        }
        operations = [dist.P2POp(dist.irecv, data, rank) for rank, data in received.items()]
        operations += [dist.P2POp(dist.isend, data, rank) for rank, data in sorted(outgoing.items())]
        partners = [*received, *sorted(outgoing)]
        self.handed += sum(map(_size, outgoing.values()))
        if not operations:
            return {}
        with self._naming(partners):
            works = dist.batch_isend_irecv(operations)
        each = len(works) == len(partners)  # NCCL makes one work of all
        for k, work in enumerate(works):
            with self._naming(partners[k : k + 1] if each else partners):
                work.wait()
        return received

    def add(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place: one all-reduce."""
        self.handed += _size(values)
        with self._naming(self._others):
            dist.all_reduce(values)
        return values

    def tell(self, content: object = None) -> Any:
        """What rank 0 says, on every rank: anything that JSON can hold."""
        text = json.dumps(content).encode() if self.writes else b""
        length = self.add(torch.tensor([len(text)], device=self.device))
        data = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.writes:
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self.device)
            self.handed += _size(data)
        with self._naming(self._others if self.writes else [0]):
            dist.broadcast(data, 0)
        return json.loads(bytes(data.cpu().numpy()))

    def agree_on(self, asked: str) -> None:
        """Refuse to go on unless every rank was asked for the same; rows of two different runs would mix unnoticed."""
        first = self.tell(asked)
        others = int(self.add(torch.tensor([int(asked != first)], device=self.device)))
        if others:
            raise BadInput(
                f"rank 0 was asked for the run {first}, this one for {asked} and {others} of {self.size} for another "
                "than rank 0; start all ranks with the same specification, settings and files"
            )

    def gather(self, Z: Tensor, nodes: int) -> Tensor | None:
        """The whole stack (n, ...) on rank 0, from everyone's rows."""
        blocks, shape = self.split(nodes), Z.shape[1:]
        row = shape.numel() * Z.element_size()
        if not self.writes:
            self.swap({0: as_bytes(Z)}, {})
            return None
        others = self.swap({}, {rank: len(blocks[rank]) * row for rank in range(1, self.size)})
        parts = [from_bytes(data, Z.dtype, (len(blocks[rank]), *shape)) for rank, data in others.items()]
        return torch.cat([Z, *parts])

    def scatter(self, whole: Tensor | None, like: Tensor, nodes: int) -> Tensor:
        """This rank's rows of a stack that rank 0 holds; `like` tells shape and type."""
        blocks, row = self.split(nodes), like.shape[1:].numel() * like.element_size()
        if whole is not None:
            self.swap({rank: as_bytes(whole[list(blocks[rank])]) for rank in range(1, self.size)}, {})
            return whole[list(blocks[0])]
        data = self.swap({}, {0: len(blocks[self.rank]) * row})[0]
        return from_bytes(data, like.dtype, tuple(like.shape))

    @contextlib.contextmanager
    def leaving_politely(self) -> Iterator[None]:
        """When one rank dies, torchrun asks the others to end; they go on until an exchange tells them who died."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGTERM, self._note_stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, former)
            if dist.is_initialized():
                with contextlib.suppress(RuntimeError):
                    dist.destroy_process_group()
            self.lifelines.close()

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _note_stop(self, *_: object) -> None:
        self._stopped = True

    @contextlib.contextmanager
    def _naming(self, partners: list[int]) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._lost(partners, _first_line(error)) from error
        if self._stopped:
            raise self._lost([], "torchrun has asked this rank to end")

    def _lost(self, partners: list[int], reason: str) -> Lost:
        """What ended this rank; by the ranks that are proved dead, or else by those with whom it was speaking."""
        lost = self.lifelines.dead() or sorted(set(partners))  # who is both sent to and received from is there twice
        self.lifelines.leave(lost)
        who = f"rank {lost[0]}" if len(lost) == 1 else f"one of the ranks {', '.join(map(str, lost))}"
        what = f"lost its neighbour, {who}, {self.where}" if lost else f"was asked to end {self.where}"
        return Lost(
            f"rank {self.rank} {what} ({reason}); start the same command again and it goes on from the last save"
        )


def as_bytes(Z: Tensor) -> Tensor:
    """A stack's numbers as they lie in memory."""
    return Z.detach().contiguous().view(-1).view(torch.uint8)


def from_bytes(data: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """What `as_bytes` has been given."""
    return data.view(dtype).view(shape)


def needed(W: np.ndarray, mine: range, theirs: range) -> list[int]:
    """Their rows without which mine cannot be mixed: j with W_ij != 0 for an i of mine, ascending."""
    return [j for j in theirs if (W[list(mine), j] != 0).any()]


def _size(values: Tensor) -> int:
    return values.numel() * values.element_size()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]

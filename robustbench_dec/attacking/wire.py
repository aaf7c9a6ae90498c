"""Messages between the harness and the process of a user's attack: words as JSON and tensors, in one safetensors frame.

Nothing is unpickled on either side, and a frame that is longer than expected is not read.
"""

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import safetensors.torch
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.tensors import UNREADABLE

LENGTH = 8
"""Bytes that tell how long a frame is."""

WORDS = 4_000_000
"""The most bytes of a message beside its tensors."""


class Message(NamedTuple):
    """What one side tells the other."""

    words: dict[str, Any]
    tensors: dict[str, Tensor]


class Closed(Exception):
    """The other side is gone."""


def send(to: socket.socket, words: Mapping[str, object], **tensors: Tensor) -> None:
    """Write one frame."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data = safetensors.torch.save(plain, {"words": json.dumps(words)})
    try:
        to.sendall(len(data).to_bytes(LENGTH, "little"))
        to.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive(source: socket.socket, most: int | None = None, meanwhile: Callable[[], None] | None = None) -> Message:
    """Read one frame of at most so many bytes; `meanwhile` is called whenever the socket's time-out passes."""
    length = int.from_bytes(_bytes(source, LENGTH, meanwhile), "little")
    if most is not None and length > most + WORDS:
        raise BadInput(f"it answered with {length:,} bytes, where at most {most + WORDS:,} were expected")
    data = _bytes(source, length, meanwhile)
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        words = json.loads(header["__metadata__"]["words"])
        return Message(dict(words), safetensors.torch.load(data))
    except UNREADABLE as error:  # a RecursionError is a RuntimeError
        raise BadInput("it answered with bytes that are no message") from error


def _bytes(source: socket.socket, count: int, meanwhile: Callable[[], None] | None) -> bytes:
    data = bytearray(count)
    view, have = memoryview(data), 0
    while have < count:
        try:
            got = source.recv_into(view[have:])
        except TimeoutError:
            if meanwhile is not None:
                meanwhile()
            continue
        except ConnectionResetError:
            got = 0
        if got == 0:
            raise Closed
        have += got
        if meanwhile is not None:
            meanwhile()
    return bytes(data)

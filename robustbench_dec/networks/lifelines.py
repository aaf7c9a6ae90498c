"""Lifelines: which rank died. A failed message tells only with whom one was speaking, or that somebody is gone.

Every rank listens at a port of its own and never answers. The kernel takes connections for it while it lives, however
busy it is, and refuses them as soon as it is dead, however it died. Who leaves because it lost another one notes so in
the ranks' common store before it goes: it is gone too, but was not the first.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Collection

from torch.distributed import Store

PATIENCE = 3.0
"""Seconds until the kernel has surely cleared away a process of which a connection is closed already."""
PAUSE = 0.05
ANSWER = 5.0
"""Seconds within which another machine's kernel answers; silence is no proof of death."""


class Lifelines:
    """This rank's lifeline, and those of the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._own = socket.socket()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._store: Store | None = None
        with contextlib.suppress(OSError):  # without one, ranks are named by the messages that failed
            self._own.bind((_address(), 0))
            self._own.listen(1024)

    def meet(self, store: Store) -> None:
        """Tell the others where this rank listens, and hear where they do; who cannot be reached proves nothing."""
        self._store = store
        store.set(f"lifeline-{self.rank}", json.dumps(self._own.getsockname()))
        for other in self._others:
            host, port = json.loads(store.get(f"lifeline-{other}"))
            if port and _answers((host, port)):
                self._addresses[other] = (host, port)

    def dead(self, patience: float = PATIENCE) -> list[int]:
        """Who died first; nobody if all that are gone have left because of others, whom they blame."""
        given_up = time.monotonic() + patience
        while True:
            cut = [other for other, address in self._addresses.items() if not _answers(address)]
            notes = self._notes()  # after that look: a note is older than the cut that it explains
            dead = [other for other in cut if other not in notes]
            dead = dead or sorted({blamed for note in notes.values() for blamed in note} - {self.rank})
            if dead or time.monotonic() > given_up:
                return dead
            time.sleep(PAUSE)

    def leave(self, blamed: Collection[int]) -> None:
        """Note that this rank goes because these are gone."""
        if self._store is not None:
            with contextlib.suppress(RuntimeError):  # the store may be gone as well
                self._store.set(f"left-{self.rank}", json.dumps(sorted(blamed)))

    def close(self) -> None:
        """Stop listening."""
        self._own.close()

    def _notes(self) -> dict[int, list[int]]:
        notes: dict[int, list[int]] = {}
        if self._store is not None:
            with contextlib.suppress(RuntimeError):
                for other in self._others:
                    if self._store.check([f"left-{other}"]):
                        notes[other] = json.loads(self._store.get(f"left-{other}"))
        return notes


def _address() -> str:
    """This machine's address on the way to the one that all ranks know; nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return str(probe.getsockname()[0])


def _answers(address: tuple[str, int]) -> bool:
    """Whether a process listens there, or cannot be told dead."""
    try:
        socket.create_connection(address, ANSWER).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True

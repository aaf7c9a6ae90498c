"""Ledger: what a run has cost so far. Charged where costs arise (oracle, network, runner), never typed in a trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

CALLS = ("sfo", "sfo_x", "sfo_y")


@dataclass
class Ledger:
    """Counts per node unless the name says otherwise.

    SFO calls, two conventions. Paired: one call is one sample's gradient pair (grad_x, grad_y) at one point, half a
    call is one of the two alone; where a method has no y, its grad_x alone is a call; `sfo`. Split: x- and y-gradients
    are counted apart; `sfo_x`, `sfo_y`. Where only some nodes ask, the calls are the mean over all nodes, rounded down.
    Communication: `rounds` are steps of the trainer; `exchanges` are synchronous swaps with all neighbours (one per
    mix, K per fastmix); `messages` are all directed messages of all nodes; `bytes_per_edge` is the payload over one
    directed edge; `all_reduces` are exact global means, which no gossip provides and which are counted apart;
    `server_bytes` is what a node sends to and gets from the server that makes them.

    A cost is charged when what it bought moves an iterate: x_t carries the cost of reaching x_t. What a trainer buys at
    the end of a step for the next one it buys `ahead`.
    """

    nodes: int
    directed_edges: int
    sfo: int = 0
    sfo_x: int = 0
    sfo_y: int = 0
    rounds: int = 0
    exchanges: int = 0
    messages: int = 0
    bytes_per_edge: int = 0
    all_reduces: int = 0
    server_bytes: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """What is left of calls, in 1 / (2 nodes) of a call."""
    owed: dict[str, int] = field(default_factory=dict)
    """What was bought ahead; calls again in 1 / (2 nodes)."""
    _ahead: bool = field(default=False, init=False, repr=False, compare=False)

    def charge_gradients(
        self, samples: int, *, x: bool = True, y: bool = True, dual: bool = True, busy: int | None = None
    ) -> None:
        """Each of the `busy` nodes (all of them unless told) has differentiated `samples` samples at one point.

        In x, in y or in both; without a `dual` there is no y, and x alone is the whole call.
        """
        each = 2 * samples * (self.nodes if busy is None else busy)
        whole = (x and y) or not dual
        self._charge("sfo", each if whole else each // 2)
        self._charge("sfo_x", each if x else 0)
        self._charge("sfo_y", each if y else 0)

    def charge_inner(self, calls: int) -> None:
        """Each node has differentiated so many single samples in something of their own, a whole call each.

        It is the same work as a gradient in x of a method without y, which is a whole call too.
        """
        self._charge("sfo", 2 * calls * self.nodes)
        self._charge("sfo_y", 2 * calls * self.nodes)

    def charge_exchange(self, payload: int) -> None:
        """Each node has sent `payload` bytes to each of its neighbours."""
        self._charge("exchanges", 1)
        self._charge("messages", self.directed_edges)
        self._charge("bytes_per_edge", payload)

    def charge_mean(self, payload: int) -> None:
        """Each node has sent `payload` bytes to a server and got the mean back."""
        self._charge("all_reduces", 1)
        self._charge("server_bytes", 2 * payload)

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """What is bought in here is for the next move, and charged when the next such block begins."""
        owed, self.owed = self.owed, {}
        for name, amount in owed.items():
            self._charge(name, amount)
        self._ahead = True
        try:
            yield
        finally:
            self._ahead = False

    def _charge(self, name: str, amount: int) -> None:
        if not amount:
            return
        if self._ahead:
            self.owed[name] = self.owed.get(name, 0) + amount
            return
        if name in CALLS:
            amount, rest = divmod(amount + self.parts.pop(name, 0), 2 * self.nodes)
            if rest:
                self.parts[name] = rest
        setattr(self, name, getattr(self, name) + amount)

    @property
    def totals(self) -> dict[str, int]:
        """SFO calls of all nodes together, by both conventions."""
        return {"sfo_total": self.nodes * self.sfo, "sfo_split_total": self.nodes * (self.sfo_x + self.sfo_y)}

    def row(self) -> dict[str, int]:
        """The counts by name, as they stand in records and in the curves."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.type is int}

    def saved(self) -> dict[str, int | dict[str, int]]:
        """All that a resumed run needs."""
        return self.row() | {"parts": dict(self.parts), "owed": dict(self.owed)}

"""Ledger: what a run has cost so far. Charged where costs arise (oracle, network, runner), never typed in a trainer."""

from dataclasses import asdict, dataclass


@dataclass
class Ledger:
    """Counts per node unless the name says otherwise.

    SFO calls, two conventions. Paired: one call is one sample's gradient pair (grad_x, grad_y) at one point, or its
    grad_x alone where a method has no y; `sfo`. Split: x- and y-gradients are counted apart; `sfo_x`, `sfo_y`.
    Communication: `rounds` are steps of the trainer; `exchanges` are synchronous swaps with all neighbours (one per
    mix, K per fastmix); `messages` are all directed messages of all nodes; `bytes_per_edge` is the payload over one
    directed edge; `all_reduces` are exact global means, which no gossip provides and which are counted apart.
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

    def charge_gradients(self, samples: int, *, y: bool) -> None:
        """Each node has differentiated `samples` samples at one point, in x and, if so, in y."""
        self.sfo += samples
        self.sfo_x += samples
        self.sfo_y += samples if y else 0

    def charge_exchange(self, payload: int) -> None:
        """Each node has sent `payload` bytes to each of its neighbours."""
        self.exchanges += 1
        self.messages += self.directed_edges
        self.bytes_per_edge += payload

    @property
    def totals(self) -> dict[str, int]:
        """SFO calls of all nodes together, by both conventions."""
        return {"sfo_total": self.nodes * self.sfo, "sfo_split_total": self.nodes * (self.sfo_x + self.sfo_y)}

    def row(self) -> dict[str, int]:
        """The counts by name, as they stand in run.json and in the curves."""
        return asdict(self)

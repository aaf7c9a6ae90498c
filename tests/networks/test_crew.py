"""What trainers see of a network, and what the runner says to the processes that share its nodes."""

from typing import Any

import numpy as np
import pytest
import torch

from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.crew import Alone, Order
from robustbench_dec.networks.faults import RELIABLE
from robustbench_dec.networks.ranks import Lost


def test_a_network_shows_trainers_nothing_of_the_runner() -> None:
    shown = {name for name in (*dir(Network), *Network.__annotations__) if not name.startswith("_")}
    facts_of_W = {"spectral_rate", "eigenvalues", "lazy_rate"}
    assert shown == facts_of_W | {"nodes", "rows", "ledger", "matrix", "mix", "fastmix", "mean"}


def test_one_process_has_all_and_agrees_with_itself() -> None:
    crew, Z = Alone(), torch.arange(10.0).view(5, 2)
    W = topology.build("ring", 5)
    net = crew.connect(W, RELIABLE, (0, 0))
    assert np.array_equal(net.matrix(), W) and net.rows == range(5)
    assert crew.writes and crew.size == 1
    assert crew.gather(Z) is Z and crew.scatter(Z, Z) is Z
    assert crew.agree(Z[:, 0], True, 3) == (pytest.approx(Z[:, 0]), True) and crew.agree(Z[:, 0], False, 3)[1] is False
    assert crew.total(7) == 7 and crew.announce({"a": 1}) == {"a": 1}
    assert (crew.wire_bytes, crew.handed_bytes) == (0, 0)


class Listener(Alone):
    """One that hears these words and remembers its own."""

    def __init__(self, *heard: Order) -> None:
        super().__init__()
        self.heard = [order.value for order in heard]
        self.said: list[str] = []

    def announce(self, content: Any = None) -> Any:
        if content is None:
            return self.heard.pop(0)
        self.said.append(content)
        return content


def test_the_others_wait_until_they_hear_what_to_do() -> None:
    crew = Listener(Order.WAIT, Order.WAIT, Order.TRAIN, Order.WAIT, Order.DONE)
    assert [crew.await_order(), crew.await_order()] == [Order.TRAIN, Order.DONE] and crew.heard == []
    with pytest.raises(Lost, match="rank 0 ends because rank 0 cannot begin; rank 0 says why"):
        Listener(Order.WAIT, Order.STOP).await_order()


def test_who_cannot_begin_sends_the_others_home() -> None:
    crew = Listener()
    with crew.deciding():
        crew.waiting()
    assert crew.said == [Order.WAIT.value]
    with pytest.raises(OSError), crew.deciding():
        raise OSError
    assert crew.said == [Order.WAIT.value, Order.STOP.value]

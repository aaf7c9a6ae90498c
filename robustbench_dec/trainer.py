"""Trainer: init and step over a frozen state. Subclasses are frozen dataclasses whose fields are the settings."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import Part


class State(Protocol):
    """A state as those see it who know nothing of its trainer: a NamedTuple of stacks, X among them."""

    @property
    def X(self) -> Tensor: ...

    @property
    def _fields(self) -> tuple[str, ...]: ...

    def _asdict(self) -> dict[str, Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Trainer(Part, ABC):
    """One algorithm. It gets gradients from the oracle only and talks through the network only."""

    has_dual: ClassVar[bool] = True
    """Whether the method trains y; if not, it minimises f(., 0)."""

    @abstractmethod
    def init(self, oracle: Oracle, net: Network) -> State:
        """The state before the first round: a NamedTuple of tensors, one row per node: X, Y if it has a dual, ..."""

    @abstractmethod
    def step(self, state: Any, oracle: Oracle, net: Network) -> State:
        """One communication round; never writes into `state`."""


def require(condition: bool, sentence: str) -> None:
    """Refuse a setting with one sentence."""
    if not condition:
        raise BadInput(sentence)


def first_correction(how: str, net: Network, *gradients: Tensor) -> tuple[Tensor, ...]:
    """C0 for each block's first gradients G, averaging to zero over the nodes:

    lemma: mean(G) - G (Lemma A.3; one exact mean for all blocks),  gossip: W G - G (one exchange for all blocks).
    """
    means = net.mean(*gradients) if how == "lemma" else net.mix(*gradients)
    means = means if isinstance(means, tuple) else (means,)
    return tuple(mean - G for mean, G in zip(means, gradients, strict=True))

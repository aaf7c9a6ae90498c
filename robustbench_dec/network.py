"""Network: the only road between nodes, metered: every exchange is charged here, whoever carries it (see networks/).

Rows of a stack are nodes. Gossip is with a doubly stochastic matrix W (n, n), or with what faults leave of it in this
round, W_t; all exchanges of one round see the same W_t. A lost message was sent all the same and is charged. Exact
means are taken to be reliable.
"""

from abc import ABC, abstractmethod
from typing import overload

import numpy as np
from torch import Tensor

from robustbench_dec.errors import BadInput
from robustbench_dec.ledger import Ledger


class Network(ABC):
    """What a trainer may do with the others."""

    nodes: int
    rows: range
    """The nodes that this process holds: row k of its stacks is node rows[k]."""
    spectral_rate: float
    """p = 1 - ||W - J||_2^2 of the reliable W (Assumption 1)."""
    eigenvalues: np.ndarray
    """Of W, or of its symmetric part, without the mean's 1: (n - 1,)."""
    lazy_rate: float
    """p of (I + W) / 2."""
    ledger: Ledger

    @abstractmethod
    def matrix(self) -> np.ndarray:
        """This round's mixing matrix W_t (n, n)."""

    @overload
    def mix(self, stack: Tensor, /) -> Tensor: ...
    @overload
    def mix(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
    def mix(self, *stacks: Tensor) -> Tensor | tuple[Tensor, ...]:
        """W Z for each stack Z, all sent together in one exchange; one stack comes back bare, several as a tuple."""
        return bare(self._charged_exchange(list(stacks)))

    @overload
    def fastmix(self, stack: Tensor, /, *, rounds: int) -> Tensor: ...
    @overload
    def fastmix(self, first: Tensor, second: Tensor, /, *others: Tensor, rounds: int) -> tuple[Tensor, ...]: ...
    def fastmix(self, *stacks: Tensor, rounds: int) -> Tensor | tuple[Tensor, ...]:
        """Chebyshev-accelerated gossip (Liu and Morse 2011; used by DREAM), `rounds` exchanges:

        U_{k+1} = (1 + eta) W U_k - eta U_{k-1},  U_{-1} = U_0,  eta = (1 - sqrt(1 - l^2)) / (1 + sqrt(1 - l^2)),
        with l the second largest singular value of W, also where faults leave W_t of it. Keeps the mean; its weights
        may be negative. With few rounds it may swing, above all where W has negative eigenvalues: then W is replaced
        by (I + W) / 2, which costs no message; where that swings too, so few rounds are refused.
        """
        if rounds < 1:
            raise BadInput(f"fastmix needs at least 1 round of gossip, not {rounds}")
        eta = _momentum(self.spectral_rate)
        lazy = _swings(self.eigenvalues, eta, rounds)
        if lazy:
            halves, eta = (1 + self.eigenvalues) / 2, _momentum(self.lazy_rate)
            if _swings(halves, eta, rounds):
                enough = next((k for k in range(rounds, 1000) if not _swings(halves, eta, k)), None)
                raise BadInput(
                    f"fastmix with {rounds} rounds of gossip would turn the nodes' differences around on this network "
                    f"instead of shrinking them" + (f"; {enough} rounds would do" if enough else "")
                )
        U_prev, U = list(stacks), list(stacks)
        for _ in range(rounds):
            WU = self._charged_exchange(U)
            if lazy:
                WU = [wu.lerp_(u, 0.5) for u, wu in zip(U, WU, strict=True)]
            U_prev, U = U, [wu.lerp_(v, -eta) for wu, v in zip(WU, U_prev, strict=True)]
        return bare(U)

    @overload
    def mean(self, stack: Tensor, /) -> Tensor: ...
    @overload
    def mean(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
    def mean(self, *stacks: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The exact mean row of each stack, in every row; charged as one all-reduce."""
        self.ledger.charge_mean(sum(row_bytes(Z) for Z in stacks))
        return bare(self._means(list(stacks)))

    def _charged_exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        self.ledger.charge_exchange(sum(row_bytes(Z) for Z in stacks))
        return self._exchange(stacks)

    @abstractmethod
    def _exchange(self, stacks: list[Tensor]) -> list[Tensor]:
        """One exchange: this process' rows of W_t Z for each stack Z."""

    @abstractmethod
    def _means(self, stacks: list[Tensor]) -> list[Tensor]:
        """The mean row of each stack over all nodes, in every row of this process."""


SWING = -0.5
"""FastMix's smallest eigenvalue may be this. A tracked method's largest stable step shrinks with 1 + that eigenvalue:
on a ring of 10 with weights 1/3 it is -0.37 for 2 rounds and -0.79 for 1, whose runs on real data go up, not down."""


def _momentum(p: float) -> float:
    """eta, from p = 1 - l^2."""
    root = float(np.sqrt(p))
    return (1 - root) / (1 + root)


def _swings(eigenvalues: np.ndarray, eta: float, rounds: int) -> bool:
    """Whether FastMix turns a difference between nodes around by more than SWING, or does not shrink it."""
    u_prev = u = np.ones_like(eigenvalues)
    for _ in range(rounds):
        u_prev, u = u, (1 + eta) * eigenvalues * u - eta * u_prev
    return bool((u < SWING).any() or (u >= 1).any())


def row_bytes(Z: Tensor) -> int:
    """The size of one node's row."""
    return Z[0].numel() * Z.element_size()


def bare(stacks: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """One stack as it is, several as a tuple."""
    return stacks[0] if len(stacks) == 1 else tuple(stacks)

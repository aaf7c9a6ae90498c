"""DGDA-VR: gradient tracking of a SPIDER estimate, one gossip a step (Zhang, Mancino-Ball, Aybat, Xu 2023).

    X+ = W X - eta_x Dx,   Y+ = P(W Y + eta_y Dy)
    V+ = the full local gradients at (X+, Y+)              in steps q, 2q, ...; V0 too
    V+ = V + g_B(X+, Y+) - g_B(X, Y)                       in the others: one minibatch B at both points
    D+ = W (D + V+ - V)                                    from D = V

W X+ and W Y+ travel with D+, so a step is one exchange; the first step needs none, because the nodes start alike.
m or 2 |B| oracle calls a step. With `restart_batch`, a mega minibatch stands for the full gradients.
The paper's Table 1 calls this method "black".
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, Period, StepSize
from robustbench_dec.tracking import fresh, steps
from robustbench_dec.trainer import Trainer


class State(NamedTuple):
    """Iterates, their mixtures, trackers D and estimates V, one row per node, and the number of steps in every row."""

    X: Tensor
    Y: Tensor
    WX: Tensor
    WY: Tensor
    Dx: Tensor
    Dy: Tensor
    Vx: Tensor
    Vy: Tensor
    T: Tensor


@dataclass(frozen=True)
class DGDAVR(Trainer):
    """Step sizes, the restarts' period q, and the sizes of minibatches (restart_batch None: a node's whole share)."""

    title: ClassVar[str] = "DGDA-VR"

    eta_x: StepSize
    eta_y: StepSize
    q: Period = 32
    batch: BatchSize = 32
    restart_batch: BatchSize | None = None

    def init(self, oracle: Oracle, net: Network) -> State:
        X, Y = oracle.start()  # common to all nodes: W X = X, W Y = Y
        with oracle.ahead():
            Vx, Vy = fresh(oracle, X, Y, self.restart_batch)
        return State(X, Y, X.clone(), Y.clone(), Vx.clone(), Vy.clone(), Vx, Vy, steps(X))

    def step(self, state: State, oracle: Oracle, net: Network) -> State:
        X, Y = state.WX - self.eta_x * state.Dx, oracle.project(state.WY + self.eta_y * state.Dy)
        T = state.T + 1
        with oracle.ahead():
            if int(T[0]) % self.q == 0:
                Vx, Vy = fresh(oracle, X, Y, self.restart_batch)
            else:
                B = oracle.draw(self.batch)
                Bx_prev, By_prev = oracle.grad(state.X, state.Y, B)
                Bx, By = oracle.grad(X, Y, B)
                Vx, Vy = state.Vx + Bx - Bx_prev, state.Vy + By - By_prev
            Dx, Dy, WX, WY = net.mix(state.Dx + Vx - state.Vx, state.Dy + Vy - state.Vy, X, Y)
        return State(X, Y, WX, WY, Dx, Dy, Vx, Vy, T)

"""GT-SRVR: gradient tracking of a SPIDER estimate that starts afresh every q steps (Zhang, Liu, Liu, Zhu, Lu 2021).

    V = W U
    X <- W (X - eta_x Vx),   Y <- P(W (Y + eta_y Vy))      order "atc"; "cta": X <- W X - eta_x Vx, Y <- P(W Y + ...)
    G+ = the full local gradients at the new (X, Y)        in steps q, 2q, ...
    G+ = G + g_B(X, Y) - g_B(X_prev, Y_prev)               in the others: one minibatch B at both points
    U <- V + G+ - G                                        from U = G

q and the size of B are ceil(sqrt(m)) unless given; then a step costs about 3 sqrt(m) oracle calls on average: m, or
2 |B|. With `restart_batch`, a large minibatch stands for the full gradients (GT-SRVRI).
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, Period, StepSize
from robustbench_dec.tracking import Order, Tracked, begin, fresh, move, track
from robustbench_dec.trainer import Trainer


@dataclass(frozen=True)
class GTSRVR(Trainer):
    """Step sizes, the restarts' period q, the sizes of minibatches (None: see above), and the order of mixing."""

    title: ClassVar[str] = "GT-SRVR"

    eta_x: StepSize
    eta_y: StepSize
    q: Period | None = None
    batch: BatchSize | None = None
    restart_batch: BatchSize | None = None
    order: Order = "atc"

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        with oracle.ahead():
            return begin(X, Y, *fresh(oracle, X, Y, self.restart_batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, net.mix, oracle, self.eta_x, self.eta_y, self.order)
        t, root = int(state.T[0]) + 1, ceil(sqrt(oracle.m))
        with oracle.ahead():
            if t % (self.q or root) == 0:
                Gx, Gy = fresh(oracle, X, Y, self.restart_batch)
            else:
                B = oracle.draw(self.batch or root)
                Bx_prev, By_prev = oracle.grad(state.X, state.Y, B)
                Bx, By = oracle.grad(X, Y, B)
                Gx, Gy = Bx.sub_(Bx_prev).add_(state.Gx), By.sub_(By_prev).add_(state.Gy)
        return track(state, X, Y, (Vx, Vy), (Gx, Gy))

"""DM-HSGD: gradient tracking of a STORM estimate (Xian, Huang, Zhang, Huang 2021).

    V = W U
    X <- W (X - eta_x Vx),   Y <- P(W (Y + eta_y Vy))      order "atc"; "cta": X <- W X - eta_x Vx, Y <- P(W Y + ...)
    Gx+ = gx_B(X, Y) + (1 - beta_x) (Gx - gx_B(X_prev, Y_prev)), and Gy+ with beta_y: one minibatch B at both points
    U <- V + G+ - G                                        from U = G

The first G is a plain minibatch of `first_batch` samples; after it, 2 |B| oracle calls a step.
"""

from dataclasses import dataclass
from typing import ClassVar

from robustbench_dec.network import Network
from robustbench_dec.oracle import Oracle
from robustbench_dec.parts import BatchSize, Share, StepSize
from robustbench_dec.tracking import Order, Tracked, begin, fresh, move, track
from robustbench_dec.trainer import Trainer


@dataclass(frozen=True)
class DMHSGD(Trainer):
    """Step sizes, STORM's momenta, the sizes of minibatches (first_batch None: like the others), order of mixing."""

    title: ClassVar[str] = "DM-HSGD"

    eta_x: StepSize
    eta_y: StepSize
    beta_x: Share = 0.01
    beta_y: Share = 0.1
    batch: BatchSize = 64
    first_batch: BatchSize | None = None
    order: Order = "atc"

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        with oracle.ahead():
            return begin(X, Y, *fresh(oracle, X, Y, self.first_batch or self.batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, net.mix, oracle, self.eta_x, self.eta_y, self.order)
        B = oracle.draw(self.batch)
        with oracle.ahead():
            Bx_prev, By_prev = oracle.grad(state.X, state.Y, B)
            Bx, By = oracle.grad(X, Y, B)
        Gx = Bx.sub_(Bx_prev.sub_(state.Gx), alpha=1 - self.beta_x)
        Gy = By.sub_(By_prev.sub_(state.Gy), alpha=1 - self.beta_y)
        return track(state, X, Y, (Vx, Vy), (Gx, Gy))

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
from robustbench_dec.tracking import Order, Tracked, begin, fresh, move
from robustbench_dec.trainer import Trainer, require


@dataclass(frozen=True)
class DMHSGD(Trainer):
    """Step sizes, STORM's momenta, the sizes of minibatches (first_batch None: like the others), order of mixing."""

    title: ClassVar[str] = "DM-HSGD"

    eta_x: float
    eta_y: float
    beta_x: float = 0.01
    beta_y: float = 0.1
    batch: int = 64
    first_batch: int | None = None
    order: Order = "atc"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta_x > 0, f"eta_x must be a positive step size, not {self.eta_x}")
        require(self.eta_y > 0, f"eta_y must be a positive step size, not {self.eta_y}")
        require(0 < self.beta_x <= 1, f"beta_x must be more than 0 and at most 1, not {self.beta_x}")
        require(0 < self.beta_y <= 1, f"beta_y must be more than 0 and at most 1, not {self.beta_y}")
        for size in (self.batch, self.first_batch):
            require(size is None or size >= 1, f"a batch must have at least 1 sample, not {size}")

    def init(self, oracle: Oracle, net: Network) -> Tracked:
        X, Y = oracle.start()
        return begin(X, Y, *fresh(oracle, X, Y, self.first_batch or self.batch))

    def step(self, state: Tracked, oracle: Oracle, net: Network) -> Tracked:
        X, Y, Vx, Vy = move(state, net.mix, oracle, self.eta_x, self.eta_y, self.order)
        B = oracle.draw(self.batch)
        Bx_prev, By_prev = oracle.grad(state.X, state.Y, B)
        Bx, By = oracle.grad(X, Y, B)
        Gx = Bx + (1 - self.beta_x) * (state.Gx - Bx_prev)
        Gy = By + (1 - self.beta_y) * (state.Gy - By_prev)
        return Tracked(X, Y, Vx + Gx - state.Gx, Vy + Gy - state.Gy, Gx, Gy, state.T + 1)

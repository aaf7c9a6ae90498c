"""Every trainer with settings that make its tests fast, problems whose solution is known, and the way there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from robustbench_dec import parts, shelf
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.simulated import SimulatedNetwork
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Problem
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.trainer import Trainer
from trainers.dec_fedtrack import DecFedTrack
from trainers.k_gt import KGT

NOISY = Quadratic(m=8, noise=0.3)
BOXED = Quadratic(instance=4, bound=0.3, coercive=True, amplitude=0.5)
QUIET = Quadratic(instance=4)


def stage(problem: Problem, nodes: int = 10, seed: int = 0, graph: str = "ring") -> tuple[Oracle, Network]:
    net = SimulatedNetwork(topology.build(graph, nodes))
    return Oracle(problem, nodes, seed, net.ledger), net


def states(trainer: Trainer, problem: Problem, rounds: int, **where: Any) -> list[Any]:
    oracle, net = stage(problem, **where)
    path = [trainer.init(oracle, net)]
    for _ in range(rounds):
        path.append(trainer.step(path[-1], oracle, net))
    return path


def dec_fedtrack(K: int = 5, batch: int = 1, **settings: Any) -> DecFedTrack:
    return DecFedTrack(**{"eta_c": 0.1 / K, "eta_d": 0.2 / K, "K": K, "batch": batch} | settings)


def k_gt(K: int = 5, batch: int = 1, **settings: Any) -> KGT:
    return KGT(**{"eta_c": 0.1 / K, "K": K, "batch": batch} | settings)


TRACKING: dict[str, Any] = {"eta_x": 0.1, "eta_y": 0.2}
LOCAL: dict[str, Any] = {"eta_x": 0.02, "eta_y": 0.04, "K": 5}
OWN: dict[str, dict[str, Any]] = {
    "dgda_vr": {"q": 3},
    "dream": TRACKING | {"K": 2, "big_batch": 1},  # its K are rounds of gossip
    "gt_da": {"eta_x": 0.3},
    "gt_srvr": {"q": 3},
}
"""Where the settings that `quick` has for everybody are not quick."""


def quick(name: str) -> Trainer:
    """A trainer of the shelf with settings that make its tests fast, whatever it is."""
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    there = parts.settable(cls)
    K = 5 if "K" in there else 1
    usual = {"eta_c": 0.1 / K, "eta_d": 0.2 / K, "eta_x": 0.1 / K, "eta_y": 0.2 / K, "K": K, "batch": 1}
    return shelf.make(cls, {key: value for key, value in usual.items() if key in there} | OWN.get(name, {}))


QUICK = {name: quick(name) for name in shelf.names("trainer")}


def drawing(name: str, batch: int) -> Trainer:
    """A trainer of QUICK with another batch, if it draws any."""
    trainer = QUICK[name]
    return replace(trainer, **{"batch": batch}) if "batch" in trainer.settings() else trainer


def settle(trainer: Trainer, oracle: Oracle, net: Network, norm: Callable[[Tensor], Tensor], goal: float) -> float:
    """Train until the norm at the mean is below the goal, at most 1500 rounds; the norm."""
    state = trainer.init(oracle, net)
    for t in range(1500):
        state = trainer.step(state, oracle, net)
        if t % 50 == 49 and norm(state.X.mean(0)).norm() <= goal:
            break
    return norm(state.X.mean(0)).norm().item()

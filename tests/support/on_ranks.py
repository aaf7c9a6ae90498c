"""What test_ranks.py starts under torchrun: some rounds of every trainer, the whole stacks to a file, costs to another.

torchrun --nproc-per-node R tests/support/on_ranks.py FOLDER [fault ...]
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist

from robustbench_dec import shelf
from robustbench_dec.network import Network
from robustbench_dec.networks import topology
from robustbench_dec.networks.crew import Crew, OnRanks
from robustbench_dec.networks.faults import Faults
from robustbench_dec.networks.ranks import Ranks
from robustbench_dec.oracle import Oracle
from robustbench_dec.problem import Problem
from robustbench_dec.problems.adversarial import Adversarial
from robustbench_dec.problems.quadratic import Quadratic
from robustbench_dec.problems.robust_logistic import RobustLogistic
from robustbench_dec.problems.universal import Universal
from robustbench_dec.trainer import Trainer

NODES, ROUNDS = 7, 8
W = topology.build("erdos_renyi", NODES, "metropolis", probability=0.4, seed=3)
FAULTS = Faults(loss=0.3, stragglers=0.1, varying=True)


def trainer(name: str, step: float, batch: int) -> Trainer:
    """A trainer of the shelf with small steps."""
    cls = shelf.find("trainer", name, Trainer)  # type: ignore[type-abstract]
    known = {field.name: field.default is MISSING for field in fields(cls) if field.init}
    settings: dict[str, Any] = {field: step for field, required in known.items() if required}
    settings |= {field: batch for field in known if field.endswith("batch")}
    if name == "fed_norm_sgda":
        settings["K"] = (1, 2, 3, 1, 2, 3, 4)  # nodes differ, so a rank must take its own
    return shelf.make(cls, settings)


def cases() -> Iterator[tuple[str, Problem, Trainer, Faults]]:
    """All that is run, by name."""
    quadratic = Quadratic(m=6, noise=0.1, heterogeneity=0.5)
    for name in shelf.names("trainer"):
        yield f"quadratic/{name}", quadratic, trainer(name, 0.01, 3), Faults()
    for name in shelf.names("trainer"):
        yield f"quadratic-faults/{name}", quadratic, trainer(name, 0.01, 3), FAULTS
    logistic = RobustLogistic(dataset="breast_cancer", nodes=NODES)
    yield "logistic/dec_fedtrack", logistic, trainer("dec_fedtrack", 1e-4, 16), Faults()
    for name in ("dec_fedtrack", "k_gt", "sagda"):
        yield f"network/{name}", Universal(), trainer(name, 0.1, 16), Faults()
    yield "adversarial/k_gt", Adversarial(steps=2, rel_alpha=0.6), trainer("k_gt", 0.1, 8), Faults()


def work(net: Network, problem: Problem, method: Trainer) -> Any:
    """The state after ROUNDS rounds."""
    oracle = Oracle(problem, NODES, 1, net.ledger, rows=net.rows)
    assert len(oracle.shards[0]) == len(net.rows)  # a process holds its own samples only
    state = method.init(oracle, net)
    for _ in range(ROUNDS):
        state = method.step(state, oracle, net)
        net.ledger.rounds += 1
    return state


def whole(crew: Crew, state: Any) -> dict[str, torch.Tensor]:
    """The whole stacks of a state, on the process that writes."""
    stacks = {name: crew.gather(Z) for name, Z in state._asdict().items()}
    return {name: Z.contiguous() for name, Z in stacks.items() if Z is not None}


def main(folder: Path) -> None:
    """Run all cases and count what is handed to the transport behind the network's back."""
    handed = 0
    send, reduce, broadcast = dist.batch_isend_irecv, dist.all_reduce, dist.broadcast

    def counted_send(operations: list[Any]) -> Any:
        nonlocal handed
        sent = [operation.tensor for operation in operations if operation.op is dist.isend]
        handed += sum(Z.numel() * Z.element_size() for Z in sent)
        return send(operations)

    def counted_reduce(values: torch.Tensor) -> Any:
        nonlocal handed
        handed += values.numel() * values.element_size()
        return reduce(values)

    def counted_broadcast(values: torch.Tensor, source: int) -> Any:
        nonlocal handed
        handed += values.numel() * values.element_size() * (source == ranks.rank)
        return broadcast(values, source)

    dist.batch_isend_irecv, dist.all_reduce = counted_send, counted_reduce  # type: ignore[assignment]
    dist.broadcast = counted_broadcast  # type: ignore[assignment]
    ranks = Ranks()
    tensors, costs = {}, {}
    for name, problem, method, faults in cases():
        handed = 0
        crew = OnRanks(ranks, NODES)
        net = crew.connect(W, faults, (1, 0))
        state = work(net, problem, method)
        assert handed == crew.wire_bytes == crew.handed_bytes, (name, handed, crew.wire_bytes, crew.handed_bytes)
        for field, Z in whole(crew, state).items():
            tensors[f"{name}/{field}"] = Z
        crew.agree(torch.zeros(len(net.rows)), True, ROUNDS)
        crew.announce({"a": "word"})
        costs[name] = net.ledger.row() | {"wire_bytes": crew.total(crew.wire_bytes)}
        assert handed == crew.handed_bytes > crew.wire_bytes, (name, handed, crew.wire_bytes, crew.handed_bytes)
    if ranks.writes:
        safetensors.torch.save_file(tensors, folder / "stacks.safetensors")
        (folder / "costs.json").write_text(json.dumps(costs))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))

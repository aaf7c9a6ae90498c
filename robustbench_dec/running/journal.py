"""The journal of an unfinished run: where it stands, in one atomic sealed file, so that the same command goes on."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from robustbench_dec import bars, files
from robustbench_dec.network import Network
from robustbench_dec.networks.crew import Crew
from robustbench_dec.oracle import Oracle
from robustbench_dec.running.loop import At
from robustbench_dec.trainer import Trainer

CurveRow = dict[str, int | float]


class Effort(BaseModel):
    """What went into a run and decides no number of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = 0.0
    threads: tuple[int, ...] = ()  # every number of threads that worked on it
    processes: tuple[int, ...] = ()  # every number of processes that shared its nodes; 1 is the simulator too

    def here(self, crew: Crew) -> "Effort":
        """With the threads and processes that go on with it."""
        threads = sorted({*self.threads, torch.get_num_threads()})
        processes = sorted({*self.processes, crew.size})
        return Effort(seconds=self.seconds, threads=tuple(threads), processes=tuple(processes))

    def after(self, seconds: float) -> "Effort":
        """With so many seconds more."""
        return self.model_copy(update={"seconds": self.seconds + seconds})


@dataclass(frozen=True)
class Standing:
    """What a journal keeps; the counters of the oracle, the network and the crew are set where they belong."""

    at: At | None = None  # None before the start
    curve: list[CurveRow] = field(default_factory=list)
    effort: Effort = field(default_factory=Effort)


LOSSES = "oracle.losses"
"""The name of the nodes' last losses among the tensors of the state; no field has a dot in its name."""


class Entry(BaseModel):
    """What stands in the file beside the tensors of the state."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    ledger: dict[str, int | dict[str, int]]
    draws: int
    loss: float
    smallest: float
    curve: list[CurveRow]
    effort: Effort
    wire_bytes: int


@dataclass(frozen=True)
class Journal:
    """Where an unfinished run stands: the tensors of its state, its counters and its curve.

    The entry before the newest is kept until the run is done, for the case that the newest is damaged.
    """

    path: Path
    run_id: str
    trainer: Trainer
    oracle: Oracle
    net: Network
    crew: Crew

    @property
    def former(self) -> Path:
        """The entry before the newest."""
        return self.path.with_stem(f"{self.path.stem}-former")

    def save(self, at: At, curve: list[CurveRow], effort: Effort) -> None:
        """The whole stacks, from all processes, and the rest, by the one that writes."""
        wire_bytes = self.crew.total(self.crew.wire_bytes)
        whole = {name: self.crew.gather(Z) for name, Z in at.state._asdict().items()}
        whole[LOSSES] = self.crew.gather(self.oracle.losses)
        if not self.crew.writes:
            return
        entry = Entry(
            id=self.run_id,
            ledger=self.net.ledger.saved(),
            draws=self.oracle.draws,
            loss=at.value,
            smallest=at.reference,
            curve=curve,
            effort=effort,
            wire_bytes=wire_bytes,
        )
        tensors = {name: Z.cpu().contiguous() for name, Z in whole.items() if Z is not None}
        metadata = {"journal": json.dumps(entry.model_dump()), "sha256": files.OPEN_SEAL}
        files.write_bytes(self.path, files.seal(safetensors.torch.save(tensors, metadata)), former=self.former)

    def restore(self) -> Standing:
        """Where the newest whole entry says that the run stands; at the start if there is none."""
        found = self._newest() if self.crew.writes else None
        announced = self.crew.announce(None if found is None else found[0].model_dump())
        if announced is None:
            return Standing()
        entry = Entry.model_validate(announced)
        state = self._state(None if found is None else safetensors.torch.load(found[1]))
        for name, value in entry.ledger.items():
            setattr(self.net.ledger, name, value)
        self.crew.wire_bytes = entry.wire_bytes if self.crew.writes else 0
        self.oracle.draws = entry.draws
        return Standing(At(state, self.net.ledger.row(), entry.loss, entry.smallest), entry.curve, entry.effort)

    def _state(self, tensors: dict[str, Tensor] | None) -> Any:
        """This process' rows of the state; the writing process has the whole tensors."""
        first = self.trainer.init(self.oracle, self.net)  # its class and fields; the counters it moves are set after it
        stacks = {
            name: self.crew.scatter(None if tensors is None else tensors[name].to(Z.device), Z)
            for name, Z in first._asdict().items()
        }
        # A node that asks for no gradient in the next round keeps the loss that it has.
        losses = self.oracle.losses
        self.oracle.losses = self.crew.scatter(None if tensors is None else tensors[LOSSES].to(losses.device), losses)
        return type(first)(**stacks)

    def _newest(self) -> tuple[Entry, bytes] | None:
        for path in (self.path, self.former):
            if not path.is_file():
                continue
            try:
                data = files.unseal(path)
                entry = _entry(data)
                if entry.id == self.run_id:
                    return entry, data
                fact = f"{path} is of another run"
            except files.Damaged as error:
                fact = error.fact
            except ValidationError:
                fact = f"{path} was written by another version"
            bars.say(f"{fact}; the run goes on from where it stood before")
            files.remove(path)  # lest it become the former one in the place of a whole one
        return None

    def remove(self) -> None:
        """The run is done."""
        files.remove(self.path)
        files.remove(self.former)


def _entry(data: bytes) -> Entry:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return Entry.model_validate(json.loads(header["__metadata__"]["journal"]))

"""The zoo: small trained networks that come with the suite, <data set>/<name>.safetensors and .json.

The tensors are the average x-bar of a run's nodes ("X", one row) and, for methods that train one, the average y
("y", as an image). The card beside them is sealed: the network's name, its own sha256, and the record of its run
(architecture, data, settings, ledger, clean accuracy, and the sha256 of the run's whole checkpoint, by which stored
attack cells are found). The network of a user's own file brings its source along, <name>.py: it is executed when this
entry's network is asked for, and not before its sha256 was checked.

A run keeps its average network in the same form, network.safetensors and network.json in its folder: small enough for
git, and all that an attack needs.
"""

import fnmatch
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from robustbench_dec import files, shipped
from robustbench_dec.architecture import flat_parameters
from robustbench_dec.errors import BadInput
from robustbench_dec.problem import Classifier
from robustbench_dec.store.checkpoint import checkpoint_bytes, load_checkpoint
from robustbench_dec.store.problems import problem_of
from robustbench_dec.store.records import Card, RunRecord
from robustbench_dec.store.results import CHECKPOINT, RUN_RECORD, Results, Run, run_at

SOURCE = ".py"
"""How the source of a user's own network is called beside the network."""

NETWORK = "network"
"""The stem of the average network that a run keeps."""


def home() -> Path:
    """Where the shipped entries are: results/zoo of the checkout, or inside the installed package."""
    return shipped.place("results") / "zoo"


@dataclass(frozen=True)
class Entry:
    """One network with its card, in the zoo or in a run's folder."""

    name: str
    checkpoint: Path
    sha256: str
    record: RunRecord

    @property
    def files(self) -> list[Path]:
        """The network, its card and its source, those that are there."""
        paths = (self.checkpoint.with_suffix(suffix) for suffix in (".safetensors", ".json", SOURCE))
        return [path for path in paths if path.is_file()]

    def model(self, device: str = "cpu") -> nn.Module:
        """The network, after its bytes were checked."""
        if not self.checkpoint.is_file():
            raise BadInput(f"{self.checkpoint} is missing; restore it, or train the run again")
        if files.sha256(self.checkpoint) != self.sha256:
            raise BadInput(
                f"{self.checkpoint} has not the sha256 that its card tells; it is damaged or was changed, so fetch or "
                "train it again"
            )
        self._check_source()
        return load_checkpoint(self.checkpoint, device, self.record.named.model).to(device)

    def problem(self) -> Classifier:
        """Its data, as it was trained on them."""
        self._check_source()
        return problem_of(self.record)

    def _check_source(self) -> None:
        """Refuse a source that is not the one that was trained, before it is executed."""
        source, classifier = self.checkpoint.with_suffix(SOURCE), self.record.classifier
        recorded = None if classifier is None else classifier.architecture.source_sha256
        if recorded is not None and source.is_file() and files.sha256(source) != recorded:
            raise BadInput(
                f"{source} is not the source of {self.name}, whose sha256 is {recorded[:12]}...; it was changed, so it "
                "is not executed; restore it, or make the entry again"
            )

    def run(self) -> Run | None:
        """The run whose folder the network lies in; None for one of the zoo."""
        run = Run(self.checkpoint.parent)
        return run if run.exists else None


def entries(pattern: str = "*", *folders: Path) -> list[Entry]:
    """The entries of some zoos, the shipped one if none is named, whose names match, for example mnist/*; refused if
    there are none. Of equal names the first zoo's is taken."""
    cards: dict[str, Path] = {}
    for root in folders or (home(),):
        for path in sorted(root.glob("*/[!.]*.json")):
            cards.setdefault(f"{path.parent.name}/{path.stem}", path)
    found = [_entry(path) for name, path in cards.items() if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        there = ", ".join(cards) or "none; `robustbench-dec zoo add` makes one of a finished run"
        raise BadInput(f"no model of the zoo matches '{pattern}'; there are: {there}")
    return found


def from_path(path: Path) -> Entry:
    """A run's folder, its checkpoint, or a file of a zoo elsewhere."""
    if path.is_dir():
        return of_run(run_at(path))
    if path.suffix != ".safetensors":
        raise BadInput(f"a checkpoint is a .safetensors file, not {path}; pickles (.pt, .pth, .pkl) are never read")
    if not path.is_file():
        raise BadInput(f"no checkpoint {path}; give a run's folder, a .safetensors file or a name of the zoo")
    card, run = path.with_suffix(".json"), Run(path.parent)
    if card.is_file():
        return _entry(card)
    if not run.exists:
        raise BadInput(
            f"{path} has neither {RUN_RECORD} nor a card {card.name} beside it, which tell its data and its sha256"
        )
    return Entry(run.record.id, path, run.record.checkpoint_sha256, run.record)


def of_run(run: Run) -> Entry:
    """A run's network: its checkpoint, or the average that it keeps, or an entry of the zoo that was made of it."""
    entry = found_of_run(run)
    if entry is None:
        raise BadInput(
            f"{run.folder / CHECKPOINT} is missing, and no network of the zoo is of this run; train the run again to "
            "attack it"
        )
    return entry


def found_of_run(run: Run) -> Entry | None:
    """A run's network, None where it is not here."""
    sha256 = run.record.checkpoint_sha256
    if run.has_checkpoint:
        return Entry(run.record.id, run.folder / CHECKPOINT, sha256, run.record)
    cards = [run.folder / f"{NETWORK}.json", *sorted(home().glob(f"{run.record.dataset}/[!.]*.json"))]
    for card in cards:
        if card.is_file() and card.with_suffix(".safetensors").is_file():
            entry = _entry(card)
            if entry.record.checkpoint_sha256 == sha256:
                return entry
    return None


def chosen(pattern: str, *results: Results) -> list[Entry]:
    """Entries of these results' zoos and of the shipped one; or the network that a path leads to."""
    if not pattern:
        raise BadInput("--model is a pattern of the zoo such as mnist/*, a run's folder or a .safetensors file, not ''")
    path = Path(pattern)
    if path.exists() or path.suffix in (".safetensors", ".pt", ".pth", ".pkl"):
        found = [from_path(path)]
    else:
        found = entries(pattern, home(), *(each.zoo for each in results))
    for entry in found:
        _check_checkpoint(entry)
    return found


def add(folder: Path, name: str, zoo: Path) -> Entry:
    """Make an entry of a finished run: the average network and the average y, and the card."""
    run = run_at(folder)
    return _write(run, name, _place(name, run.record, zoo))


def copy(entry: Entry, name: str, zoo: Path) -> Entry:
    """The same network under a name in another zoo, after its bytes were checked."""
    path = _place(name, entry.record, zoo)
    if path.is_file() and files.sha256(path) != entry.sha256:
        raise BadInput(f"{path} is another network; give this one another name than {name}")
    network = files.verified(entry.checkpoint, entry.sha256)
    source = entry.checkpoint.with_suffix(SOURCE)
    entry._check_source()
    files.write_bytes(path, network)
    if source in entry.files:
        files.write_bytes(path.with_suffix(SOURCE), source.read_bytes())
    Card(name=name, network_sha256=entry.sha256, run=entry.record).write(path.with_suffix(".json"))
    return _entry(path.with_suffix(".json"))


def check_new(entry: Entry, name: str, *results: Results) -> None:
    """Refuse a network that would pass for another one: by its name, or because its card tells another one's run.

    Cells belong to a run and its checkpoint, so what breaks an impostor would stand as a cell of the other network.
    The same network may have several names.
    """
    zoos = {*(each.zoo for each in results), home()}
    cards = [path for root in zoos for path in root.glob("*/[!.]*.json")]
    for other in (_entry(path) for path in sorted(cards)):
        if other.name == name and not _same(entry, other):
            raise BadInput(f"{other.checkpoint} is another network; give this one another name than {name}")
        if _of_one_run(entry.record, other.record) and not _same(entry, other):
            raise _impostor(entry, other.name)
    for run in (run for each in results for run in each.runs()):
        if _of_one_run(entry.record, run.record):
            known = found_of_run(run)
            if known is None or not _same(entry, known):
                raise _impostor(entry, str(run.folder))


def _check_checkpoint(entry: Entry) -> None:
    """Refuse a network whose card tells the checkpoint of one that comes along: stored cells are found by it."""
    if entry.checkpoint.is_relative_to(home()):
        return
    shipped_run = Results(shipped.place("results")).find(entry.record.id)
    cards = [_entry(path) for path in sorted(home().glob("*/[!.]*.json"))]
    kept = [] if shipped_run is None or shipped_run.folder == entry.checkpoint.parent else [found_of_run(shipped_run)]
    for other in [*cards, *kept]:
        if other is None or other.record.checkpoint_sha256 != entry.record.checkpoint_sha256:
            continue
        if not flat_parameters(entry.model()).equal(flat_parameters(other.model())):
            raise _impostor(entry, other.name)


def _of_one_run(mine: RunRecord, other: RunRecord) -> bool:
    return mine.id == other.id or mine.checkpoint_sha256 == other.checkpoint_sha256


def _same(entry: Entry, other: Entry) -> bool:
    """Whether two entries are one network with one record, wherever its source lies."""
    mine, theirs = (each.record.model_dump(exclude={"named"}) for each in (entry, other))
    return mine == theirs and flat_parameters(entry.model()).equal(flat_parameters(other.model()))


def _impostor(entry: Entry, other: str) -> BadInput:
    return BadInput(
        f"the card of {entry.checkpoint} tells the run {entry.record.id}, which is that of {other}, but its network or "
        "its record is another; a network of one's own has a run of its own"
    )


def _place(name: str, record: RunRecord, zoo: Path) -> Path:
    """Where a run's network of that name lies in a zoo."""
    parts = name.split("/")
    if len(parts) != 2 or not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in parts):
        raise BadInput(f"a name in the zoo is DATA_SET/NAME of letters, digits, '-', '_' and '.', not '{name}'")
    if record.dataset != parts[0]:
        raise BadInput(f"this run was trained on {record.dataset}, so its name should be {record.dataset}/{parts[1]}")
    return zoo / parts[0] / f"{parts[1]}.safetensors"


def files_of(name: str, zoo: Path) -> list[Path]:
    """What is there of an entry of that name, whole or not."""
    return [path for suffix in (".safetensors", ".json", SOURCE) if (path := zoo / f"{name}{suffix}").is_file()]


def keep(run: Run) -> Entry:
    """Keep a finished run's average network beside its record, where its checkpoint may be missing later."""
    return _write(run, run.record.id, run.folder / f"{NETWORK}.safetensors")


def _write(run: Run, name: str, path: Path) -> Entry:
    record = run.record
    if record.classifier is None:
        raise BadInput(f"{record.id} trained no network; the zoo takes runs of classifiers")
    stacks = run.tensors()  # refuses a checkpoint that is missing or changed
    tensors = {"X": stacks["X"].mean(0, keepdim=True)}
    if "Y" in stacks:
        tensors["y"] = stacks["Y"].mean(0).view(record.classifier.architecture.shape)
    source = _source(record)
    files.write_bytes(path, checkpoint_bytes(tensors, record.classifier.architecture))
    if source is not None:
        files.write_bytes(path.with_suffix(SOURCE), source)
    card = path.with_suffix(".json")
    Card(name=name, network_sha256=files.sha256(path), run=record).write(card)
    return _entry(card)


def _source(record: RunRecord) -> bytes | None:
    """The source of a user's own network, as it was when the run was trained; None for a network of the shelf."""
    recorded = None if record.classifier is None else record.classifier.architecture.source_sha256
    if recorded is None:
        return None
    path = Path(str(record.named.model).rpartition(":")[0] or str(record.named.model))
    try:
        return files.verified(path, recorded)
    except (files.Damaged, OSError) as error:
        raise BadInput(
            f"{path} is missing, or not the source of {record.id} any more (its sha256 was {recorded[:12]}...), and an "
            "entry brings its network's source along; put back what it was"
        ) from error


def list_models(pattern: str = "*") -> list[str]:
    """The names in the zoo, for example mnist/dec_fedtrack."""
    try:
        return [entry.name for entry in entries(pattern)]
    except BadInput:
        return []


def load_model(name: str | Path, device: str = "cpu") -> nn.Module:
    """A network of the zoo by its name, or of a checkpoint by its path: images in [0, 1] in, logits out, eval mode.

    Its `card`, a RunRecord, tells where it comes from.
    """
    if not isinstance(name, str | Path):
        raise BadInput(f"load_model takes a name of the zoo or a path, not {name!r}")
    path, name = Path(name), str(name)
    if name in list_models():
        (entry,) = entries(name)
    elif path.exists() or path.suffix:
        entry = from_path(path)
    else:
        (entry,) = entries(name)[:1]  # raises: there is none, and it tells which there are
    model = entry.model(device)
    model.card = entry.record  # type: ignore[assignment]
    return model


def _entry(path: Path) -> Entry:
    card = Card.read(path)
    run, source = card.run, path.with_suffix(SOURCE)
    if run.classifier is not None and run.classifier.architecture.source_sha256 is not None and source.is_file():
        inside = f"{source}:{run.classifier.architecture.name.rpartition(':')[2]}"  # file.py:Class
        run = run.model_copy(update={"named": run.named.model_copy(update={"model": inside})})
    return Entry(card.name, path.with_suffix(".safetensors"), card.network_sha256, run)

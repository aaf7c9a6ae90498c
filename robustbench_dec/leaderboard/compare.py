"""Compare: a new attack beside the stored ones, on the same images of the same networks, without training anything.

Stored cells tell every image's outcome, so they are read, not attacked again; a known attack that has no cell at a
radius of the grid gets one. Attacks that users brought earlier are not among the rivals: an older version of one's own
attack would hide what the new one gains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from torch import Tensor, nn

from robustbench_dec import bars as progress_bars
from robustbench_dec import files, shelf
from robustbench_dec.attack import TOLERANCE, Attack, accuracy
from robustbench_dec.attacking.evaluate import Limits
from robustbench_dec.attacking.find_attack import Saved, attack_named, label
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard.intervals import holm, mcnemar, wilson
from robustbench_dec.parts import Settings
from robustbench_dec.running.cells import BATCH_SIZE, Request
from robustbench_dec.running.cells import attack as attack_run
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Results, Run
from robustbench_dec.store.zoo import Entry


@dataclass(frozen=True)
class Measured:
    """What one attack left right at one radius, and its price in passes per image."""

    attack: str
    right: Tensor  # (n,) bool
    forwards: float
    backwards: float
    flags: tuple[str, ...]
    before: Tensor | None = None  # (n,) bool, what was right without attack; None where a cell does not tell

    @property
    def accuracy(self) -> float:
        return self.right.double().mean().item()


@dataclass(frozen=True)
class Row:
    """The new attack at one radius of one network, beside the stored ones."""

    model: str
    clean: float
    norm: str
    eps: float
    mine: Measured
    rivals: tuple[Measured, ...]
    p_value: float | None = None  # exact McNemar against the best rival
    p_holm: float | None = None  # corrected for all rows of the comparison

    @property
    def best(self) -> Measured | None:
        """The rival that leaves the fewest images right."""
        return min(self.rivals, key=lambda rival: rival.accuracy, default=None)

    @property
    def worst(self) -> Tensor:
        """Which images are right under the new attack and all of its rivals: (n,) bool."""
        return self.mine.right & self._all_rivals()

    @property
    def gained(self) -> int:
        """Images that the new attack breaks and no rival does; what is wrong without attack is broken by nobody."""
        broken = ~self.mine.right if self.mine.before is None else ~self.mine.right & self.mine.before
        return int((broken & self._all_rivals()).sum())

    @property
    def missed(self) -> int:
        """Images that some rival breaks and the new attack does not."""
        return int((self.mine.right & ~self._all_rivals()).sum())

    def _all_rivals(self) -> Tensor:
        right = self.mine.right | True
        for rival in self.rivals:
            right = right & rival.right
        return right


@dataclass(frozen=True)
class Newcomer:
    """The attack that is compared: its class, its settings, and how it is called."""

    name: str
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        if "eps" in self.settings:  # every row would tell another radius than that of its number
            raise BadInput("the radius of an attack is given by --eps, not by --set eps=...")

    @property
    def label(self) -> str:
        return label(self.name)

    @cached_property
    def cls(self) -> type[Attack]:
        """Found once: a user's file is read when the comparison starts."""
        return attack_named(self.name)

    def at(self, eps: float) -> Attack:
        """With its settings checked."""
        return shelf.make(self.cls, {"eps": eps, **self.settings})


@dataclass(frozen=True)
class Terms:
    """On what images and by what means attacks are compared."""

    n_examples: int = 1000
    batch_size: int = BATCH_SIZE
    device: str = "cpu"
    progress: bool = True
    limits: Limits = field(default_factory=Limits)
    """Of the newcomer."""


def compare(
    newcomer: Newcomer,
    models: Sequence[Entry],
    results: Results,
    terms: Terms = Terms(),
    *,
    eps: Sequence[float] | None = None,
    stored: Results | None = None,
) -> list[Row]:
    """One row per network and radius, with tests corrected over all of them.

    What is computed goes to `results`; cells of `stored` are only read. Without it, a run's own folder serves for both.
    """
    rows: list[Row] = []
    for entry in progress_bars.bar(models, desc=f"compare {newcomer.label}", unit="model", show=terms.progress):
        own, there = results.run(entry.record.id), entry.run()
        run = own if stored is not None else there or own
        others = [] if stored is None else [each for each in (there, stored.run(entry.record.id)) if each is not None]
        if run.exists and run.record.checkpoint_sha256 != entry.record.checkpoint_sha256:
            raise BadInput(
                f"{run.folder} is about another checkpoint than {entry.name}; make the entry of the zoo again"
            )
        rows += Bench(entry, run, others, terms).rows(newcomer, eps)
    tests = [row.p_value for row in rows if row.p_value is not None]
    corrected = iter(holm(tests))
    return [row if row.p_value is None else replace(row, p_holm=next(corrected)) for row in rows]


class Bench:
    """One network with its stored cells, which are read once."""

    def __init__(self, entry: Entry, run: Run, others: Sequence[Run], terms: Terms) -> None:
        self.entry, self.run, self.terms = entry, run, terms
        self.problem = entry.problem()
        self.model: nn.Module = entry.model(terms.device)
        self.n_examples = min(terms.n_examples, len(self.problem.images.test_labels))
        runs = {each.folder.resolve(): each for each in (run, *others) if each.exists}.values()
        self.stored = [cell for each in runs for cell in each.cells() if self._fits(cell.record)]
        self.cells = [cell.record for cell in self.stored]

    def rows(self, newcomer: Newcomer, eps: Sequence[float] | None) -> Iterator[Row]:
        example = newcomer.at(0.0)
        norm, universal = example.norm, example.universal
        images = self.problem.images
        clean = accuracy(self.model, images.test_images[: self.n_examples], images.test_labels[: self.n_examples])
        for radius in list(eps) if eps else self._grid(example):
            attack = newcomer.at(radius)
            mine = self._cell(newcomer.name, attack, "user")
            self._complete(norm, universal, radius)
            here = [cell for cell in self._stored(norm) if _radius(cell.eps) == _radius(radius)]
            # A universal attack has a harder task than attacks on single images: only its like are its rivals.
            rivals = tuple(
                self._measured(cell)
                for cell in here
                if (cell.universal or not universal) and not _same(cell, newcomer.label, attack)
            )
            row = Row(self.entry.name, clean, norm, radius, self._measured(mine), rivals)
            if row.best is not None:
                broke = int((~row.mine.right & row.best.right).sum())
                missed = int((row.mine.right & ~row.best.right).sum())
                row = replace(row, p_value=mcnemar(broke, missed))
            yield row

    def _grid(self, attack: Attack) -> list[float]:
        """The radii of the stored attacks of this kind; for a saved y that is not stretched, those that it fits in."""
        stored = [cell.eps for cell in self._stored(attack.norm) if cell.universal == attack.universal]
        radii = sorted({_radius(eps): eps for eps in stored}.values())
        if isinstance(attack, Saved) and not attack.scale:
            size = attack.saved.abs().max().item()
            radii = [radius for radius in radii if radius >= size - TOLERANCE] or [size]
        if not radii:
            kind = "universal" if attack.universal else "per-image"
            raise BadInput(
                f"{self.entry.name} has no stored {kind} attacks in {attack.norm} to take radii from; give --eps"
            )
        return radii

    def _stored(self, norm: str) -> list[CellRecord]:
        """The cells of known attacks in this norm; one from a file is a user's, also where `attack` has run it."""
        known = (cell for cell in self.cells if cell.submitted != "user" and cell.source_sha256 is None)
        return [cell for cell in known if cell.norm == norm]

    def _fits(self, cell: CellRecord) -> bool:
        """Whether a cell is about this very network, on at least as many test images."""
        same = cell.part == "test" and cell.checkpoint_sha256 == self.entry.record.checkpoint_sha256
        return same and cell.n_examples >= self.n_examples

    def _complete(self, norm: str, universal: bool, eps: float) -> None:
        """Cells at this radius of all known attacks that have some at others."""
        known: dict[tuple[str, str], tuple[str, Settings]] = {}
        there = set()
        for cell in self._stored(norm):
            if cell.universal != universal:
                continue
            settings = _at_radius(cell, eps)
            key = (cell.attack, files.digest(settings))
            known[key] = (cell.attack, settings)
            if _radius(cell.eps) == _radius(eps):
                there.add(key)
        if not known and norm == "Linf":
            usable = shelf.usable("attack", Attack)
            standard = [name for name, cls in usable.items() if cls.standard and cls.universal == universal]
            known = {(name, ""): (name, {"eps": eps}) for name in standard}
        for key, (name, settings) in known.items():
            if key not in there and not name.endswith(".safetensors"):
                self._cell(name, shelf.make(attack_named(name), settings), "reference")

    def _cell(self, name: str, attack: Attack, submitted: Literal["user", "reference"]) -> CellRecord:
        """Stored, on as many images or more; or computed, in a home that is made for it where the network has none."""
        limits = self.terms.limits if submitted == "user" else Limits()
        for cell in self.cells:
            if cell.max_passes == limits.passes and _same(cell, label(name), attack):
                return self._kept(cell) if submitted == "user" else cell
        request = Request(
            name,
            attack,
            self.entry.record.seed,
            self.n_examples,
            batch_size=self.terms.batch_size,
            submitted=submitted,
            limits=limits,
        )
        if submitted == "reference":
            progress_bars.say(f"{label(name)} has no stored cell at {attack.norm} {attack.eps:g}, so it is run too")
        self.run.adopt(self.entry.record)
        (cell,) = attack_run(
            self.run,
            [request],
            problem=self.problem,
            device=self.terms.device,
            model=self.model,
            progress=self.terms.progress,
        )
        self.cells.append(cell)
        return cell

    def _kept(self, record: CellRecord) -> CellRecord:
        """The newcomer's cell, which another folder has: results show it too, as what a user brought."""
        cell = next((cell for cell in self.stored if cell.record is record), None)
        if cell is not None and not self.run.cell(cell.stem).exists:
            cell.copy_to(self.run, submitted="user")
        return record

    def _measured(self, cell: CellRecord) -> Measured:
        images = cell.n_examples
        right = cell.right[: self.n_examples]
        before = None if cell.right_before is None else cell.right_before[: self.n_examples]
        return Measured(cell.attack, right, cell.forwards / images, cell.backwards / images, cell.flags, before)


WORST = "worst case"


def by_worst_case(rows: Sequence[Row]) -> list[Row]:
    """The networks of each data set from the most robust on, by the mean of their worst cases; radii as they were."""
    kept: dict[str, list[Row]] = {}
    for row in rows:
        kept.setdefault(row.model, []).append(row)
    datasets = list(dict.fromkeys(_dataset(model) for model in kept))

    def order(model: str) -> tuple[int, float]:
        worst = [row.worst.double().mean().item() for row in kept[model]]
        return datasets.index(_dataset(model)), -sum(worst) / len(worst)

    return [row for model in sorted(kept, key=order) for row in kept[model]]


def _dataset(model: str) -> str:
    """Of a name in the zoo, mnist/k_gt, or of a run's id, mnist-k_gt-s0-..."""
    return model.partition("/")[0].partition("-")[0]


def text(rows: Sequence[Row]) -> str:
    """The comparison as a plain table."""
    rows, lines = by_worst_case(rows), list[str]()
    width = max(len(WORST), *(len(measured.attack) for row in rows for measured in (row.mine, *row.rivals)))
    for number, row in enumerate(rows):
        if number == 0 or rows[number - 1].model != row.model:
            lines += [
                "",
                f"{row.model}: first {len(row.mine.right):,} test images, {row.clean:.1%} right without attack",
            ]
            lines.append(
                f"  {row.norm:<7}{'attack':<{width}}  accuracy (95 % interval)   passes per image, forward + back"
            )
        for measured in (row.mine, *sorted(row.rivals, key=lambda rival: rival.accuracy)):
            first = f"{row.eps:<7g}" if measured is row.mine else " " * 7
            low, high = wilson(int(measured.right.sum()), len(measured.right))
            number_text = f"{100 * measured.accuracy:5.1f} ({100 * low:.1f} to {100 * high:.1f})"
            passes = f"{measured.forwards:.1f} + {measured.backwards:.1f}"
            flagged = f"   flags: {', '.join(measured.flags)}" if measured.flags else ""
            lines.append(f"  {first}{measured.attack:<{width}}  {number_text:<26} {passes}{flagged}")
        lines.append(f"  {'':<7}{WORST:<{width}}  {100 * row.worst.double().mean().item():5.1f}")
        lines.append(f"         {_verdict(row)}")
    return "\n".join([*lines[1:], "", _summary(rows)])


def document(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The comparison for programs: accuracies are fractions, `right` counts images."""

    def summary(measured: Measured) -> dict[str, object]:
        low, high = wilson(int(measured.right.sum()), len(measured.right))
        return {
            "attack": measured.attack,
            "robust_acc": measured.accuracy,
            "interval": [low, high],
            "right": int(measured.right.sum()),
            "forwards_per_image": measured.forwards,
            "backwards_per_image": measured.backwards,
            "flags": list(measured.flags),
        }

    return [
        {
            "model": row.model,
            "norm": row.norm,
            "eps": row.eps,
            "n_examples": len(row.mine.right),
            "clean_acc": row.clean,
            "worst_case": row.worst.double().mean().item(),
            "mine": summary(row.mine),
            "stored": [summary(rival) for rival in row.rivals],
            "only_mine_breaks": row.gained,
            "mine_misses": row.missed,
            "p_mcnemar": row.p_value,
            "p_holm": row.p_holm,
        }
        for row in by_worst_case(rows)
    ]


def _verdict(row: Row) -> str:
    gain = f"breaks {row.gained} images that nothing else broke, misses {row.missed}"
    if row.best is None:
        return f"{gain}; no stored attack has this radius in {row.norm}"
    return f"{gain}; against {row.best.attack} p = {row.p_value:.2g}, corrected {row.p_holm:.2g} (McNemar, Holm)"


def _summary(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.best is not None and row.p_holm is not None and row.p_holm < 0.05]
    better = sum(row.mine.accuracy < row.best.accuracy for row in judged if row.best is not None)
    return (
        f"{rows[0].mine.attack}: breaks {sum(row.gained for row in rows)} images that nothing else broke and misses "
        f"{sum(row.missed for row in rows)}, in {len(rows)} cells; significantly stronger than the best stored attack "
        f"in {better}, weaker in {len(judged) - better} (Holm-corrected p < 0.05)"
    )


def _same(cell: CellRecord, name: str, attack: Attack) -> bool:
    """Whether a cell is about this very attack."""
    same_source = cell.source_sha256 == attack.source_sha256
    same_settings = files.digest(cell.settings) == files.digest(attack.settings())  # a tuple is a list in a file
    return cell.attack == name and same_source and same_settings


def _radius(eps: float) -> float:
    """A radius as tables tell it from others: 0.1 + 0.2 is 0.3."""
    return round(eps, 9)


def _at_radius(cell: CellRecord, eps: float) -> Settings:
    """A cell's settings at another radius: a step size keeps its share of it."""
    if _radius(cell.eps) == _radius(eps):
        return dict(cell.settings)
    settings: Settings = cell.settings | {"eps": eps}
    if isinstance(settings.get("alpha"), float) and cell.eps:
        settings["alpha"] = round(settings["alpha"] / cell.eps, 9) * eps
    return settings

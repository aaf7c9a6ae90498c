"""The Python interface.

`benchmark(model, dataset="mnist", attacks=["pgd"], eps=0.1)`: one call, any network, as RobustBench has it.
`compare("mine.py:Mine")`: a new attack beside the stored ones, added to the leaderboard and to its page.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from robustbench_dec import arguments, data, shelf, shipped
from robustbench_dec import bars as progress_bars
from robustbench_dec import page as pages
from robustbench_dec.attack import Attack
from robustbench_dec.attacking.evaluate import Limits, Outcome, attacked
from robustbench_dec.attacking.find_attack import attack_handed_over, attack_named, label
from robustbench_dec.attacking.model_use import copied
from robustbench_dec.attacking.scene import Scene
from robustbench_dec.errors import BadInput, raised
from robustbench_dec.leaderboard import gather
from robustbench_dec.leaderboard.audit import ZERO_SHARE
from robustbench_dec.leaderboard.compare import Newcomer, Row, Terms
from robustbench_dec.leaderboard.compare import compare as compare_models
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.running.cells import BATCH_SIZE
from robustbench_dec.store import zoo
from robustbench_dec.store.records import RunRecord
from robustbench_dec.store.results import Results

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Cell:
    """One attack at one radius."""

    name: str
    attack: Attack
    outcome: Outcome

    @property
    def flags(self) -> tuple[str, ...]:
        """What is suspicious about it; docs/flags.md explains each."""
        blind = self.outcome.zero_gradients is not None and self.outcome.zero_gradients > ZERO_SHARE
        return (*self.outcome.flags, *(("zero_gradients",) if blind else ()))

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        return wilson(int(self.outcome.robust.sum()), len(self.outcome.robust))


@dataclass(frozen=True, repr=False)
class Benchmark:
    """What was measured; it also unpacks into (clean_acc, robust_acc), as RobustBench's result does."""

    clean_acc: float
    robust_acc: float
    """The share of images that are right under every attack and radius that was asked for."""
    cells: tuple[Cell, ...]

    def __iter__(self) -> Iterator[float]:
        return iter((self.clean_acc, self.robust_acc))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per attack and radius, with Wilson's 95 % interval and the cost in images passed."""
        rows = []
        for cell in self.cells:
            (low, high), outcome = cell.interval, cell.outcome
            row = {"attack": cell.name, "norm": outcome.ball.norm, "eps": outcome.ball.eps}
            row |= {"clean_acc": outcome.clean_accuracy, "robust_acc": outcome.robust_accuracy}
            row |= {"ci_low": low, "ci_high": high, "forwards": outcome.forwards, "backwards": outcome.backwards}
            rows.append(row | {"flags": ";".join(cell.flags), "settings": cell.attack.settings()})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {'  '.join(row)}".rstrip() for row in self._aligned())])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("attack", "radius", "accuracy", "95 % interval", "flags"))
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in self._rows()
        )
        return f"<p>{html.escape(self._title())}</p><table><tr>{head}</tr>{rows}</table>"

    def _title(self) -> str:
        images = len(self.cells[0].outcome.clean)
        return f"{self.clean_acc:.1%} clean, {self.robust_acc:.1%} under all attacks ({images:,} images)"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for cell in self.cells:
            (low, high), accuracy = cell.interval, cell.outcome.robust_accuracy
            ball, interval = cell.outcome.ball, f"{100 * low:.1f} to {100 * high:.1f}"
            yield cell.name, f"{ball.norm} {ball.eps:g}", f"{accuracy:.1%}", interval, ", ".join(cell.flags)

    def _aligned(self) -> Iterator[tuple[str, ...]]:
        rows = list(self._rows())
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            yield tuple(text.ljust(width) for text, width in zip(row, widths, strict=True))


def benchmark(
    model: nn.Module,
    dataset: str | tuple[object, object] | None = None,
    attacks: object = ("fgsm", "pgd"),
    eps: object = 0.1,
    n_examples: int | None = 1000,
    batch_size: int = 500,
    device: str = "cpu",
    *,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    max_passes: int | None = None,
    progress: bool = True,
) -> Benchmark:
    """Attack the first `n_examples` test images (None: all) at each radius; the result shows itself as a table.

    `model`: a torch.nn.Module, images in [0, 1] in, logits out; put a normalisation inside. It is copied, not changed.
    `dataset`: a name of `robustbench-dec list`, or (images, labels) of your own; it and `classes` may be left out for a
    model of `load_model`.
    `attacks`: one or several of: a name as everywhere (pgd, torchattacks:MIFGSM, mine.py:Mine, y.safetensors); a class
    or function of yours, which is built for each radius; an object, Mine(eps=.1) or torchattacks.PGD(model, eps=.1),
    which has its own. Or a mapping from names to settings.
    `eps`: one radius or several, numbers or texts such as "8/255". `seed`: of every batch's random state. `device`:
    cpu, cuda, ... `max_passes`: images through the network per image, forward and back together.

        from robustbench_dec import benchmark, load_model
        print(benchmark(load_model("mnist/dec_fedtrack"), attacks=["pgd", "uap"], eps=[0.05, 0.1], n_examples=200))
    """
    _check_arguments(model, n_examples, batch_size, device, seed, max_passes)
    radii = arguments.radii(eps)
    asked = list(attacks.items()) if isinstance(attacks, Mapping) else [(each, {}) for each in _several(attacks)]
    if not asked or not radii:
        raise BadInput("benchmark needs at least one attack and at least one eps")
    built = [pair for attack, settings in asked for pair in _built(attack, settings, radii, model)]
    test, labels, train, count = _images(model, dataset, classes, progress)
    test, labels = test[:n_examples], labels[:n_examples]
    scene = Scene(copied(model).to(device), test, labels, seed=seed, batch_size=batch_size)
    found = scene.network.classes
    if count is not None and found != count:
        raise BadInput(f"the data set has {count} classes, the network answers with {found} logits")
    cells = []
    robust: Tensor = torch.ones(len(labels), dtype=torch.bool)
    for name, attack in progress_bars.bar(built, desc="benchmark", unit="cell", show=progress):
        what = f"{name}@{attack.eps:g}" if progress else None
        try:
            outcome = attacked(attack, scene, train=train, progress=what, limits=Limits(passes=max_passes))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
        except Exception as error:  # whatever the attack raises
            raise BadInput(f"{name} raised {raised(error)}") from error
        cells.append(Cell(name, attack, outcome))
        robust = robust & outcome.robust
    return Benchmark(cells[0].outcome.clean_accuracy, robust.double().mean().item(), tuple(cells))


def _built(attack: object, settings: object, radii: Sequence[float], model: nn.Module) -> list[tuple[str, Attack]]:
    """Attacks with their names: one per radius, or the one that has its own."""
    if not isinstance(settings, Mapping):
        raise BadInput(f"the settings of an attack are a mapping such as {{'steps': 40}}, not {settings!r:.60}")
    if isinstance(attack, Attack):
        if settings:
            raise BadInput(f"{type(attack).__name__}(...) has its settings already; give its class, or none here")
        return [(type(attack).__name__, attack)]
    if isinstance(attack, str):
        cls, name, own = attack_named(attack), label(attack), dict[str, Any]()
    else:
        cls, name, own = attack_handed_over(attack, model)
    at = [own["eps"]] if "eps" in own else radii
    return [(name, shelf.make(cls, {**own, "eps": radius, **settings})) for radius in at]


def _images(
    model: nn.Module, dataset: object, classes: Sequence[str] | None, progress: bool
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None, int | None]:
    """Test images, their labels, those to train on, and the number of classes, as far as there are such."""
    card = getattr(model, "card", None)
    if dataset is None:
        if not isinstance(card, RunRecord):
            raise BadInput(f"benchmark needs a dataset for a model that is not of the zoo; there are: {_offered()}")
        dataset = _place(card)
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        images, labels = (_tensor(each, what) for each, what in zip(dataset, ("images", "labels"), strict=True))
        return images, labels.long(), None, None
    if not isinstance(dataset, str):
        raise BadInput(f"dataset is a name or (images, labels), not {type(dataset).__name__}; there are: {_offered()}")
    if classes is None and isinstance(card, RunRecord) and _place(card) == dataset and card.classifier is not None:
        classes = card.classifier.classes
    found = data.load(dataset, classes, progress=progress)
    train = found.train_images, found.train_labels
    return found.test_images, found.test_labels, train, len(found.classes)


def _place(card: RunRecord) -> str:
    """The data of a trained network: a name, or the path of a user's own."""
    own = card.named.dataset if "dataset_sha256" in card.settings.problem else None
    return own or card.dataset


def _tensor(value: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"the {what} of a data set are a tensor or an array, not {type(value).__name__}") from error


def _check_arguments(
    model: object, n_examples: object, batch_size: object, device: Any, seed: object, max_passes: object
) -> None:
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"benchmark takes a torch.nn.Module, not {type(model).__name__}; load_model('mnist/dec_fedtrack') gives one"
        )
    if n_examples is not None:
        arguments.whole("n_examples", n_examples)
    arguments.whole("batch_size", batch_size)
    arguments.whole("seed", seed, 0)
    if max_passes is not None:
        arguments.whole("max_passes", max_passes)
    arguments.device(device)


def _several(attacks: object) -> Sequence[Any]:
    if isinstance(attacks, str | type | Attack) or (callable(attacks) and not isinstance(attacks, Iterable)):
        return [attacks]
    found = arguments.listed(attacks)
    if found is None:
        raise BadInput(
            f"attacks are names, classes, functions or attack objects, or a list of them, not {attacks!r:.60}"
        )
    return found


def _offered() -> str:
    return ", ".join(data.names())


@dataclass(frozen=True)
class Comparison:
    """A new attack beside the stored ones: a row per network and radius; the leaderboard and its page, written anew."""

    attack: str
    rows: list[Row]
    leaderboard: pd.DataFrame
    page: Path

    @property
    def own(self) -> pd.DataFrame:
        """The new attack's rows of the leaderboard."""
        mine = (self.leaderboard["submitted"] == "user") & (self.leaderboard["attack"] == self.attack)
        return self.leaderboard[mine]


def compare(
    attack: str,
    models: str | Sequence[str] | Sequence[zoo.Entry] = "*",
    eps: Sequence[float] | None = None,
    *,
    settings: Settings = MappingProxyType({}),
    n_examples: int = 1000,
    batch_size: int = BATCH_SIZE,
    results: Path | str = "out",
    stored: Path | str | None = None,
    page: Path | str | None = None,
    device: str = "cpu",
    progress: bool = True,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> Comparison:
    """Compare an attack with the stored ones on networks that are trained, then gather the leaderboard and its page.

    `models`: patterns of the zoo (mnist/*), runs' folders or .safetensors files. `eps`: radii, those of the stored
    attacks unless they are given. What is new is written to `results`; `stored` is only read: results/ where there is
    one, else what comes along. `page`: where the page is written, index.html in the results' folder by default.
    """
    newcomer = Newcomer(attack, settings)
    newcomer.at(eps[0] if eps else 0.0)  # a wrong name or setting is told before anything is loaded
    store = Results(Path(results))
    asked = [models] if isinstance(models, str) else models
    chosen = [[each] if isinstance(each, zoo.Entry) else zoo.chosen(each, store) for each in asked]
    entries = [entry for each in chosen for entry in each]
    rows = compare_models(
        newcomer,
        entries,
        store,
        Terms(n_examples, batch_size, device, progress, limits),
        eps=eps,
        stored=Results(Path(stored or shipped.results())),
    )
    everything = gather.rebuild(store)
    written = pages.write(store, Path(page) if page else store.root / "index.html")
    return Comparison(newcomer.label, rows, everything, written)

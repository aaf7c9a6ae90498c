"""The Python interface.

`benchmark(model, dataset="mnist", attacks=["pgd"], eps=0.1)`: one call, any network, as RobustBench has it.
`compare("mine.py:Mine")`: a new attack beside the stored ones, added to the leaderboard and to its page.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from robustbench_dec import bars as progress_bars
from robustbench_dec import data, shelf
from robustbench_dec import page as pages
from robustbench_dec.attacking.evaluate import Outcome, evaluate
from robustbench_dec.attacking.foreign import attack_named, label
from robustbench_dec.errors import BadInput
from robustbench_dec.leaderboard import gather
from robustbench_dec.leaderboard.compare import Newcomer, Row
from robustbench_dec.leaderboard.compare import compare as compare_models
from robustbench_dec.leaderboard.intervals import wilson
from robustbench_dec.running.cells import BATCH_SIZE
from robustbench_dec.store import zoo
from robustbench_dec.store.records import RunRecord
from robustbench_dec.store.results import Results

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """What was measured; it also unpacks into (clean_acc, robust_acc), as RobustBench's result does."""

    clean_acc: float
    robust_acc: float
    """The share of images that are right under every attack and radius that was asked for."""
    cells: tuple[tuple[str, Settings, Outcome], ...]

    def __iter__(self) -> Iterator[float]:
        return iter((self.clean_acc, self.robust_acc))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per attack and radius, with Wilson's 95 % interval and the cost in images passed."""
        rows = []
        for name, settings, outcome in self.cells:
            low, high = wilson(int(outcome.robust.sum()), len(outcome.robust))
            row = {"attack": name, "eps": settings["eps"], "clean_acc": outcome.clean_accuracy}
            row |= {"robust_acc": outcome.robust_accuracy, "ci_low": low, "ci_high": high}
            row |= {"forwards": outcome.forwards, "backwards": outcome.backwards, "flags": ";".join(outcome.flags)}
            rows.append(row | {"settings": dict(settings)})
        return pd.DataFrame(rows)


def benchmark(
    model: nn.Module,
    dataset: str | None = None,
    attacks: str | Sequence[str] | Mapping[str, Settings] = ("fgsm", "pgd"),
    eps: float | str | Sequence[float | str] = 0.1,
    n_examples: int | None = 1000,
    batch_size: int = 500,
    device: str = "cpu",
    *,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Benchmark:
    """Attack the first `n_examples` test images (None: all) at each radius.

    `model`: images in [0, 1] in, logits out; put a normalisation inside. `dataset` and `classes` may be left out for a
    model of `load_model`. `attacks`: names as everywhere (pgd, torchattacks:MIFGSM, mine.py:Mine, y.safetensors), or a
    mapping from names to settings. `eps`: one radius or several, numbers or texts such as "8/255".
    """
    card = getattr(model, "card", None)
    if dataset is None:
        if not isinstance(card, RunRecord):
            raise BadInput(f"benchmark needs a dataset for a model that is not of the zoo; there are: {_offered()}")
        dataset = card.dataset
    if classes is None and isinstance(card, RunRecord) and card.dataset == dataset and card.classifier is not None:
        classes = card.classifier.classes
    asked = {attacks: {}} if isinstance(attacks, str) else attacks
    asked = asked if isinstance(asked, Mapping) else {name: {} for name in asked}
    radii = [eps] if isinstance(eps, str | int | float) else list(eps)
    if not asked or not radii:
        raise BadInput("benchmark needs at least one attack and at least one eps")
    built = [
        (label(name), shelf.make(attack_named(name), {"eps": shelf.number(radius), **settings}))
        for name, settings in asked.items()
        for radius in radii
    ]
    images = data.load(dataset, classes, progress=progress)
    test, labels = images.test_images[:n_examples], images.test_labels[:n_examples]
    train = images.train_images, images.train_labels
    model = model.to(device)
    cells = []
    robust: Tensor = torch.ones(len(labels), dtype=torch.bool)
    for name, one in progress_bars.bar(built, desc="benchmark", unit="cell", show=progress):
        what = f"{name}@{one.eps:g}" if progress else None
        outcome = evaluate(
            one, model, test, labels, train=train, seed=seed, batch_size=batch_size, progress=what
        )  # fmt: skip
        cells.append((name, one.settings(), outcome))
        robust = robust & outcome.robust
    return Benchmark(cells[0][2].clean_accuracy, robust.double().mean().item(), tuple(cells))


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
    models: str | Sequence[str] = "*",
    eps: Sequence[float] | None = None,
    *,
    settings: Settings = MappingProxyType({}),
    n_examples: int = 1000,
    batch_size: int = BATCH_SIZE,
    results: Path | str = "results",
    page: Path | str | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Comparison:
    """Compare an attack with the stored ones on networks that are trained, then gather the leaderboard and its page.

    `models`: patterns of the zoo (mnist/*), runs' folders or .safetensors files. `eps`: radii, those of the stored
    attacks unless they are given. `page`: where the page is written, index.html in the results' folder by default.
    """
    newcomer = Newcomer(attack, settings)
    newcomer.at(eps[0] if eps else 0.0)  # a wrong name or setting is told before anything is loaded
    store = Results(Path(results))
    asked = [models] if isinstance(models, str) else models
    entries = [entry for pattern in asked for entry in zoo.chosen(pattern, store)]
    rows = compare_models(
        newcomer,
        entries,
        store,
        eps=eps,
        n_examples=n_examples,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    everything = gather.rebuild(store)
    written = pages.write(store, Path(page) if page else store.root / "index.html")
    return Comparison(newcomer.label, rows, everything, written)

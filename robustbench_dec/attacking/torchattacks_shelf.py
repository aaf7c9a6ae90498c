"""torchattacks as a shelf: every attack of the library by its name, with the traps of version 3.5.1 marked.

Each runs, or is refused with its reason. The radius is measured in the attack's own norm. An attack that looks for the
nearest adversarial image and knows no radius counts where what it finds is within eps; else the image stays as it was.
What all have in common (random state, the model's flags, gradients, clipping) is the harness's part, see attack.py.
"""

import contextlib
import inspect
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
import torchattacks
from torch import Tensor, nn

from robustbench_dec.attack import Attack, distances, number_of_classes, put_back, slack
from robustbench_dec.attacking.find_attack import Foreign, adapt
from robustbench_dec.errors import BadInput

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "MultiAttack": "is a list of other attacks; `strong` is the worst case of several here",
        "LGV": "trains new networks on a loader before it attacks, and a comparison trains nothing",
    }
)
# Arguments that the harness decides: the batch's random state, the model's own number of classes, silence. And numbers
# that the library writes without a point although they need not be whole.
KINDS: Mapping[str, object] = MappingProxyType(
    dict.fromkeys(("seed", "n_classes", "verbose"))
    | dict.fromkeys(("c", "kappa", "lam", "scale"), float)
    | {"norm": Literal["Linf", "L2"]}
)
NEAREST: Mapping[str, object] = MappingProxyType({"radius": "", "nearest": True})
THREE_COLOURS: Mapping[str, object] = MappingProxyType({"colours": 3})
EAD: Mapping[str, object] = MappingProxyType({**NEAREST, "at_least": {"max_iterations": 10}})
TRAPS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "VANILA": {"radius": ""},
        "GN": {"radius": "", "clipped": True, "derived": {"std": lambda attack: attack.eps}},
        # Its one step of 0.01 would leave every larger radius untouched.
        "SPSA": {"derived": {"lr": lambda attack: attack.eps * max(0.25, 1 / attack.nb_iter)}},
        "TIFGSM": THREE_COLOURS,
        "PIFGSM": THREE_COLOURS,
        "PIFGSMPP": THREE_COLOURS,
        # The DLR loss divides by the third largest logit's distance, its targeted form by the fourth's.
        "APGD": {"classes": {"dlr": 3}},
        "APGDT": {"classes": {"": 4}},
        "AutoAttack": {"classes": {"": 4, "rand": 3}},
        "JSMA": {**NEAREST, "norm": "L0", "classes": {"": 10}},  # it aims at (label + 1) mod 10
        "PGDL2": {"norm": "L2"},
        "PGDRSL2": {"norm": "L2"},
        "CW": {**NEAREST, "norm": "L2"},
        "DeepFool": {**NEAREST, "norm": "L2"},
        "EADEN": {**EAD, "norm": "L2"},
        "EADL1": {**EAD, "norm": "L1"},
        "SparseFool": {**NEAREST, "norm": "L0"},
        "Pixle": {**NEAREST, "norm": "L0"},
        "OnePixel": {"radius": "", "norm": "L0", "derived": {"pixels": lambda attack: max(1, int(attack.eps))}},
    }
)


@dataclass(frozen=True)
class Library(Foreign):
    """An attack of the library, with its traps."""

    refuses_short: ClassVar[bool] = True
    """Whether steps that cannot reach the radius are refused; those of an object that was handed over are told."""
    nearest: ClassVar[bool] = False
    """Whether it looks for the nearest adversarial image, whatever the radius."""
    clipped: ClassVar[bool] = False
    """Whether leaving the ball is its nature, and being clipped to it the rule."""
    colours: ClassVar[int | None] = None
    classes: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """The least number of classes, by the value of a setting that needs them ("": any)."""
    at_least: ClassVar[Mapping[str, int]] = MappingProxyType({})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.short() and self.refuses_short:
            settings = self.settings()
            raise BadInput(
                f"{settings['steps']} steps of alpha {settings['alpha']:g} cannot reach the radius {self.eps:g}; "
                "give more steps or a larger alpha, or leave alpha out to have it grow with the radius"
            )
        for name, least in self.at_least.items():
            if getattr(self, name) < least:
                raise BadInput(f"{self.title} needs {name} of at least {least}, not {getattr(self, name)}")

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        if self.colours is not None and shape[0] != self.colours:
            raise BadInput(f"{self.title} needs images of {self.colours} colours, these have {shape[0]}")
        values = [str(value) for value in self.settings().values()]
        least = [number for value, number in self.classes.items() if value in values]
        needed = max(least, default=self.classes.get("", 2))
        if classes < needed:
            raise BadInput(
                f"{self.title} as it is set needs at least {needed} classes, the model has {classes}; "
                "`strong`, APGD with loss=ce, FAB and Square do with two"
            )

    def arguments(self, model: nn.Module, images: Tensor) -> dict[str, object]:
        arguments = super().arguments(model, images)
        taken = inspect.signature(type(self).build).parameters
        if "seed" in taken:  # the library's 0 would give every batch the same start, its None the time of day
            arguments["seed"] = int(torch.randint(2**31 - 1, ()))
        if "n_classes" in taken:
            arguments["n_classes"] = number_of_classes(model, images)
        return arguments

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            proposed = super().perturb(model, images, labels).detach().to(images)
        if self.nearest:
            near = distances(proposed - images, self.norm) <= self.eps + slack(self.eps)
            return torch.where(near.view(-1, 1, 1, 1), proposed, images)
        return put_back(images, proposed, self.eps, self.norm) if self.clipped else proposed


def has(cls: type) -> bool:
    """Whether a class is one of the library's attacks."""
    return getattr(torchattacks, cls.__name__, None) is cls and cls.__name__ in torchattacks.__all__


def names() -> list[str]:
    """The library's attacks, those that are refused included."""
    return sorted(torchattacks.__all__)


def named(name: str) -> type[Attack]:
    """The settings class of one of the library's attacks."""
    if name in REFUSED:
        raise BadInput(f"torchattacks' {name} {REFUSED[name]}")
    if name not in names():
        offered = [each for each in names() if each not in REFUSED]
        raise BadInput(f"torchattacks has no attack '{name}'; there are: {', '.join(offered)}")
    marks = {"title": f"torchattacks' {name}", **TRAPS.get(name, {})}
    found = adapt(getattr(torchattacks, name), Library, KINDS, scaled=True, **marks)
    assert found is not None
    return found

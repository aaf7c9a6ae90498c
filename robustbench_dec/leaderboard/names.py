"""Names: how a trained network and an attack are called, in words that a person would use.

A network that a table asked for bears the table's title for it. Any other is named by what it has otherwise than the
network that bears its method's plain title, and an attack likewise: always by what it has, never by what it lacks. What
a record does not say is filled in from the defaults of the class before anything is compared, so that a setting which
is younger than a record cannot set it apart.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass

from robustbench_dec import files, shelf
from robustbench_dec.parts import Part
from robustbench_dec.specs.run import NetworkSpec
from robustbench_dec.store.records import RunRecord

Settings = Mapping[str, object]
Family = tuple[str, str]
"""A data set and a method or an attack, whose variants are told apart."""

NOT_NAMED = ("seed", "matrix")
"""Settings of a network that the seed decides, or that a digest stands for."""

EITHER: Mapping[str, tuple[str, str]] = {
    "problem.normalised": ("normalised pixels", "raw pixels"),
    "problem.mirrored": ("mirrored images", "images as they are"),
    "problem.clamp": ("training images clamped", "training images as they come"),
    "network.varying": ("new places every round", "the same places every round"),
    "decay": ("decaying step", "constant step"),
    "random_start": ("random start", "start at the image"),
}
"""Settings that are true or false, and what each is called."""

SAID: Mapping[str, Callable[[object], str]] = {
    "problem.eps": lambda value: f"ρ = {short(value)}",  # noqa: RUF001
    "problem.kernel": lambda value: f"{value} × {value} kernel",  # noqa: RUF001
    "problem.split": lambda value: f"{value} split",
    "problem.classes": lambda value: short(value),
    "network.weights": lambda value: f"{value} weights",
    "network.loss": lambda value: f"{_percent(value)} % of links lost",
    "network.stragglers": lambda value: f"{_percent(value)} % of nodes late",
    "rounds": lambda value: f"{value} rounds",
    "steps": lambda value: f"{value} steps",
    "step": lambda value: f"{value} step",
    "restarts": lambda value: f"{value} restarts",
    "rel_alpha": lambda value: f"α = {short(value)} δ",  # noqa: RUF001
}
"""Settings whose own names would mislead, and how they are said."""


def training(record: RunRecord) -> dict[str, object]:
    """All that decides a trained network but its seed, defaults filled in."""
    asked = record.settings
    network = {name: field.default for name, field in NetworkSpec.model_fields.items()} | asked.network
    parts = {
        "problem": filled("problem", asked.problem),
        "network": {name: value for name, value in network.items() if name not in NOT_NAMED},
        "trainer": filled("trainer", asked.trainer),
    }
    flat = {f"{part}.{name}": value for part, settings in parts.items() for name, value in settings.items()}
    budget = {"rounds": asked.rounds, "sfo": asked.sfo, "exchanges": asked.exchanges}
    return flat | {name: value for name, value in budget.items() if value is not None}


def filled(kind: str, settings: Settings, name: str | None = None) -> dict[str, object]:
    """The settings of a part with the defaults of its class; not those of a y that it does not train."""
    cls = shelf.known(kind, name or str(settings.get("name", "")), Part)
    if cls is None or not is_dataclass(cls):
        return dict(settings)
    without = getattr(cls, "dual_settings", ())
    defaults = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
    return {name: value for name, value in defaults.items() if name not in without} | dict(settings)


def distinct(
    titles: Sequence[str], families: Sequence[Family], settings: Sequence[Settings], given: Sequence[str | None]
) -> list[str]:
    """A name for each row: the given one, or its title with what it has otherwise than the plainest of its family.

    Variants of one family never share a name: where they would, what they have otherwise follows the given one too.
    """
    digests = [files.digest(dict(each)) for each in settings]
    members = list(zip(families, digests, strict=True))
    variants: dict[Family, dict[str, Settings]] = defaultdict(dict)
    called: dict[tuple[Family, str], str] = {}
    plain: dict[Family, str] = {}
    for title, (family, digest), each, name in zip(titles, members, settings, given, strict=True):
        variants[family].setdefault(digest, each)
        if name is not None:
            called.setdefault((family, digest), name)
        if name == title:
            plain.setdefault(family, digest)
    most = Counter(members)
    names: dict[tuple[Family, str], str] = {}
    for family, known in variants.items():
        reference = known[plain.get(family) or max(known, key=lambda digest: most[family, digest])]
        title, taken = titles[families.index(family)], set()
        for digest in sorted(known, key=lambda digest: called.get((family, digest)) != title):
            words = ", ".join(additions(known[digest], reference))
            name = called.get((family, digest), title)
            if words and (name in taken or (family, digest) not in called):
                name = f"{name} ({words})"
            taken.add(name)
            names[family, digest] = name
    return [names[member] for member in members]


def additions(variant: Settings, reference: Settings) -> list[str]:
    """What a variant has otherwise than the reference, each as what it has."""
    differing = [name for name, value in variant.items() if name not in reference or reference[name] != value]
    words = []
    if {"network.graph", "network.nodes"} & {*differing}:
        words.append(f"{variant['network.graph']} of {variant['network.nodes']}")
    for name in differing:
        if name not in ("network.graph", "network.nodes") and name in reference and variant[name] is not None:
            words.append(_said(name, variant[name]))
    return words


def short(value: object) -> str:
    """A setting's value in a name."""
    if isinstance(value, float):
        return f"{value:g}"
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        yes, no = EITHER.get(name, (name.rpartition(".")[2], f"{name.rpartition('.')[2]} off"))
        return yes if value else no
    if name in SAID:
        return SAID[name](value)
    return f"{name.rpartition('.')[2].replace('eta_', 'η_')} = {short(value)}"


def _percent(share: object) -> str:
    return f"{100 * float(str(share)):g}"

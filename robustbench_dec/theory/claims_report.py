"""Table 1 rendered: the paper's ticks beside what was seen, and what every method paid.

LU (local updates) is seen if K = 5 instead of K = 1, the specification's pair of variants, divides the rounds to the
first goal by at least `WORTH`, on slightly different nodes; HR (heterogeneity robustness) is seen if the tightest goal
that the specification's variant reaches on slightly different nodes is also reached on very different ones, at whatever
price, which is told. A goal is reached if it is with every seed. Numbers are medians over the seeds, in brackets from
the smallest to the largest. AR (adversarial robustness) is not measured here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustbench_dec import files
from robustbench_dec.rendering.text import (
    LATEX_NEEDS,
    escape_latex,
    escape_markdown,
    grid,
    latex_row,
    latex_table,
)
from robustbench_dec.specs.claims import MethodSpec, Place, Spec
from robustbench_dec.theory.claims import MEASURED

WORTH = 1.5
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Seen(NamedTuple):
    """A verdict, None where it cannot be had, and the numbers behind it."""

    verdict: bool | None
    why: str


Key = tuple[str, str, float, float]  # method, variant, heterogeneity, goal


def report(specification: Spec, rows: pd.DataFrame, stem: Path) -> dict[Path, bytes]:
    """What goes into <stem>.csv, .md and .tex, from one row per run and goal, as `claims.make` gives them."""
    cells = summary(specification, rows)
    contents = {
        ".csv": cells.to_csv(index=False, lineterminator="\n", float_format="%.4g"),
        ".md": _markdown(specification, cells),
        ".tex": _latex(specification, cells, stem.name),
    }
    return files.beside(stem, contents)


def summary(specification: Spec, rows: pd.DataFrame) -> pd.DataFrame:
    """One row per method, variant, heterogeneity and goal: claims, step sizes, costs over seeds, floors over seeds."""
    methods = {method.name: method for method in specification.methods}
    lines = []
    for (name, *where), group in rows.groupby(["method", "variant", "heterogeneity", "goal"], sort=False):
        method = methods[name]
        line: dict[str, object] = {"method": name, "title": method.title}
        line |= method.model_dump(exclude={"name", "variants", "note"})
        line |= dict(zip(("variant", "heterogeneity", "goal"), where, strict=True))
        line |= {"eta_x": group["eta_x"].iloc[0], "eta_y": group["eta_y"].iloc[0]}
        line |= {"seeds": len(group), "seeds_reached": int(group["reached"].sum()), "reached": group["reached"].all()}
        for column in (*MEASURED, "floor"):
            values = group[column].astype(float).dropna()
            shown = column == "floor" or line["reached"]
            for which in ("median", "min", "max"):
                line[f"{column}_{which}"] = getattr(values, which)() if shown and len(values) else None
        lines.append(line)
    order = [place._asdict() for place in specification.places()]
    frame = pd.DataFrame(order).merge(pd.DataFrame(lines), on=list(Place._fields), sort=False)
    return frame.astype({f"{name}_{which}": "Float64" for name in MEASURED for which in ("median", "min", "max")})


def seen_LU(specification: Spec, method: MethodSpec, cells: pd.DataFrame) -> Seen:
    """How many times fewer rounds the second variant needs than the first, on slightly and on very different nodes."""
    pair = specification.judge.LU
    if not {*pair} <= {*method.variants}:
        return Seen(None, "")
    found = _by_key(cells)
    goal = specification.goals[0]
    ratios, texts = [], []
    for heterogeneity in specification.heterogeneity:
        slow, fast = (found[method.name, variant, heterogeneity, goal] for variant in pair)
        both = slow.reached and fast.reached
        ratios.append(slow.rounds_median / fast.rounds_median if both else None)
        spread = _spread(slow, fast, "rounds") if both else ""
        texts.append(f"{ratios[-1]:.1f}x{spread}" if both else "not reached")
    return Seen(ratios[0] is not None and ratios[0] >= WORTH, f"{texts[0]}; {texts[1]}")


def seen_HR(specification: Spec, method: MethodSpec, cells: pd.DataFrame) -> Seen:
    """How many times more oracle calls very different nodes cost, at the tightest goal reached on the others."""
    found = _by_key(cells)
    wanted = specification.judge.HR
    variant = wanted if wanted in method.variants else list(method.variants)[-1]
    equal, different = specification.heterogeneity
    for goal in sorted(specification.goals):
        easy, hard = (found[method.name, variant, h, goal] for h in (equal, different))
        if not easy.reached:
            continue
        if not hard.reached:
            return Seen(False, f"{_goal(goal)}: floor {_number(hard.floor_median)}")
        ratio = hard.sfo_median / easy.sfo_median
        return Seen(True, f"{_goal(goal)}: {ratio:.1f}x{_spread(hard, easy, 'sfo')}")
    return Seen(None, "no goal reached on slightly different nodes")


def _spread(above: object, below: object, cost: str) -> str:
    """The least and the largest ratio that any two seeds have."""
    least = getattr(above, f"{cost}_min") / getattr(below, f"{cost}_max")
    most = getattr(above, f"{cost}_max") / getattr(below, f"{cost}_min")
    return f", {least:.1f} to {most:.1f}"


def contradictions(specification: Spec, cells: pd.DataFrame) -> Iterator[tuple[MethodSpec, str]]:
    """Where what was seen is not what is claimed: the method, and a sentence."""
    for method in specification.methods:
        for tick, seen in (("LU", seen_LU), ("HR", seen_HR)):
            verdict, why = seen(specification, method, cells)
            claimed = getattr(method, tick)
            if verdict is not None and verdict != claimed:
                who = "the paper says" if method.in_paper else "its authors say"
                yield method, f"{method.title}: {who} {tick} {_tick(claimed)}, seen is {_tick(verdict)} ({why})."


def _markdown(specification: Spec, cells: pd.DataFrame) -> str:
    parts = [f"# {escape_markdown(specification.title)}", escape_markdown(specification.caption)]
    letters = _letters(specification)
    body = []
    for method in specification.methods:
        mark = f"<sup>{letters[method.name]}</sup>" if method.name in letters else ""
        name = escape_markdown(method.title) + ("" if method.in_paper else " †") + mark
        formulas = [f"$O({text})$" if text else "--" for text in (method.sfo, method.communication)]
        body.append([name, *formulas, *map(escape_markdown, _claims(specification, method, cells))])
    parts += ["## Said and seen", grid(["Method", "SFO", "Communication", *CLAIMS], body)]
    judged, measured = _notes(specification)
    parts += [escape_markdown(judged)]
    parts += [f"<sup>{letters[m.name]}</sup> {escape_markdown(m.note)}" for m in specification.methods if m.note]
    for heterogeneity, what in zip(specification.heterogeneity, ("slightly", "very"), strict=True):
        parts.append(f"## Measured on {what} different nodes (heterogeneity {heterogeneity:g})")
        head = ["Method", "Variant", "eta\\_x, eta\\_y"]
        for goal in specification.goals:
            head += [f"SFO to {_goal(goal)}", "rounds", "exchanges"]
        parts.append(
            grid(head, [list(map(escape_markdown, line)) for line in _lines(specification, cells, heterogeneity)])
        )
    parts += [escape_markdown(measured)]
    found = [sentence for _, sentence in contradictions(specification, cells)]
    parts += ["## Seen is not said", "\n".join(f"- {escape_markdown(sentence)}" for sentence in found) or "Nowhere."]
    return "\n\n".join(parts) + "\n"


def _latex(specification: Spec, cells: pd.DataFrame, label: str) -> str:
    letters = _letters(specification)
    names = {}
    for method in specification.methods:
        mark = rf"\textsuperscript{{{letters[method.name]}}}" if method.name in letters else ""
        names[method.name] = escape_latex(method.title) + ("" if method.in_paper else r"\textsuperscript{\dag}") + mark
    claims = [
        latex_row(
            [
                names[method.name],
                *(rf"$O\left({text}\right)$" if text else "--" for text in (method.sfo, method.communication)),
                *(escape_latex(text) for text in _claims(specification, method, cells)),
            ]
        )
        for method in specification.methods
    ]
    notes = escape_latex(" ".join(_notes(specification)))
    foot = [
        rf"{{\footnotesize {notes}",
        *(
            rf"\textsuperscript{{{letters[method.name]}}}\,{escape_latex(method.note)}"
            for method in specification.methods
            if method.note
        ),
        "}",
    ]
    rows = [latex_row(["Method", "SFO", "Communication", *CLAIMS]), r"\midrule", *claims]
    columns = rf"l*{{{2 + len(CLAIMS)}}}{{c}}"
    lines = [*LATEX_NEEDS, *latex_table(columns, rows, escape_latex(specification.caption), label, foot)]
    for heterogeneity in specification.heterogeneity:
        groups = [rf"\multicolumn{{3}}{{c}}{{$\|\nabla\Phi\| \le$ {_goal(goal)}}}" for goal in specification.goals]
        rules = [rf"\cmidrule(lr){{{3 * i + 4}-{3 * i + 6}}}" for i in range(len(groups))]
        rows = [
            latex_row(["", "", "", *groups]),
            " ".join(rules),
            latex_row(["Method", "Variant", r"$\eta_x, \eta_y$", *["SFO", "rounds", "exchanges"] * len(groups)]),
            r"\midrule",
            *(latex_row(map(escape_latex, line)) for line in _lines(specification, cells, heterogeneity)),
        ]
        caption = rf"Table~\ref{{tab:{label}}}, continued: paid at heterogeneity {heterogeneity:g}."
        lines += latex_table(rf"lll*{{{3 * len(groups)}}}{{r}}", rows, caption)
    return "\n".join(lines) + "\n"


CLAIMS = (
    "Decentralized",
    "Objective",
    "Local updates (LU)",
    "LU seen",
    "Heterogeneity robustness (HR)",
    "HR seen",
    "Adversarial robustness (AR)",
)


def _claims(specification: Spec, method: MethodSpec, cells: pd.DataFrame) -> list[str]:
    said = {"LU": method.LU, "HR": method.HR}
    texts = [_tick(method.decentralized), method.objective]
    for tick, seen in (("LU", seen_LU), ("HR", seen_HR)):
        verdict, why = seen(specification, method, cells)
        shown = "--" if verdict is None else f"{_tick(verdict)} ({why})"
        texts += [_tick(said[tick]), shown]
    return [*texts, _tick(method.AR)]


def _lines(specification: Spec, cells: pd.DataFrame, heterogeneity: float) -> Iterator[list[str]]:
    """The lines of one bench: names, step sizes, and three numbers for each goal."""
    found = _by_key(cells)
    for method in specification.methods:
        for variant in method.variants:
            here = [found[method.name, variant, heterogeneity, goal] for goal in specification.goals]
            sizes = [here[0].eta_x, here[0].eta_y] if method.trainer.has_dual else [here[0].eta_x]
            line = [method.title if variant == next(iter(method.variants)) else "", variant]
            line.append(", ".join(f"{size:g}" for size in sizes))
            for cell in here:
                line += _costs(cell)
            yield line


def _costs(cell: Any) -> list[str]:
    if not cell.reached:
        some = f", {cell.seeds_reached} of {cell.seeds} seeds reached it" if cell.seeds_reached else ""
        floor = "diverged" if pd.isna(cell.floor_median) else f"floor {_number(cell.floor_median)}"
        return [f"not reached ({floor}{some})", "", ""]
    spread = f" ({cell.sfo_min:,.0f} to {cell.sfo_max:,.0f})" if cell.sfo_min < cell.sfo_max else ""
    apart = f" + {cell.all_reduces_median:,.0f} avg" if cell.all_reduces_median else ""
    exchanges = f"{cell.exchanges_median:,.0f}{apart}" if cell.exchanges_median or not apart else apart[3:]
    return [f"{cell.sfo_median:,.0f}{spread}", f"{cell.rounds_median:,.0f}", exchanges]


def _notes(specification: Spec) -> list[str]:
    """How the ticks are judged, and how the costs were measured."""
    slightly, very = specification.heterogeneity
    graph, n = specification.network.graph, specification.network.nodes
    judge = specification.judge
    return [
        f"LU, local updates. Seen: rounds of '{judge.LU[0]}' over rounds of '{judge.LU[1]}' until the norm is "
        f"{_goal(specification.goals[0])}, on slightly different nodes (heterogeneity {slightly:g}); on very "
        f"different ones ({very:g}); each with the least and the largest ratio of two seeds; yes if at least "
        f"{WORTH:g} on the first. HR, heterogeneity robustness. Seen: SFO calls of '{judge.HR}', or of the last "
        f"variant where there is none, on very over those on slightly different nodes, at the tightest goal that is "
        f"reached on the latter; yes if it is reached on the former too. AR, adversarial robustness: a minimax method "
        f"or not; nothing is measured. NC-SC: nonconvex in x, strongly concave in y; NC: nonconvex, without y. "
        f"† Not in the paper's table.",
        f"Medians over {len(specification.seeds)} seeds, in brackets the smallest and the largest. SFO calls are per "
        f"node, one call is a sample's pair of gradients, charged when it moves x or y; exchanges are synchronous "
        f"swaps with all neighbours; avg are all-reduces, exact averages over all nodes, counted apart. {n} nodes: a "
        f"{graph} for decentralized methods, a server for the others. Full: full local gradients; otherwise "
        f"minibatches. Reached: the median norm of {judge.window} rounds is at most the goal, with full gradients the "
        f"norm itself. Every run goes on until it has reached all goals or spent {specification.budget:,} SFO calls "
        f"per node; the floor is the median of the norm over its last quarter. Step sizes: the same grid for all, the "
        f"fewest SFO calls to the first goal among the points whose round, linearised, has a spectral radius below 1. "
        f"Slightly different nodes instead of equal ones: equal nodes with full gradients never disagree, and every "
        f"network is a server to them.",
    ]


def _letters(specification: Spec) -> dict[str, str]:
    noted = [method.name for method in specification.methods if method.note]
    return dict(zip(noted, LETTERS, strict=False))


def _by_key(cells: pd.DataFrame) -> dict[Key, Any]:
    return {(row.method, row.variant, row.heterogeneity, row.goal): row for row in cells.itertuples()}


def _tick(value: bool) -> str:
    return "yes" if value else "no"


def _goal(goal: float) -> str:
    return f"{goal:.0e}".replace("e-0", "e-")


def _number(value: float) -> str:
    return f"{value:.1e}".replace("e-0", "e-") if value < 0.01 else f"{value:.2g}"

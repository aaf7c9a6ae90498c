"""Both sides of the paper's Lemmas A.5 to A.11, round by round, from what `diagnose` saw.

With E = E_x + E_y, the letters of `diagnostics`, and + for the start of the next round:

    A.5   E_x <= 3 K Xi_x + 12 K^2 eta_c^2 l^2 E_y + 12 K^3 eta_c^2 l^2 gamma_x + 12 K^3 eta_c^2 l^2 delta
                 + 12 K^3 eta_c^2 ||grad Phi||^2 + 3 K^2 eta_c^2 sigma^2
          E_y <= 3 K Xi_y + 12 K^2 eta_d^2 l^2 E_x + 12 K^3 eta_d^2 l^2 gamma_y + 6 K^3 eta_d^2 l^2 delta
                 + 3 K^2 eta_d^2 sigma^2
    A.6   Xi_x+ <= (1 - p/2) Xi_x + 6 K eta_x^2 l^2 E / p + 6 K^2 eta_x^2 l^2 gamma_x / p + K eta_x^2 sigma^2, and for y
    A.7   Delta_x + Delta_y <= 2 K l^2 (eta_x^2 + eta_y^2) E + 2 K^2 l^2 (2 eta_x^2 + eta_y^2) delta
                 + 4 K^2 eta_x^2 ||grad Phi||^2 + K sigma^2 (eta_x^2 + eta_y^2) / n
    A.8   gamma_x+ <= (1 - p/2) gamma_x + 25 E / (p K) + 12 K^2 l^2 (2 eta_x^2 + eta_y^2) delta / p
                 + 24 K^2 eta_x^2 ||grad Phi||^2 / p + 2 sigma^2 / (K l^2), and for y with the same terms
    A.9   lag <= (1 + a) (1 - K eta_y mu) delta + (1 + 1/a) K eta_y^2 l^2 E + K eta_y^2 sigma^2 / n for every a > 0,
          so at the a that makes it smallest: (sqrt((1 - K eta_y mu) delta) + sqrt(K eta_y^2 l^2 E))^2 + ...
    A.10  delta+ <= (1 - K eta_y l / (6 kappa)) delta + 12 eta_y l kappa E
                 + 16 kappa^3 K eta_x^2 ||grad Phi||^2 / (eta_y l) + 8 eta_y sigma^2 kappa / (n l)
    A.11  Phi+ <= Phi + 2 eta_x l^2 E + 2 l^2 eta_x K delta - (eta_x K / 4) ||grad Phi||^2
                 + K eta_x^2 l sigma^2 kappa / n; Phi* is taken from both sides, so that neither is negative

They bound expectations. With full gradients nothing is random, and every round of every seed is judged by itself. With
minibatches both sides are means over the seeds, sigma^2 is the largest that any of them met in the round, and a round
counts as a violation only if the left is above the right by more than three standard errors of their difference.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from robustbench_dec import files
from robustbench_dec.errors import BadInput
from robustbench_dec.theory.diagnostics import Constants, Diagnosis

ROUNDING = 1e-9
"""Of the right side: so much may the left be above it by rounding."""

NOTHING = 1e-26
"""Times the largest of 1, |Phi| and delta: squares below it are zeros with rounding errors, as is its root for Phi."""

ERRORS = 3.0
"""Standard errors."""

FEWEST = 5
"""Seeds that a mean over seeds needs."""


class Inequality(NamedTuple):
    """A lemma's name, the block that it is about ("" for both), and its sides for the rows now and the rows next."""

    lemma: str
    block: str
    left: Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
    right: Callable[[pd.DataFrame], pd.Series]


def inequalities(known: Constants, nodes: int, phi_star: float) -> list[Inequality]:
    """All ten, with the run's numbers put in."""
    K, l, p, mu, kappa, n = known.K, known.l, known.p, known.mu, known.kappa, nodes  # noqa: E741
    x2, y2, c2, d2 = known.eta_x**2, known.eta_y**2, known.eta_c**2, known.eta_d**2
    eta_x, eta_y = known.eta_x, known.eta_y

    def drift(r: pd.DataFrame) -> pd.Series:
        return r["E_x"] + r["E_y"]

    def slope(r: pd.DataFrame) -> pd.Series:
        return r["grad_phi"] ** 2

    def local_x(r: pd.DataFrame) -> pd.Series:
        tracked = 12 * K**3 * c2 * (l**2 * (r["gamma_x"] + r["delta"]) + slope(r))
        return 3 * K * r["Xi_x"] + 12 * K**2 * c2 * l**2 * r["E_y"] + tracked + 3 * K**2 * c2 * r["sigma2"]

    def local_y(r: pd.DataFrame) -> pd.Series:
        tracked = K**3 * d2 * l**2 * (12 * r["gamma_y"] + 6 * r["delta"])
        return 3 * K * r["Xi_y"] + 12 * K**2 * d2 * l**2 * r["E_x"] + tracked + 3 * K**2 * d2 * r["sigma2"]

    def variance(block: str, eta2: float) -> Callable[[pd.DataFrame], pd.Series]:
        return lambda r: (
            (1 - p / 2) * r[f"Xi_{block}"]
            + 6 * K * eta2 * l**2 / p * drift(r)
            + 6 * K**2 * eta2 * l**2 / p * r[f"gamma_{block}"]
            + K * eta2 * r["sigma2"]
        )

    def progress(r: pd.DataFrame) -> pd.Series:
        moved = 2 * K * l**2 * (x2 + y2) * drift(r) + 2 * K**2 * l**2 * (2 * x2 + y2) * r["delta"]
        return moved + 4 * K**2 * x2 * slope(r) + K * r["sigma2"] * (x2 + y2) / n

    def correction(block: str) -> Callable[[pd.DataFrame], pd.Series]:
        return lambda r: (
            (1 - p / 2) * r[f"gamma_{block}"]
            + 25 / (p * K) * drift(r)
            + 12 * K**2 * l**2 / p * (2 * x2 + y2) * r["delta"]
            + 24 * K**2 * x2 / p * slope(r)
            + 2 * r["sigma2"] / (K * l**2)
        )

    def lag(r: pd.DataFrame) -> pd.Series:
        kept, strayed = (1 - K * eta_y * mu) * r["delta"], K * y2 * l**2 * drift(r)
        # kept is negative only where A.9's condition is broken, and nothing is claimed there
        smallest = (kept.clip(lower=0) ** 0.5 + strayed**0.5) ** 2
        return smallest + K * y2 * r["sigma2"] / n

    def maximiser(r: pd.DataFrame) -> pd.Series:
        kept = (1 - K * eta_y * l / (6 * kappa)) * r["delta"] + 12 * eta_y * l * kappa * drift(r)
        return kept + 16 * kappa**3 * K * x2 / (eta_y * l) * slope(r) + 8 * eta_y * r["sigma2"] * kappa / (n * l)

    def descent(r: pd.DataFrame) -> pd.Series:
        gained = 2 * eta_x * l**2 * drift(r) + 2 * l**2 * eta_x * K * r["delta"] - eta_x * K / 4 * slope(r)
        return r["phi"] - phi_star + gained + K * x2 * l * r["sigma2"] * kappa / n

    return [
        Inequality("A.5", "x", lambda r, _: r["E_x"], local_x),
        Inequality("A.5", "y", lambda r, _: r["E_y"], local_y),
        Inequality("A.6", "x", lambda _, s: s["Xi_x"], variance("x", x2)),
        Inequality("A.6", "y", lambda _, s: s["Xi_y"], variance("y", y2)),
        Inequality("A.7", "", lambda r, _: r["Delta_x"] + r["Delta_y"], progress),
        Inequality("A.8", "x", lambda _, s: s["gamma_x"], correction("x")),
        Inequality("A.8", "y", lambda _, s: s["gamma_y"], correction("y")),
        Inequality("A.9", "", lambda r, _: r["lag"], lag),
        Inequality("A.10", "", lambda _, s: s["delta"], maximiser),
        Inequality("A.11", "", lambda _, s: s["phi"] - phi_star, descent),
    ]


def broken(known: Constants) -> dict[str, str]:
    """For each lemma whose conditions on the step sizes do not all hold, the first that does not."""
    found: dict[str, str] = {}
    needs = {"A.10": ("Lemma A.9", "Lemma A.10")}  # A.10 asks what A.9 asks, and more
    limits = known.conditions()
    for lemma in ("A.5", "A.8", "A.9", "A.10", "A.11"):
        for limit in limits:
            if limit.lemma in needs.get(lemma, (f"Lemma {lemma}",)) and not limit.holds:
                found.setdefault(lemma, limit.text)
    return found


def sides(diagnosis: Diagnosis) -> pd.DataFrame:
    """One row per inequality and round (and seed, if nothing is random): left, right, ratio, and what came out.

    `outcome` is "holds", "violated" or "not applicable: <the condition that is broken>".
    """
    if diagnosis.uncovered:
        raise BadInput(f"no lemma covers this run: {diagnosis.uncovered}")
    rows, known = diagnosis.rows, diagnosis.constants
    nodes = diagnosis.record["settings"]["network"]["nodes"]
    now, following = _rounds(rows)
    noisy = bool((now["sigma2"] > 0).any())
    if noisy and rows["seed"].nunique() < FEWEST:
        raise BadInput(
            f"the lemmas bound expectations: with minibatches both sides are means over at least {FEWEST} seeds, not "
            f"{rows['seed'].nunique()}; more seeds would do, or full gradients (batch = all of a node's samples)"
        )
    if noisy:  # one sigma for all seeds of a round
        now = now.assign(sigma2=now.groupby("round")["sigma2"].transform("max"))
    conditions = broken(known)
    size = 1 + now[["phi", "delta"]].abs().max().max()
    parts = []
    for lemma, block, left_of, right_of in inequalities(known, nodes, diagnosis.record["phi_star"]["value"]):
        frame = now[["seed", "round"]].assign(left=left_of(now, following), right=right_of(now))
        slack = size * (NOTHING if lemma != "A.11" else math.sqrt(NOTHING))
        frame["spread"] = 0.0
        if noisy:
            frame = _over_seeds(frame)
        above = frame["left"] - frame["right"]
        violated = above > ROUNDING * frame["right"].abs() + slack + ERRORS * frame["spread"]
        outcome = np.where(violated, "violated", "holds")
        if lemma in conditions:
            outcome = np.full(len(frame), f"not applicable: {conditions[lemma]} is broken")
        ratio = frame["left"] / frame["right"].where(frame["right"].abs() > slack)
        names = {"lemma": lemma, "block": block}
        parts.append(frame.assign(**names, ratio=ratio, outcome=outcome))
    columns = ["lemma", "block", "seed", "round", "left", "right", "ratio", "outcome"]
    return pd.concat(parts, ignore_index=True)[columns]


class Verdict(NamedTuple):
    """A lemma over all rounds; a reason where it does not apply."""

    lemma: str
    checked: int
    largest_ratio: float
    violations: int
    reason: str

    def __str__(self) -> str:
        if self.reason:
            return f"Lemma {self.lemma}: {self.reason}"
        return (
            f"Lemma {self.lemma}: {self.checked} rounds checked, largest left / right {self.largest_ratio:.4g}, "
            f"{self.violations} violations"
        )


def verdicts(table: pd.DataFrame) -> list[Verdict]:
    """One per lemma."""
    found = []
    for lemma, group in table.groupby("lemma", sort=False):
        outcomes = group["outcome"]
        applies = ~outcomes.str.startswith("not applicable")
        checked = group.loc[applies, ["seed", "round"]].drop_duplicates()
        found.append(
            Verdict(
                str(lemma),
                len(checked),
                float(group.loc[applies, "ratio"].max()) if applies.any() else math.nan,
                int((outcomes == "violated").sum()),
                "" if applies.any() else str(outcomes.iloc[0]),
            )
        )
    return found


def write(table: pd.DataFrame, stem: Path) -> Path:
    """<stem>-lemmas.csv."""
    path = stem.with_name(f"{stem.name}-lemmas.csv")
    files.write_text(path, table.to_csv(index=False, lineterminator="\n", float_format="%.7g"))
    return path


def _rounds(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of all rounds, and beside them those of the rounds that follow."""
    last = rows.groupby("seed")["round"].transform("max")
    now, following = rows[rows["round"] < last], rows[rows["round"] > 0]
    return now.reset_index(drop=True), following.reset_index(drop=True)


def _over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds, and the standard error of left - right."""
    groups = frame.assign(above=frame["left"] - frame["right"]).groupby("round")
    means = groups[["left", "right"]].mean()
    spread = groups["above"].std() / np.sqrt(groups.size())
    return means.assign(spread=spread, seed="mean").reset_index()

"""Are Table 2's attacks at full strength? The table's stored outcomes against stronger versions of its attacks.

    python benchmarks/attack_strength.py [--seed 0] [--dataset mnist] [--method k_gt] [--attack pgd] [--kind twice]

On the networks that Table 2's runs keep: PGD with twice the steps on the first test images, UAP with twice the steps
(of every anneal) on all of them, both at every radius of the table. On a method's first network also, at the middle
radius: UAP with another seed, and one ascent from y = 0 by sign steps, by Adam, and by SGA or sign steps, whichever
leaves fewer right, which are those of attacks/uap.py. What the table has on the same images comes from its cells. Cells
are kept in out/strength, so that a run that was stopped goes on. Writes benchmarks/attack_strength.csv; rows that are
not asked for stay if they are about today's networks and attacks. With --publish UAP's cells with twice the steps go to
the runs of Table 2 and on the leaderboard's list, as the suite's own: they count in every worst case, and the table's
cells above them by more than a point get a flag.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pandas as pd

from robustbench_dec import bars, files
from robustbench_dec.problem import Classifier
from robustbench_dec.running import cells, suite
from robustbench_dec.specs import table as specs
from robustbench_dec.store import locks, publishing, zoo
from robustbench_dec.store.results import Results, Run

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "attack_strength.csv"
KEYS = ["dataset", "method", "seed", "attack", "eps", "kind", "change", "checkpoint"]
UAP = "uap_annealed"
ALONE: dict[str, Any] = {"name": "uap", "search": 0, "restarts": 1, "anchor": None}
ASCENTS: dict[str, dict[str, Any]] = {
    "sign steps alone": ALONE | {"step": "sign", "rel_alpha": 0.05, "decay": False, "sga": 0},
    "Adam alone": ALONE | {"step": "adam", "rel_alpha": 0.1, "decay": False, "sga": 0},
    "SGA alone": ALONE | {"step": "sign", "rel_alpha": 0.1, "decay": False, "sga": 1},
}
TWICE, RESEEDED = "twice the steps", "another seed"
OTHER = 100
"""What is added to the seed."""
FIRST = 1000
"""Test images that PGD attacks; a universal perturbation costs no more on all of them."""


class Job(NamedTuple):
    """One network under one changed attack, at all its radii."""

    item: suite.Work
    home: Run
    asked: specs.AttackSpec
    changed: specs.AttackSpec
    kind: str
    seed: int  # of the attack

    @property
    def change(self) -> str:
        """What differs from the table's attack."""
        given, usual = self.changed.model_extra or {}, self.asked.model_extra or {}
        seed = [] if self.seed == self.item.run.seed else [f"seed = {self.seed}"]
        return ", ".join([f"{name} = {value}" for name, value in given.items() if usual.get(name) != value] + seed)

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        run, sha256 = self.item.run, self.home.record.checkpoint_sha256[:12]
        what = (run.data_set, run.method, run.seed, self.asked.name)
        return [(*what, attack.eps, self.kind, self.change, sha256) for attack in self.changed.build()]

    @property
    def requests(self) -> list[cells.Request]:
        n = FIRST if self.asked.name == "pgd" else None
        return [cells.Request(self.changed.name, attack, self.seed, n) for attack in self.changed.build()]

    def rows(self, strength: Results, problem: Classifier) -> Iterator[list[Any]]:
        """What the table has, what the changed attack leaves right, and by how many points that is less."""
        run, wanted = self.item.run, self.requests
        stored = {request.attack.eps: request for request in self.item.cells if request.name == self.asked.name}
        elsewhere, entry = strength.run(run.id), zoo.of_run(self.home)
        elsewhere.adopt(entry.record)
        found = cells.attack(elsewhere, wanted, problem=problem, model=entry.model())
        for key, record in zip(self.keys, found, strict=True):
            before = self.home.cell(stored[record.eps].key).record.right[: len(record.right)].double().mean().item()
            after = record.right.double().mean().item()
            yield [*key, len(record.right), round(before, 6), round(after, 6), round(100 * (before - after), 2)]


def jobs(table: specs.Spec, results: Results) -> Iterator[Job]:
    seen = set()
    for item in suite.listed(table):
        home, first = results.run(item.run.id), (item.run.data_set, item.run.method) not in seen
        if not home.exists:  # a run that diverged has no network
            continue
        seen.add((item.run.data_set, item.run.method))
        for asked in item.block.attacks:
            for kind, changed in stronger(asked, others=first).items():
                seed = item.run.seed + (OTHER if kind == RESEEDED else 0)
                yield Job(item, home, asked, changed, kind, seed)


def stronger(asked: specs.AttackSpec, others: bool) -> dict[str, specs.AttackSpec]:
    """The attack with changes that should not matter if it has converged, and other ascents at one radius, by kind."""
    if asked.name == "fgsm":
        return {}
    usual = asked.build()[0].settings()
    changes: dict[str, dict[str, Any]] = {TWICE: {k: 2 * usual[k] for k in ("steps", "search") if k in usual}}
    if asked.name == UAP and others:
        middle = {"eps": [asked.eps[len(asked.eps) // 2]]}
        changes |= {kind: middle | change for kind, change in {RESEEDED: {}, **ASCENTS}.items()}
    return {kind: asked.model_copy(update=change) for kind, change in changes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where Table 2's runs are")
    parser.add_argument("--seed", type=int, action="append", help="only these")
    parser.add_argument("--dataset", help="only this one")
    parser.add_argument("--method", help="only this one")
    parser.add_argument("--attack", help="only what is changed of this attack of the table's")
    parser.add_argument("--kind", default="", help="only changes whose kind has this in it, such as twice")
    parser.add_argument(
        "--publish", action="store_true", help="put UAP's cells with twice the steps on the leaderboard"
    )
    arguments = parser.parse_args()
    results, strength = Results(arguments.results), Results(ROOT / "out" / "strength")
    all_jobs = list(jobs(table2(), results))
    chosen = [
        job
        for job in all_jobs
        if arguments.seed is None or job.item.run.seed in arguments.seed
        if arguments.dataset in (None, job.item.run.data_set)
        if arguments.method in (None, job.item.run.method)
        if arguments.attack in (None, job.asked.name)
        if arguments.kind in job.kind
    ]
    known = {key for job in all_jobs for key in job.keys}
    for job in bars.bar(chosen, desc="attack strength", unit="attack"):
        problem = cast(Classifier, job.item.run.build_problem())
        write(list(job.rows(strength, problem)), known)
    if arguments.publish:
        publish([job for job in chosen if job.asked.name == UAP and job.kind == TWICE], strength, results)


def publish(done: list[Job], strength: Results, results: Results) -> None:
    """Copy cells to their runs, and put them on the list; `robustbench-dec render` then shows them."""
    with results.claim_leaderboard():
        there = []
        for job in done:
            for request in job.requests:
                strength.run(job.home.id).cell(request.key).copy_to(job.home)
                there.append(job.home.cell(request.key))
        files.write_bytes(results.publication, publishing.with_own(results, there).content())


def table2() -> specs.Spec:
    return specs.read(ROOT / "tables" / "table2.toml")


def write(rows: list[list[Any]], known: set[tuple[Any, ...]]) -> None:
    """Put rows into the file, in place of those that have their keys; another process may measure another method."""
    with locks.claim(FILE):
        frame = pd.DataFrame(rows, columns=[*KEYS, "n_examples", "table", "changed", "points_below_table"])
        frame = pd.concat([pd.read_csv(FILE), frame] if FILE.is_file() else [frame])
        frame = frame[[key in known for key in frame[KEYS].itertuples(index=False, name=None)]]
        frame = frame.drop_duplicates(KEYS, keep="last").sort_values(KEYS[:6], kind="stable")
        files.write_text(FILE, frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

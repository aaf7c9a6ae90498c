"""How much of Table 2's margin on CIFAR-10 is y, and how much the step sizes: both methods at both chosen trials.

    python benchmarks/same_steps.py [--jobs 2]

The protocol's search gave the methods different trials there, so different step sizes in x. Here each method is
trained once more at the trial that the other one was given (Dec-FedTrack with that trial's own eta_d and radius), on
seeds 0 to 2, and attacked by protocol.md alone, with its own UAP. Nothing is chosen by it. It was set up after Table
2's test numbers had been seen, because of them; what is said of it in docs/reproduction.md was worded before its runs.
Runs are kept in out/same-steps, so that a stopped one goes on. Writes benchmarks/same_steps.csv: every accuracy by
trial and seed.
"""

import argparse
from pathlib import Path

import pandas as pd

from robustbench_dec import files, titles
from robustbench_dec.running import suite, trials
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs import table as specs
from robustbench_dec.store.results import Results

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "same_steps.csv"
BLOCK = "CIFAR-10"
SEEDS = [0, 1, 2]


def table(block: specs.BlockSpec, changes: dict[str, dict[str, float]], published: specs.Spec) -> specs.Spec:
    """Table 2's block, its methods at other points; a `radius` is that of y in training."""
    entries, problems = {}, {}
    for method, point in changes.items():
        settings = {name: value for name, value in point.items() if name != "radius"}
        entries[method] = block.trainers[method] | settings
        problems[method] = {"eps": point["radius"]} if "radius" in point else {}
    changed = block.model_copy(update={"trainers": entries, "problems": problems})
    return published.model_copy(update={"blocks": [changed], "seeds": SEEDS})


def rows(work: list[suite.Work], results: Results, number: dict[str, int]) -> list[list[object]]:
    """Clean accuracy and that under each attack, of every run that did not diverge."""
    found: list[list[object]] = []
    for item in work:
        home, method = results.run(item.run.id), item.run.method
        key = [number[method], method, item.run.seed]
        if not home.exists:
            continue
        classifier = home.record.classifier
        assert classifier is not None
        found.append([*key, titles.CLEAN, 0.0, classifier.clean.mean_model])
        for request in item.cells:
            cell = home.cell(request.key).record
            found.append([*key, cell.attack, cell.eps, cell.robust_acc])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at once")
    jobs = parser.parse_args().jobs
    rules, published = protocols.read(ROOT / "tables" / "protocol.toml"), specs.read(ROOT / "tables" / "table2.toml")
    chosen = trials.choice(rules, trials.read(ROOT / "tables" / rules.trials_file))
    number = {method: chosen[BLOCK, method].number for method in rules.methods}
    baseline, method = rules.methods
    swapped = {baseline: number[method], method: number[baseline]}
    (asked,) = (block for block in rules.blocks if block.title == BLOCK)
    points = {method: rules.points(asked, method, rules.trials)[trial] for method, trial in swapped.items()}
    (block,) = (block for block in published.blocks if block.title == BLOCK)
    block = block.model_copy(update={"attacks": asked.attacks})  # protocol.md's, with its UAP
    here = suite.listed(table(block, points, published))
    there = suite.listed(published.model_copy(update={"blocks": [block], "seeds": SEEDS}))
    made = Results(ROOT / "out" / "same-steps")
    suite.make(here, made, title="same steps", jobs=jobs)
    lines = [*rows(there, Results(ROOT / "results"), number), *rows(here, made, swapped)]
    frame = pd.DataFrame(lines, columns=["trial", "method", "seed", "attack", "eps", "accuracy"])
    frame = frame.sort_values(["trial", "method", "seed"], kind="stable")
    files.write_text(FILE, frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

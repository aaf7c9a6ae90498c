"""How fast is robust logistic regression, beside version 0.1.0? a9a, 10 nodes, the settings of Figures 1 and 2.

Both versions train in processes of their own and in turn; the ratio is the median over the turns. In double precision
both train `--rounds` rounds from the start, after which Phi must be the same to 1e-10 (relative); in single precision,
the table's own, rounding parts their ways. DREAM and GT-DA are defined otherwise since (coins per node; gradients of
one block), so their Phi is not the same. Writes benchmarks/logistic_speed.csv.
"""

import argparse
import statistics
from pathlib import Path

from tqdm.auto import tqdm
from versions import OLD, ROOT, Version, checkout, write  # type: ignore[import-not-found]

STEPS = {"eta_x": 1.0, "eta_y": 1e-2 / 32560}
METHODS: dict[str, dict[str, float]] = {
    "dream": STEPS,
    "dm_hsgd": STEPS,
    "gt_srvr": {**STEPS, "batch": 64},
    "dec_fedtrack": {"eta_c": 1.0, "eta_d": 1e-2 / 32560, "K": 1, "batch": 64},
    "gt_gda": STEPS,
    "gt_da": STEPS,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=OLD, help="a commit, or a folder with another version")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    rows = []
    with checkout(options.old) as old:
        for method in tqdm(options.methods, disable=None):
            phis, times = [], []
            for precision in ("double", "single"):
                problem = {"dataset": "a9a", "nodes": 10, "precision": precision}
                asked = {"problem": "robust_logistic", "problem_settings": problem, "nodes": 10}
                asked |= {"trainer": method, "settings": METHODS[method]}
                pair = [Version(Path(folder), asked, options.threads) for folder in (old, ROOT)]
                for version in pair:
                    version.seconds(options.rounds)
                if precision == "double":
                    phis = [version.phi() for version in pair]
                else:
                    times = [[version.seconds(options.rounds) for version in pair] for _ in range(options.turns)]
                for version in pair:
                    version.close()
            ms = [statistics.median(column) / options.rounds * 1e3 for column in zip(*times, strict=True)]
            row = {"method": method, "threads": options.threads, "old_ms_per_round": ms[0], "ms_per_round": ms[1]}
            row |= {"speedup": statistics.median(before / now for before, now in times), "phi": phis[1]}
            rows.append(row | {"phi_relative_difference": abs(phis[1] / phis[0] - 1)})
    write(__file__, rows, ["method", "threads"])


if __name__ == "__main__":
    main()

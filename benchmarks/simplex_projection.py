"""How much faster is the projection onto the simplex without sorting? As a ratio to the sort-based formula.

Both project the same stack (n, N), in turn, and the best time of each counts, because on a busy machine the others tell
how long it waited. N is that of phishing, a9a and w8a with 10 nodes, then smaller with more nodes. The points:

    step     a point of the simplex after a step of y on a minibatch of 64 of each row's coordinates, as in training
    losses   1/N + losses, as in Phi of scaling B: only a few coordinates stay above 0
    normal   standard normal numbers over sqrt N: the threshold is far from where the search begins

Writes benchmarks/simplex_projection.csv.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import softplus
from tqdm.auto import tqdm

from robustbench_dec import files, simplex

SHAPES = ((10, 11_050), (10, 32_560), (10, 49_740), (100, 5_000), (1000, 1_000))


def points(n: int, N: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The stacks to project, by name."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(n, N, generator=generator, dtype=torch.float64)
    losses = softplus(2 * normal)
    step = simplex.project((1 + losses) / N)
    batch = torch.rand(n, N, generator=generator).topk(64, dim=1).indices
    step.scatter_add_(1, batch, 0.1 / 64 * losses.gather(1, batch))
    return {name: Y.to(dtype) for name, Y in (("step", step), ("losses", 1 / N + losses), ("normal", normal / N**0.5))}


def seconds(function: Callable[[Tensor], Tensor], Y: Tensor) -> float:
    began = time.perf_counter()
    function(Y)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    rows = []
    for n, N in tqdm(SHAPES, disable=None):
        for dtype in (torch.float64, torch.float32):
            for name, Y in points(n, N, dtype).items():
                simplex.project(Y)  # the first call is not measured
                pairs = [(seconds(simplex.project, Y), seconds(simplex.project_by_sorting, Y)) for _ in range(repeats)]
                ours, sorting = map(min, zip(*pairs, strict=True))
                difference = simplex.project(Y.double()) - simplex.project_by_sorting(Y.double())
                row = {"n": n, "N": N, "dtype": str(dtype)[6:], "points": name, "threads": torch.get_num_threads()}
                row |= {"project_ms": ours * 1e3, "sorting_ms": sorting * 1e3}
                row |= {"speed_up": sorting / ours, "largest_difference": difference.abs().max().item()}
                rows.append(row)
    frame = pd.DataFrame(rows).round({"project_ms": 3, "sorting_ms": 3, "speed_up": 1})
    print(frame.to_string(index=False))
    text = frame.to_csv(index=False, lineterminator="\n", float_format="%.3g")
    files.write_text(Path(__file__).with_suffix(".csv"), text)


if __name__ == "__main__":
    main()

"""Time of a loss on small batches: the matrix beside the blocks, and both beside plain torch.

For every objective on the sphere, forward and backward, one thread, CPU time: the median over
rounds of the time with ``backend="eager"`` over that with ``backend="rowblock"``, in the same
round. Where it is below 1, ``backend="auto"`` should hold the matrix: `kernels.choose.EAGER_BYTES`
is that crossover. InfoNCE and its form for both directions stand beside plain torch, too.

    python benchmarks/small.py [--only WORD] [--rows N ...] [--dimensions D ...] [--csv FILE]

Written: FILE, by default benchmarks/small.csv, a row for each objective and size; a row that is
there is replaced.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import loss_cases

KEY = ("name", "n", "d")
COLUMNS = (*KEY, "eager_over_rowblock", "auto_over_plain", "eager_ms", "torch", "threads")
ROUNDS, LEAST = 9, 0.006  # rounds, and seconds of a round
PLAIN = {"infonce": loss_cases.plain_infonce, "infonce symmetric": loss_cases.plain_clip}


def measure(name: str, n: int, d: int) -> dict[str, object]:
    """Return the row of one objective at one size."""
    objective = loss_cases.objective(name)
    inputs = [torch.randn(n, d, requires_grad=True) for _ in range(2)]
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        backend: lambda a, p, backend=backend: objective(a, p, backend=backend)
        for backend in ("eager", "rowblock", "auto")
    }
    if name in PLAIN:
        ways["plain"] = PLAIN[name]

    def seconds(way: str, calls: int) -> float:
        start = time.process_time()
        for _ in range(calls):
            ways[way](*inputs).backward()
            inputs[0].grad = inputs[1].grad = None
        return (time.process_time() - start) / calls

    for way in ways:
        seconds(way, 2)
    calls = max(1, int(LEAST / seconds("eager", 2)))
    rounds = [{way: seconds(way, calls) for way in ways} for _ in range(ROUNDS)]

    def ratio(one: str, other: str) -> str:
        return f"{statistics.median(r[one] / r[other] for r in rounds):.2f}"

    return {
        "name": name,
        "n": n,
        "d": d,
        "eager_over_rowblock": ratio("eager", "rowblock"),
        "auto_over_plain": ratio("auto", "plain") if name in PLAIN else "",
        "eager_ms": f"{1000 * statistics.median(r['eager'] for r in rounds):.3f}",
        "torch": torch.__version__,
        "threads": 1,
    }


def names() -> list[str]:
    """Return the objectives that have a choice of backends."""
    from isotrope.paradigm import registry

    built = {name: loss_cases.objective(name) for name in registry.names()}
    able = [name for name, x in built.items() if x.pairwise and x.space == "sphere"]
    return [*able, "infonce symmetric"]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="objectives whose name has this word")
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 32, 64, 128, 192, 256])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[128, 768])
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kept: dict[tuple[str, ...], dict[str, object]] = {}
    if arguments.csv.exists():
        with arguments.csv.open(newline="") as file:
            kept = {tuple(row[k] for k in KEY): dict(row) for row in csv.DictReader(file)}
    for d in arguments.dimensions:
        for n in arguments.rows:
            rows = [measure(name, n, d) for name in names() if arguments.only in name]
            kept.update({tuple(str(row[k]) for k in KEY): row for row in rows})
            middle = statistics.median(float(str(row["eager_over_rowblock"])) for row in rows)
            beside = ", ".join(
                f"{row['name']} {row['auto_over_plain']}" for row in rows if row["auto_over_plain"]
            )
            print(f"n {n}, d {d}: eager / rowblock {middle:.2f} (median); auto / plain: {beside}")
    with arguments.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(
            kept[key] for key in sorted(kept, key=lambda k: (k[0], int(k[2]), int(k[1])))
        )


if __name__ == "__main__":
    main()

"""Trains the small images of draganov2024 and manna2023 on a CPU, and writes image-cells.csv.

It runs every training of `papers.machinery.small_images`, which says how they are set, with three
seeds: 5,000 images of CIFAR-10, ResNet-18 of 16 channels. They are jobs of `python -m papers` too:
what one of the two commands has run, the other does not run again. The first seed of every training
comes before the second; the trainings in LATER come after all others. Nearest neighbours (k = 200,
t = 0.1) are looked up among the 5,000 for the 10,000 test images.

    python -m papers.image_trainings DATA [--minutes M] [--jobs N] [--only WORD]

DATA is the folder that holds cifar10/. The command writes docs/results/image-cells.csv, of all jobs
that have a result; the tables of `python -m papers` have their means.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from isotrope.core import Result, atomic_replace
from papers.machinery.artifact import Scale
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS
from papers.machinery.runner import run
from papers.machinery.small_images import NAMES, small_images
from papers.machinery.store import JobStore
from papers.stages import say

RESULTS = Path(__file__).parents[1] / "docs" / "results"
OUTPUT = RESULTS / "reproduce"
SCALE: Scale = "cpu"
LATER = {
    *("DCL", "DCLW", "DCLW, constant weights"),
    *(n for n in NAMES if "decay" in n and not n.startswith("SimCLR")),
}
MEANS = (
    *("loss", "norm", "norm_backbone", "opposite_halves", "far_opposite", "std"),
    "effective_rank",
)
COLUMNS = ("cell", "seed", "epoch", "knn", "linear", *MEANS, "cpu_seconds", "versions")
Row = dict[str, str]


def jobs(only: str = "") -> Iterator[tuple[str, PaperJob]]:
    """Yield the trainings with a word in their name, in the order in which they are run."""
    for later in (False, True):
        for seed in SEEDS[SCALE]:
            for name in NAMES:
                if (name in LATER) == later and only in name:
                    yield name, small_images(SCALE, name, (seed,))[0]


def rows(store: JobStore) -> list[Row]:
    """Return a row for each accuracy of the finished trainings, in the order of the names."""
    rows_ = []
    for name in NAMES:
        for seed in SEEDS[SCALE]:
            result = store.find(small_images(SCALE, name, (seed,))[0])
            rows_ += [] if result is None else list(_rows(name, seed, result))
    return rows_


def _rows(name: str, seed: int, result: Result) -> Iterator[Row]:
    logged_rows = result.details.get("looks", [])  # one that diverged has none
    for logged_row in logged_rows:
        versions = result.provenance["versions"]
        last = {}
        if logged_row is logged_rows[-1]:
            last = {
                "linear": f"{result.metrics['linear']:.4g}",
                "cpu_seconds": f"{result.provenance['cpu_seconds']:.0f}",
            }
        yield {
            **dict.fromkeys(COLUMNS, ""),
            **{name: f"{logged_row[name]:.6g}" for name in MEANS if name in logged_row},
            "cell": name,
            "seed": str(seed),
            "epoch": f"{logged_row['epoch']:g}",
            "knn": f"{logged_row['knn']:.4g}",
            "versions": f"isotrope {versions['isotrope']}, torch {versions['torch']}",
            **last,
        }


def main() -> None:
    """Run the missing trainings, then write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder that holds cifar10/")
    parser.add_argument("--minutes", type=float, help="start no job after so many")
    parser.add_argument("--jobs", type=int, default=2, help="jobs at a time, one thread each [2]")
    parser.add_argument("--only", default="", metavar="WORD", help="jobs with WORD in their name")
    options = parser.parse_args()
    store = JobStore(OUTPUT / "cells")
    run(
        [job for _, job in jobs(options.only)],
        store,
        DataRegistry(options.data, OUTPUT / "data"),
        OUTPUT / "runs",
        processes=options.jobs,
        minutes=options.minutes,
        tell=say,
    )
    with (
        atomic_replace(RESULTS / "image-cells.csv") as part,
        part.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(store))


if __name__ == "__main__":
    main()

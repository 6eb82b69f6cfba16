"""Trains the small images of draganov2024 and manna2023 on a CPU; the claims about them.

It runs every training of `papers.machinery.recipes`, which says how they are set, with three
seeds: 5,000 images of CIFAR-10, ResNet-18 of 16 channels. They are jobs of `python -m papers` too,
whose tables have their means: what one of the two commands has run, the other does not run again.
The first seed of every training comes before the second; the trainings in LATER come after all
others. Nearest neighbours (k = 200, t = 0.1) are looked up among the 5,000 for the 10,000 test
images.

    python -m papers.image_trainings DATA [--minutes M] [--jobs N] [--only WORD]

DATA is the folder that holds cifar10/.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from isotrope.core import Result
from papers import stages
from papers.draganov2024.trainings import CUT, named
from papers.machinery import logged
from papers.machinery.artifact import Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS, SMALL, small_images
from papers.machinery.store import JobStore
from papers.manna2023.frameworks import trained

OUTPUT = Path(__file__).parents[1] / "docs" / "results" / "reproduce"
SCALE: Scale = "cpu"
_EARLY = 2  # epochs
LATER = {
    *("DCL", "DCLW", "DCLW, constant weights"),
    *(n for n in SMALL if "decay" in n and not n.startswith("SimCLR")),
}


def jobs(only: str = "") -> Iterator[PaperJob]:
    """Yield the trainings with a word in their name, in the order in which they are run."""
    for later in (False, True):
        for seed in SEEDS[SCALE]:
            for name in SMALL:
                if (name in LATER) == later and only in name:
                    yield small_images(SCALE, name, (seed,))[0]


def trainings(name: str) -> list[PaperJob]:
    """Return what a name of claims.toml means, a job for each seed.

    ``SimCLR`` is the method by its recipe, ``SimCLR cut`` and ``SimCLR slow`` are with and without
    the cut at a thirtieth of its learning rate, ``SimCLR cut, recipe`` is with it at all of it;
    ``SimCLR, warm-up, ...`` is the name of a small training.
    """
    if ", warm-up" in name:
        return small_images("cpu", name)
    method, _, way = name.partition(" ")
    if method not in CUT or not way:
        return trained("cpu", name)
    ways = {"slow": "slow", "cut": f"slow, c = {CUT[method]}", "cut, recipe": f"c = {CUT[method]}"}
    return named("cpu", f"{method}, {ways[way]}")


def measured(find: Callable[[PaperJob], Result | None]) -> Callable[[str, str], dict[int, float]]:
    """Return what gives the values of a metric of a training by seed, as claims are decided by."""

    def values(name: str, metric: str) -> dict[int, float]:
        jobs = trainings(name)
        results = Results({job: result for job in jobs if (result := find(job)) is not None})
        if metric == "knn":
            level = results.spread(jobs, "knn")
        elif metric == "knn early":
            level = logged.over_seeds(results, jobs, f"at {_EARLY}", "knn")
        else:
            level = logged.over_seeds(results, jobs, "first", "opposite_halves")
        factor = 100 if metric == "opposite early" else 1
        return {s: factor * v for s, v in level.by_seed.items()} if level is not None else {}

    return values


def main() -> None:
    """Run the missing trainings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder that holds cifar10/")
    parser.add_argument("--minutes", type=float, help="start no job after so many")
    parser.add_argument("--jobs", type=int, default=2, help="jobs at a time, one thread each [2]")
    parser.add_argument("--only", default="", metavar="WORD", help="jobs with WORD in their name")
    options = parser.parse_args()
    wanted, store = list(jobs(options.only)), JobStore(OUTPUT / "cells")
    minutes, processes = options.minutes, options.jobs
    stages.train(wanted, store, options.data, minutes=minutes, processes=processes)


if __name__ == "__main__":
    main()

"""Trains the small images of draganov2024 and manna2023 on a CPU.

It runs every training of `papers.machinery.small_images`, which says how they are set, with three
seeds: 5,000 images of CIFAR-10, ResNet-18 of 16 channels. They are jobs of `python -m papers` too,
whose tables have their means: what one of the two commands has run, the other does not run again.
The first seed of every training comes before the second; the trainings in LATER come after all
others. Nearest neighbours (k = 200, t = 0.1) are looked up among the 5,000 for the 10,000 test
images.

    python -m papers.image_trainings DATA [--minutes M] [--jobs N] [--only WORD]

DATA is the folder that holds cifar10/.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from papers import stages
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS
from papers.machinery.small_images import NAMES, small_images
from papers.machinery.store import JobStore

OUTPUT = Path(__file__).parents[1] / "docs" / "results" / "reproduce"
SCALE: Scale = "cpu"
LATER = {
    *("DCL", "DCLW", "DCLW, constant weights"),
    *(n for n in NAMES if "decay" in n and not n.startswith("SimCLR")),
}


def jobs(only: str = "") -> Iterator[PaperJob]:
    """Yield the trainings with a word in their name, in the order in which they are run."""
    for later in (False, True):
        for seed in SEEDS[SCALE]:
            for name in NAMES:
                if (name in LATER) == later and only in name:
                    yield small_images(SCALE, name, (seed,))[0]


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

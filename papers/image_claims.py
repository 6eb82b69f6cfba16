"""The measurements behind the claims on images in claims.toml: trainings of ``make reproduce``."""

from collections.abc import Callable

from isotrope.core import Result
from papers.draganov2024.trainings import CUT, named
from papers.machinery import logged
from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.small_images import small_images
from papers.manna2023.frameworks import trained

_EARLY = 2  # epochs


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

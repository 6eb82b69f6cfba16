"""Comparing accuracies over seeds."""

from collections.abc import Mapping

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, Spread, ahead


def knn(results: Results, jobs: list[PaperJob]) -> Spread | None:
    """Return the accuracy of nearest neighbours at the end of trainings with several seeds."""
    return results.spread(jobs, "knn")


def shown(spread: Spread | None) -> str | None:
    """Return mean and deviation, or None."""
    return None if spread is None else str(spread)


def is_ahead(claim: str, levels: Mapping[str, Spread | None], name: str, other: str) -> Ruling:
    """Return whether one accuracy is ahead of another."""
    evidence = ", ".join(f"{key} {levels[key]}" for key in (name, other) if levels[key])
    return Ruling(claim, ahead(levels[name], levels[other]), evidence)

"""Comparing accuracies over seeds."""

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Spread, Verdict, ahead, all_of

__all__ = ["all_ahead", "knn", "shown"]


def knn(results: Results, jobs: list[PaperJob]) -> Spread | None:
    """Return the accuracy of nearest neighbours at the end of trainings with several seeds."""
    return results.spread(jobs, "knn")


def shown(spread: Spread | None) -> str | None:
    """Return mean and deviation, or None."""
    return None if spread is None else str(spread)


def all_ahead(
    claim: str, level: Spread | None, others: dict[str, Spread | None], *, name: str
) -> Verdict:
    """Return whether one is ahead of each of the others.

    Args:
        claim: in words.
        level: an accuracy.
        others: by name.
        name: of the one.
    """
    measured = {key: spread for key, spread in others.items() if spread is not None}
    evidence = ", ".join(
        f"{key} {spread}" for key, spread in {name: level, **measured}.items() if spread
    )
    return Verdict(claim, all_of(ahead(level, other) for other in others.values()), evidence)

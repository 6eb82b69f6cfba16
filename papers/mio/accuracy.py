"""Comparing accuracies over seeds."""

import math

from papers.machinery.artifact import Found, Spread, Verdict
from papers.machinery.cell import Cell

__all__ = ["ahead", "all_ahead", "knn", "shown"]


def knn(found: Found, cells: list[Cell]) -> Spread | None:
    """Return the accuracy of nearest neighbours at the end of trainings with several seeds."""
    return found.spread(cells, "knn")


def shown(spread: Spread | None) -> str | None:
    """Return mean and deviation, or None."""
    return None if spread is None else str(spread)


def ahead(one: Spread, other: Spread) -> bool:
    """Return whether a mean is larger by more than twice the standard error of the difference.

    With one seed there is no error, and any difference counts.
    """
    variance = sum((s.deviation or 0.0) ** 2 / s.count for s in (one, other))
    return one.mean - other.mean > 2 * math.sqrt(variance)


def all_ahead(
    claim: str, one: Spread | None, others: dict[str, Spread | None], *, name: str
) -> Verdict:
    """Return whether one is ahead of each of the others.

    Args:
        claim: in words.
        one: an accuracy.
        others: by name.
        name: of the one.
    """
    known = {key: spread for key, spread in others.items() if spread is not None}
    said = ", ".join(f"{key} {spread}" for key, spread in {name: one, **known}.items() if spread)
    if one is None or len(known) < len(others):
        return Verdict(claim, None, said)
    return Verdict(claim, all(ahead(one, other) for other in known.values()), said)

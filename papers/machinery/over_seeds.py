"""The metrics of trainings by seed, and how means, deviations and changes are formatted."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import BySeed, Spread

__all__ = [
    "by_seed",
    "combine_by_seed",
    "format_change",
    "format_changes",
    "format_spread",
]


def by_seed(results: Results, jobs: Iterable[PaperJob], metric: str) -> dict[int, float]:
    """Return a metric of those jobs that have it, by seed."""
    values = {job.seed: results.values([job], metric) for job in jobs}
    return {seed: value for seed, values_of_seed in values.items() for value in values_of_seed}


def combine_by_seed(
    pick: Callable[[Sequence[float]], float], groups: Sequence[BySeed]
) -> dict[int, float]:
    """Return e.g. the ``min`` of several at each seed that all have."""
    seeds = set.intersection(*(set(group) for group in groups)) if groups else set()
    return {seed: pick([group[seed] for group in groups]) for seed in sorted(seeds)}


def format_spread(of: Spread | None) -> str | None:
    """Return ``75.69 ± 0.12``, or None."""
    return None if of is None else str(of)


def format_change(change: Spread | None, digits: int = 2) -> str | None:
    """Return ``+1.20 ± 0.31``, or None."""
    if change is None:
        return None
    text = change.text(digits)
    return text if text.startswith("-") else f"+{text}"


def format_changes(changes: Mapping[str, Spread | None], digits: int = 2) -> str:
    """Return those differences that were measured in one line, each with its name."""
    return ", ".join(
        f"{name} {format_change(change, digits)}" for name, change in changes.items() if change
    )

"""The metrics of trainings by seed, and how means, deviations and changes are formatted."""

from collections.abc import Callable, Mapping, Sequence

from papers.machinery.verdicts import BySeed, Spread


def combine_by_seed(
    pick: Callable[[Sequence[float]], float], groups: Sequence[BySeed]
) -> dict[int, float]:
    """Return e.g. the ``min`` of several at each seed that all have."""
    seeds = set.intersection(*(set(group) for group in groups)) if groups else set()
    return {seed: pick([group[seed] for group in groups]) for seed in sorted(seeds)}


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

"""What a difference between trainings says: seed by seed, its mean against its deviation."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from papers.machinery.artifact import Found, Spread
from papers.machinery.cell import Cell

__all__ = [
    "RULE",
    "BySeed",
    "above",
    "all_of",
    "below",
    "by_seed",
    "course",
    "extreme",
    "minus",
    "negated",
    "shown",
    "signed",
    "spread",
    "told",
]

RULE = (
    "a difference is taken seed by seed (same data, same order) and counts where its mean is "
    "larger than its standard deviation; of a single seed, any difference does"
)

BySeed = Mapping[int, float]


def by_seed(found: Found, cells: Iterable[Cell], metric: str) -> dict[int, float]:
    """Return a metric of those cells that have it, by seed."""
    values = {cell.seed: found.values([cell], metric) for cell in cells}
    return {seed: value for seed, own in values.items() for value in own}


def spread(values: Iterable[float]) -> Spread | None:
    """Return mean and deviation; None of nothing."""
    given = list(values)
    if not given:
        return None
    deviation = statistics.stdev(given) if len(given) > 1 else None
    return Spread(statistics.fmean(given), deviation, len(given))


def minus(a: BySeed, b: BySeed | float | None) -> Spread | None:
    """Return the difference over the seeds that both have; ``b`` may be one number for all."""
    if b is None:
        return None
    other = b if isinstance(b, Mapping) else dict.fromkeys(a, b)
    return spread(a[seed] - other[seed] for seed in a if seed in other)


def extreme(pick: Callable[[Sequence[float]], float], every: Sequence[BySeed]) -> dict[int, float]:
    """Return e.g. the ``min`` of several at each seed that all have."""
    seeds = set.intersection(*(set(own) for own in every)) if every else set()
    return {seed: pick([own[seed] for own in every]) for seed in sorted(seeds)}


def above(change: Spread | None, least: float = 0.0) -> bool | None:
    """Tell whether a difference is positive by :data:`RULE`, and larger than ``least``.

    None if there is none.
    """
    return None if change is None else change.mean > max(change.deviation or 0.0, least)


def below(change: Spread | None) -> bool | None:
    """Tell whether a difference is negative by :data:`RULE`; None if there is none."""
    return None if change is None else -change.mean > (change.deviation or 0.0)


def negated(holds: bool | None) -> bool | None:
    """Return the opposite; of what is not known, None."""
    return None if holds is None else not holds


def all_of(holds: Iterable[bool | None]) -> bool | None:
    """Return False if one is, else None if one is not known, else True."""
    given = list(holds)
    if False in given:
        return False
    return None if None in given or not given else True


def shown(of: Spread | None) -> str | None:
    """Return ``75.69 ± 0.12``, or None."""
    return None if of is None else str(of)


def signed(change: Spread | None, digits: int = 2) -> str | None:
    """Return ``+1.20 ± 0.31``, or None."""
    if change is None:
        return None
    text = change.shown(digits)
    return text if text.startswith("-") else f"+{text}"


def told(changes: Mapping[str, Spread | None], digits: int = 2) -> str:
    """Return those differences that were measured in one line, each with its name."""
    return ", ".join(f"{name} {signed(one, digits)}" for name, one in changes.items() if one)


def course(found: Found, cells: Iterable[Cell], look: str) -> dict[int, Spread]:
    """Return the values of a look by step, of all cells that were run."""
    rows: dict[int, list[float]] = {}
    for result in (found.get(cell) for cell in cells):
        for row in result.details.get("looks", ()) if result else ():
            if isinstance(row.get(look), int | float):
                rows.setdefault(int(row["step"]), []).append(float(row[look]))
    return {step: own for step, values in sorted(rows.items()) if (own := spread(values))}

"""What trainings came to, seed by seed, and how it is written."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from papers.machinery.artifact import Found
from papers.machinery.job import Cell
from papers.machinery.verdicts import BySeed, Spread, spread

__all__ = [
    "by_seed",
    "course",
    "extreme",
    "shown",
    "signed",
    "told",
]


def by_seed(found: Found, cells: Iterable[Cell], metric: str) -> dict[int, float]:
    """Return a metric of those cells that have it, by seed."""
    values = {cell.seed: found.values([cell], metric) for cell in cells}
    return {seed: value for seed, own in values.items() for value in own}


def extreme(pick: Callable[[Sequence[float]], float], every: Sequence[BySeed]) -> dict[int, float]:
    """Return e.g. the ``min`` of several at each seed that all have."""
    seeds = set.intersection(*(set(own) for own in every)) if every else set()
    return {seed: pick([own[seed] for own in every]) for seed in sorted(seeds)}


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

"""What was seen of encoders at the kept steps of their trainings, seed by seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from papers.machinery.artifact import Found
from papers.machinery.job import Cell
from papers.machinery.verdicts import BySeed, Spread, spread
from papers.plots.charts import Series

__all__ = [
    "Read",
    "Row",
    "after",
    "before",
    "curve",
    "diverged",
    "ends",
    "everywhere",
    "shown",
    "steps",
]

Row = Mapping[str, Any]
Read = Callable[[Row], float | None]
"""Finds a number in a look; None where it was not measured or does not exist."""


def before(found: Found, cells: Iterable[Cell], read: Read) -> dict[int, float]:
    """Return a number of the encoder that was not trained yet, by seed."""
    return _at(0, found, cells, read)


def after(found: Found, cells: Iterable[Cell], read: Read) -> dict[int, float]:
    """Return a number of the trained encoder, by seed."""
    return _at(-1, found, cells, read)


def ends(found: Found, cells: Iterable[Cell]) -> list[Row]:
    """Return the last look of every training that was run."""
    return [rows[-1] for rows in _looks(found, cells).values()]


def steps(found: Found, cells: Iterable[Cell], read: Read) -> dict[int, Spread]:
    """Return a number at every step at which some seed has it."""
    values: dict[int, list[float]] = {}
    for rows in _looks(found, cells).values():
        for row in rows:
            value = _known(read(row))
            if value is not None:
                values.setdefault(int(row["step"]), []).append(value)
    return {step: own for step in sorted(values) if (own := spread(values[step]))}


def everywhere(found: Found, cells: Iterable[Cell], read: Read) -> list[float]:
    """Return a number at all steps of all seeds."""
    numbers = [_known(read(row)) for rows in _looks(found, cells).values() for row in rows]
    return [number for number in numbers if number is not None]


def curve(title: str, values: Mapping[Any, Spread]) -> Series:
    """Return a line with its deviations."""
    own = list(values.values())
    return Series(title, list(values), [one.mean for one in own], [one.deviation for one in own])


def shown(values: BySeed, digits: int = 2) -> str | None:
    """Return mean and deviation over seeds; None where nothing was run."""
    own = spread(values.values())
    return None if own is None else own.shown(digits)


def diverged(found: Found, cells: Iterable[Cell]) -> list[str]:
    """Return a note on the trainings that diverged, which have no numbers; none if none did."""
    results = {cell: found.get(cell) for cell in dict.fromkeys(cells)}
    names = [cell.shown for cell, r in results.items() if r and "diverged" in r.details]
    return [f"diverged, and without numbers: {'; '.join(names)}"] if names else []


def _looks(found: Found, cells: Iterable[Cell]) -> dict[int, Sequence[Row]]:
    results = {cell.seed: found.get(cell) for cell in cells}
    every = {seed: r.details.get("looks") for seed, r in results.items() if r is not None}
    return {seed: rows for seed, rows in every.items() if rows}


def _at(place: int, found: Found, cells: Iterable[Cell], read: Read) -> dict[int, float]:
    every = {seed: _known(read(rows[place])) for seed, rows in _looks(found, cells).items()}
    return {seed: value for seed, value in every.items() if value is not None}


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)

"""Numbers that were logged at the checkpoints of trainings, read seed by seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import BySeed, Spread, spread
from papers.plots.charts import Series

Row = Mapping[str, Any]
ReadNumber = Callable[[Row], float | None]
"""Finds a number in a logged row; None where it was not measured or does not exist."""


def at_start(results: Results, jobs: Iterable[PaperJob], read: ReadNumber) -> dict[int, float]:
    """Return a number of the encoder that was not trained yet, by seed."""
    return _at_index(0, results, jobs, read)


def at_end(results: Results, jobs: Iterable[PaperJob], read: ReadNumber) -> dict[int, float]:
    """Return a number of the trained encoder, by seed."""
    return _at_index(-1, results, jobs, read)


def last_rows(results: Results, jobs: Iterable[PaperJob]) -> list[Row]:
    """Return the last look of every training that was run."""
    return [rows[-1] for rows in _logged_rows(results, jobs).values()]


def by_step(results: Results, jobs: Iterable[PaperJob], read: ReadNumber) -> dict[int, Spread]:
    """Return a number at every step at which some seed has it."""
    values: dict[int, list[float]] = {}
    for rows in _logged_rows(results, jobs).values():
        for row in rows:
            value = _finite(read(row))
            if value is not None:
                values.setdefault(int(row["step"]), []).append(value)
    return {step: level for step in sorted(values) if (level := spread(values[step]))}


def at_all_steps(results: Results, jobs: Iterable[PaperJob], read: ReadNumber) -> list[float]:
    """Return a number at all steps of all seeds."""
    numbers = [_finite(read(row)) for rows in _logged_rows(results, jobs).values() for row in rows]
    return [number for number in numbers if number is not None]


def curve(title: str, values: Mapping[Any, Spread]) -> Series:
    """Return a line with its deviations."""
    levels = list(values.values())
    return Series(
        title, list(values), [level.mean for level in levels], [level.deviation for level in levels]
    )


def format_by_seed(values: BySeed, digits: int = 2) -> str | None:
    """Return mean and deviation over seeds; None where nothing was run."""
    level = spread(values.values())
    return None if level is None else level.text(digits)


def divergence_notes(results: Results, jobs: Iterable[PaperJob]) -> list[str]:
    """Return a note on the trainings that diverged, which have no numbers; none if none did."""
    results_by_job = {job: results.get(job) for job in dict.fromkeys(jobs)}
    names = [job.label for job, r in results_by_job.items() if r and "diverged" in r.details]
    return [f"diverged, and without numbers: {'; '.join(names)}"] if names else []


def _logged_rows(results: Results, jobs: Iterable[PaperJob]) -> dict[int, Sequence[Row]]:
    results_by_seed = {job.seed: results.get(job) for job in jobs}
    rows_by_seed = {
        seed: r.details.get("looks") for seed, r in results_by_seed.items() if r is not None
    }
    return {seed: rows for seed, rows in rows_by_seed.items() if rows}


def _at_index(
    place: int, results: Results, jobs: Iterable[PaperJob], read: ReadNumber
) -> dict[int, float]:
    values = {
        seed: _finite(read(rows[place])) for seed, rows in _logged_rows(results, jobs).items()
    }
    return {seed: value for seed, value in values.items() if value is not None}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)

"""Numbers that were logged during trainings, read seed by seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Spread, spread

Row = Mapping[str, Any]
Metric = str | Callable[[Row], float | None]
"""A number of a logged row: its name (``lemma/0.1/counted`` lies within others), or what finds it;
None where it was not measured or does not exist."""
Course = tuple[list[float], list[float | None], list[float | None]]
"""Places, means and deviations, as ``Series`` takes them."""


def rows_of(results: Results, job: PaperJob) -> list[Row]:
    """Return what was logged in a training; nothing of one that was not run, or diverged."""
    result = results.get(job)
    return [] if result is None else list(result.details.get("looks", []))


def number(row: Row, metric: Metric) -> float | None:
    """Return a number of a row."""
    value: Any = row
    if callable(metric):
        value = metric(row)
    else:
        for part in metric.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def by_seed(
    results: Results, jobs: Iterable[PaperJob], how: str, metric: Metric
) -> dict[int, float]:
    """Return a number of each training.

    ``how`` is ``first``, of the encoder before training (what is a mean over an epoch is of the
    first one); ``last``; ``at 4``, after that epoch; ``peak``, the largest; ``growth``, the last
    over the first; or ``late``, the last less the one before it.
    """
    logged = {job.seed: rows for job in jobs if (rows := rows_of(results, job))}
    values = {seed: _picked(rows, how, metric) for seed, rows in logged.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def over_seeds(
    results: Results, jobs: Iterable[PaperJob], how: str, metric: Metric
) -> Spread | None:
    """Return mean and deviation of :func:`by_seed`."""
    return spread(by_seed(results, jobs, how, metric))


def _picked(rows: Sequence[Row], how: str, metric: Metric) -> float | None:
    if how.startswith("at "):
        row = next((row for row in rows if row["epoch"] == float(how[3:])), {})
        return number(row, metric)
    values = [number(row, metric) for row in rows]
    known = [value for value in values if value is not None]
    if how == "peak":
        return max(known, default=None)
    ends = {"first": values[:1], "last": values[-1:], "growth": [values[0], values[-1]]}
    chosen = ends[how] if how in ends else values[-2:]
    if None in chosen or (how == "late" and len(chosen) < 2):
        return None
    first, last = chosen[0] or 0.0, chosen[-1] or 0.0
    if how == "growth":
        return last / first if first else None
    return last - first if how == "late" else last


def by_step(results: Results, jobs: Iterable[PaperJob], metric: Metric) -> dict[int, Spread]:
    """Return a number at every step at which some seed has it."""
    values: dict[int, list[float]] = {}
    for job in jobs:
        for row in rows_of(results, job):
            if (value := number(row, metric)) is not None:
                values.setdefault(int(row["step"]), []).append(value)
    return {step: level for step in sorted(values) if (level := spread(values[step]))}


def at_all_steps(results: Results, jobs: Iterable[PaperJob], metric: Metric) -> list[float]:
    """Return a number at all steps of all seeds."""
    values = [number(row, metric) for job in jobs for row in rows_of(results, job)]
    return [value for value in values if value is not None]


def course(levels: Mapping[Any, Spread]) -> Course:
    """Return levels by place as they are drawn."""
    means: list[float | None] = [level.mean for level in levels.values()]
    return list(levels), means, [level.deviation for level in levels.values()]


def steps(results: Results, jobs: Iterable[PaperJob], metric: Metric) -> Course:
    """Return a number over the steps."""
    return course(by_step(results, jobs, metric))


def epochs(results: Results, jobs: Sequence[PaperJob], metric: str) -> Course:
    """Return a number over the epochs; what is of the first epoch stands at 1.

    Of kNN accuracies the one before training is left out: the axis is logarithmic.
    """
    drop = 0.0 if metric == "knn" else -1.0
    rows = [row for job in jobs for row in rows_of(results, job)]
    places = sorted({float(row["epoch"]) for row in rows if row["epoch"] > drop})
    if len(places) > 1 and places[:2] == [0.0, 1.0]:
        del places[0]  # both are means over the first epoch
    levels = [over_seeds(results, jobs, f"at {place}", metric) for place in places]
    return (
        [max(1.0, place) for place in places],
        [None if level is None else level.mean for level in levels],
        [None if level is None else level.deviation for level in levels],
    )

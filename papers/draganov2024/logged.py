"""Reads the logged measurements of image trainings by epoch, with means over seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from papers.machinery.artifact import Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Answer, Ruling, Spread, all_of, spread

Row = dict[str, Any]


def _rows(results: Results, job: PaperJob) -> list[Row]:
    """None of a job that was not run, or that diverged."""
    result = results.get(job)
    return [] if result is None else list(result.details.get("looks", []))


def _each(
    results: Results, jobs: Sequence[PaperJob], number: Callable[[list[Row]], float | None]
) -> Spread | None:
    rows_by_seed = {job.seed: _rows(results, job) for job in jobs}
    numbers = {seed: number(rows) for seed, rows in rows_by_seed.items() if rows}
    return spread({seed: value for seed, value in numbers.items() if value is not None})


def at(results: Results, jobs: Sequence[PaperJob], name: str, epoch: float) -> Spread | None:
    """Return a number after an epoch; norms and angles are means over that epoch."""
    return _each(
        results,
        jobs,
        lambda rows: next((row.get(name) for row in rows if row["epoch"] == epoch), None),
    )


def first(results: Results, jobs: Sequence[PaperJob], name: str) -> Spread | None:
    """Return a mean over the first epoch; of kNN accuracies that before training."""
    return _each(results, jobs, lambda rows: rows[0].get(name))


def last(results: Results, jobs: Sequence[PaperJob], name: str) -> Spread | None:
    """Return the available results at the end."""
    return _each(results, jobs, lambda rows: rows[-1].get(name))


def peak(results: Results, jobs: Sequence[PaperJob], name: str) -> Spread | None:
    """Return the largest of all looks."""

    def largest(rows: list[Row]) -> float | None:
        return max((v for row in rows if (v := row.get(name)) is not None), default=None)

    return _each(results, jobs, largest)


def growth(results: Results, jobs: Sequence[PaperJob], name: str) -> Spread | None:
    """Return the mean over the last epoch over that of the first."""

    def quotient(rows: list[Row]) -> float | None:
        ends = [rows[0].get(name), rows[-1].get(name)]
        return ends[1] / ends[0] if None not in ends and ends[0] else None

    return _each(results, jobs, quotient)


def curve(
    results: Results, jobs: Sequence[PaperJob], name: str
) -> tuple[list[float], list[float | None], list[float | None]]:
    """Return epochs, means and deviations for a line; what is of the first epoch stands at 1.

    Of kNN accuracies the one before training is left out: the axis is logarithmic.
    """
    drop = 0.0 if name == "knn" else -1.0
    epochs = sorted(
        {float(o["epoch"]) for job in jobs for o in _rows(results, job) if o["epoch"] > drop}
    )
    if len(epochs) > 1 and epochs[:2] == [0.0, 1.0]:
        del epochs[0]  # both are means over the first epoch
    spreads = [at(results, jobs, name, epoch) for epoch in epochs]
    return (
        [max(1.0, epoch) for epoch in epochs],
        [None if level is None else level.mean for level in spreads],
        [None if level is None else level.deviation for level in spreads],
    )


def verdict(claim: str, answers: Sequence[Answer], evidence: str = "") -> Ruling:
    """Return that a claim holds if every answer is yes; it is not run where any is missing."""
    return Ruling(claim, all_of(answers), evidence)


def percent(spread: Spread | None, digits: int = 1) -> str | None:
    """Return a share as percent, without the sign."""
    if spread is None:
        return None
    deviation = None if spread.deviation is None else 100 * spread.deviation
    return Spread(100 * spread.mean, deviation, spread.count).text(digits)


def format_spread(spread: Spread | None, digits: int = 1) -> str | None:
    """Return mean and deviation, or None."""
    return None if spread is None else spread.text(digits)


def listed(numbers: Mapping[str, str | None]) -> str:
    """Return ``name number, name number``, a dash for what was not run; nothing for nothing."""
    if not any(numbers.values()):
        return ""
    return ", ".join(f"{name} {number or '-'}" for name, number in numbers.items())

"""Averages the scores of each trial over its seeds, and finds the best."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from isotrope.core.errors import InputError
from isotrope.core.result import Result


@dataclass
class Trial:
    """One setting, trained with every seed.

    Attributes:
        values: The values of the varied settings.
        metric: Name of the score.
        numbers: Optuna's numbers of it, which may choose a setting twice.
        results: The results of the finished runs, by seed.
        notes: The reason why a run has no result, by seed.
        failures: The errors of runs that could not be trained at all.
    """

    values: dict[str, str]
    metric: str
    numbers: list[int] = field(default_factory=list, compare=False)
    results: dict[int, Result] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def take(self, seed: int, result: Result | str | InputError | None) -> None:
        """Add the outcome of a run: its result, its failure, or nothing so far."""
        if isinstance(result, Result):
            self.results[seed] = result
        elif result is not None:
            self.notes[seed] = str(result)
        if isinstance(result, InputError):
            self.failures.append(str(result))

    @property
    def scores(self) -> dict[int, float]:
        """Scores by seed, without runs that have no such number or one that is not finite."""
        values = {seed: result.metrics.get(self.metric) for seed, result in self.results.items()}
        numbers = {s: float(v) for s, v in values.items() if isinstance(v, int | float)}
        return {seed: value for seed, value in numbers.items() if math.isfinite(value)}

    @property
    def runs(self) -> int:
        """Number of runs that have ended, with or without success."""
        return len(self.results) + len(self.notes)

    @property
    def score(self) -> float | None:
        """The mean over seeds; None if one of them has failed."""
        scores = self.scores
        return statistics.fmean(scores.values()) if scores and len(scores) == self.runs else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds, of more than one."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None


def ranked(trials: Sequence[Trial], *, highest: bool) -> list[Trial]:
    """Return the trials with a score, the best first; equal ones keep their order.

    A mean of few seeds can be luck, so trials with fewer seeds come after those with more.
    """
    sign = -1 if highest else 1
    scored = [(trial, score) for trial in trials if (score := trial.score) is not None]
    scored.sort(key=lambda pair: (-len(pair[0].scores), sign * pair[1]))
    return [trial for trial, _ in scored]


def best_of(trials: Sequence[Trial], *, highest: bool) -> Trial | None:
    """Return the best of the :func:`ranked` trials, or None."""
    return next(iter(ranked(trials, highest=highest)), None)

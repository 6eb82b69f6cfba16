"""The trials of a sweep: their scores, their order, and which may be the best by luck alone."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result


@dataclass
class Trial:
    """One combination of values, trained with every seed.

    Attributes:
        values: The values of the varied settings.
        metric: Name of the score.
        numbers: Optuna's numbers of the trial; several if Optuna chose the values several times.
        results: A dict from seed to result, for the finished runs.
        notes: A dict from seed to the reason why the run with this seed has no result.
        failures: Messages of the errors that ended runs.
    """

    values: dict[str, str]
    metric: str
    numbers: list[int] = field(default_factory=list, compare=False)
    results: dict[int, Result] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def take(self, seed: int, result: Result | str | InputError | None) -> None:
        """Store the result of a run, the reason of its divergence, or its error; ignore None."""
        if isinstance(result, Result):
            self.results[seed] = result
        elif result is not None:
            self.notes[seed] = str(result)
        if isinstance(result, InputError):
            self.failures.append(str(result))

    @property
    def scores(self) -> dict[int, float]:
        """A dict from seed to score, without scores that are missing or not finite."""
        values = {seed: result.metrics.get(self.metric) for seed, result in self.results.items()}
        numbers = {s: float(v) for s, v in values.items() if isinstance(v, int | float)}
        return {seed: value for seed, value in numbers.items() if math.isfinite(value)}

    @property
    def runs(self) -> int:
        """Number of runs that have ended, with or without success."""
        return len(self.results) + len(self.notes)

    @property
    def score(self) -> float | None:
        """The mean score over the seeds so far; None if a run ended without a finite score."""
        scores = self.scores
        return statistics.fmean(scores.values()) if scores and len(scores) == self.runs else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the score over the seeds; None for a single seed."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None


def ranked(trials: Sequence[Trial], *, highest: bool) -> list[Trial]:
    """Return the trials with a score, the best first.

    Trials with more finished seeds come first, because their means are more certain.
    """
    sign = -1 if highest else 1
    scored = [(trial, score) for trial in trials if (score := trial.score) is not None]
    scored.sort(key=lambda pair: (-len(pair[0].scores), sign * pair[1]))
    return [trial for trial, _ in scored]


def best_of(trials: Sequence[Trial], *, highest: bool) -> Trial | None:
    """Return the best of the :func:`ranked` trials, or None."""
    return next(iter(ranked(trials, highest=highest)), None)


@dataclass(frozen=True)
class Comparison:
    """The trials of a sweep, compared with the best and with the model before training.

    Attributes:
        equals: The trials whose scores differ from the best by no more than noise, the best first;
            empty if the best is not better than the model before training.
        noise: The difference that luck exceeds in 5% of such sweeps. It is 0 for a single seed, and
            infinite while trials with several or different seeds have fewer than two in common.
        start: The score before training; None if results lack it.
    """

    equals: list[Trial]
    noise: float
    start: float | None


def compare(trials: Sequence[Trial], *, highest: bool) -> Comparison:
    """Compare trials, at least one of which has a score, by Tukey's range test.

    The seeds are blocks of the test: what a seed changes in all trials is no noise. The scores of
    the model before training, if results have them, are compared as one more trial.
    """
    order = ranked(trials, highest=highest)
    leaders = [trial for trial in order if len(trial.scores) == len(order[0].scores)]
    score = leaders[0].metric.removesuffix("_best").removesuffix("_final")
    before = Trial({}, f"{score}_start", results=leaders[0].results)
    start = before.score if len(before.scores) == len(leaders[0].scores) else None
    compared = leaders if start is None else [*leaders, before]
    seeds = sorted(set.intersection(*(set(trial.scores) for trial in compared)))
    if len(seeds) < min(2, len(leaders[0].scores)):  # other runs of the sweep are not finished
        return Comparison(leaders, math.inf, start)
    noise = _noise([[trial.scores[seed] for seed in seeds] for trial in compared])
    best = float(leaders[0].score or 0.0)
    if start is not None and (best - start if highest else start - best) <= noise:
        return Comparison([], noise, start)
    equals = [trial for trial in leaders if abs(float(trial.score or 0.0) - best) <= noise]
    return Comparison(equals, noise, start)


def _noise(rows: list[list[float]]) -> float:
    """Return the honestly significant difference of trials (rows) with the same seeds (columns)."""
    scores = np.array(rows)
    trials, seeds = scores.shape
    degrees_of_freedom = (trials - 1) * (seeds - 1)
    if not degrees_of_freedom:
        return 0.0
    from scipy.stats import studentized_range

    rest = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    error = math.sqrt(float((rest**2).sum()) / degrees_of_freedom / seeds)
    return float(studentized_range.ppf(0.95, trials, degrees_of_freedom)) * error

"""Scores of trials, their order, and their comparison with the score before training."""

import math

import pytest

from isotrope.core.result import Result
from isotrope.sweeps.trials import Trial, best_of, compare, ranked


def test_a_trial_without_numbers_has_no_score() -> None:
    trial = Trial({}, "dev_best")
    assert trial.score is None
    trial.results[0] = Result("train", "x", {"dev_best": None})
    assert trial.score is None
    trial.results[0] = Result("train", "x", {"dev_best": 3.0})
    assert trial.score == 3.0
    assert trial.deviation is None
    trial.results[1] = Result("train", "x", {"dev_best": None})  # NaN, in a file
    assert trial.score is None
    assert best_of([trial], highest=True) is None


@pytest.mark.parametrize("metric", ["dev_best", "dev_final", "dev_best_step", "dev_start"])
def test_only_scores_are_compared_with_the_score_before_training(metric: str) -> None:
    trials = [Trial({"cut": str(cut)}, metric) for cut in (1, 3)]
    for trial in trials:
        trial.take(0, Result("train", "x", {"dev_start": 50.0, metric: 40.0}))
    compared = compare(trials, highest=True)
    is_score = metric in ("dev_best", "dev_final")
    assert (compared.start is not None) == is_score
    assert (compared.equals == []) == is_score


def test_a_trial_with_fewer_seeds_is_not_the_best_by_luck() -> None:
    """As in a sweep that was interrupted, or in one whose run ended in NaN."""
    lucky, complete, worse = (Trial({}, "dev_best") for _ in range(3))
    lucky.take(0, Result("train", "x", {"dev_best": 9.0}))
    for seed, value in enumerate((5.0, 3.0)):
        complete.take(seed, Result("train", "x", {"dev_best": value}))
        worse.take(seed, Result("train", "x", {"dev_best": value - 1}))
    assert ranked([lucky, worse, complete], highest=True) == [complete, worse, lucky]
    assert ranked([lucky, worse, complete], highest=False) == [worse, complete, lucky]
    worse.take(2, Result("train", "x", {"dev_best": math.nan}))
    assert ranked([lucky, worse, complete], highest=False) == [complete, lucky]

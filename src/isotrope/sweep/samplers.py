"""Samplers: which values a sweep tries next.

The grid is every combination of listed values. ``random`` draws each trial by its number, so that
the same command draws the same whatever was run before. ``optuna`` is Optuna's TPE, which looks at
the scores so far: what was tried by an earlier command is told to it again.
"""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np

from isotrope.core.errors import InputError, MissingExtra
from isotrope.sweep.varied import Varied

__all__ = ["KINDS", "Grid", "Kind", "Random", "Sampler", "Tpe", "Values"]

Kind = Literal["grid", "random", "optuna"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Values = Mapping[str, str]

_DRAWS = 1000  # to find values that were not drawn before


class Sampler(Protocol):
    """What chooses values."""

    def ask(self) -> Values | None:
        """Return the next values, or None where there are no more."""
        ...

    def tell(self, values: Values, score: float | None) -> None:
        """Take the score of values, None where they could not be trained."""
        ...


class Grid:
    """Every combination, the last setting varying fastest.

    Raises:
        InputError: a range without a number of values.
    """

    def __init__(self, varied: Sequence[Varied]) -> None:
        for one in varied:
            if one.span is not None:
                low, high = one.ends
                raise InputError(
                    f"a grid has no values of {one.name}: give some, as {one.name}={low},{high} or "
                    f"{one.name}={low}..{high}:5, or choose --sampler random"
                )
        names = [one.name for one in varied]
        every = itertools.product(*(one.values for one in varied))
        self.every = [dict(zip(names, values, strict=True)) for values in every]
        self._waiting = iter(self.every)

    def ask(self) -> Values | None:
        """Return the next combination."""
        return next(self._waiting, None)

    def tell(self, values: Values, score: float | None) -> None:
        """Do nothing: a grid does not learn."""


class Random:
    """So many trials, each drawn by its number; no values come twice.

    Args:
        varied: what is drawn.
        trials: how many.
        seed: decides the draws.
    """

    def __init__(self, varied: Sequence[Varied], trials: int, seed: int) -> None:
        self.every: list[dict[str, str]] = []
        for number in range(trials):
            random = np.random.default_rng([seed, number])
            for _ in range(_DRAWS):
                values = {one.name: one.draw(random) for one in varied}
                if values not in self.every:
                    self.every.append(values)
                    break
        self._waiting = iter(self.every)

    def ask(self) -> Values | None:
        """Return the values of the next trial; fewer trials where there are no others."""
        return next(self._waiting, None)

    def tell(self, values: Values, score: float | None) -> None:
        """Do nothing: chance does not learn."""


class Tpe:
    """Optuna's tree-structured Parzen estimator.

    Args:
        varied: what is chosen.
        trials: how many, those that were tried before included.
        seed: of what is random in it.
        highest: whether higher scores are better.
        before: what an earlier command tried, with the score of what it finished. What it did not
            finish is asked for first.

    Raises:
        MissingExtra: optuna is not installed.
    """

    def __init__(
        self,
        varied: Sequence[Varied],
        trials: int,
        seed: int,
        *,
        highest: bool,
        before: Sequence[tuple[Values, float | None, bool]] = (),
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise MissingExtra("optuna", extra="sweep") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._varied = varied
        self._optuna = optuna
        self._left = trials
        self._asked: list[tuple[dict[str, str], Any]] = []
        self._distributions = {one.name: _distribution(optuna, one) for one in varied}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed + len(before), constant_liar=True)
        self._study = optuna.create_study(
            direction="maximize" if highest else "minimize", sampler=sampler
        )
        for values, score, finished in before:
            own = {one.name: _number(one, values[one.name]) for one in varied}
            if not finished:
                self._study.enqueue_trial(own)
            else:
                self._left -= 1
                self._add(own, score)

    def _add(self, own: dict[str, Any], score: float | None) -> None:
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=own,
                distributions=self._distributions,
                value=score,
                state=states.FAIL if score is None else states.COMPLETE,
            )
        )

    def ask(self) -> Values | None:
        """Return what Optuna suggests."""
        if self._left <= 0:
            return None
        self._left -= 1
        trial = self._study.ask(self._distributions)
        values = {
            one.name: one.span.spelled(trial.params[one.name])
            if one.span is not None
            else str(trial.params[one.name])
            for one in self._varied
        }
        self._asked.append((values, trial))
        return values

    def tell(self, values: Values, score: float | None) -> None:
        """Let Optuna know."""
        place = next((i for i, (own, _) in enumerate(self._asked) if own == values), None)
        if place is None:
            return  # of an earlier command: it was told at the beginning
        _, trial = self._asked.pop(place)
        states = self._optuna.trial.TrialState
        if score is None:
            self._study.tell(trial, state=states.FAIL)
        else:
            self._study.tell(trial, score)


def _distribution(optuna: Any, one: Varied) -> Any:  # noqa: ANN401 - a module that may be missing
    kinds = optuna.distributions
    if one.span is None:
        return kinds.CategoricalDistribution(one.values)
    if one.span.whole:
        low, high = math.ceil(one.span.low), math.floor(one.span.high)
        return kinds.IntDistribution(low, high, log=one.span.log)
    return kinds.FloatDistribution(one.span.low, one.span.high, log=one.span.log)


def _number(one: Varied, value: str) -> str | float:
    if one.span is None:
        return value
    return int(value) if one.span.whole else float(value)

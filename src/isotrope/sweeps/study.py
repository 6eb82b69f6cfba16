"""Wraps an Optuna study: it suggests values and keeps the record, which its dashboard opens.

A stage is a study in an Optuna journal in the sweep's folder. A journal is a text file that only
grows; it works on network file systems, where SQLite's locks are unreliable. A study has a trial
for each setting, whose value is the mean over the seeds. The results of the runs are read from
their folders, so a new study with other seeds or another metric repeats no training.

Optuna's ``GridSampler`` shuffles, and needs a callback that single trials do not have, so the
combinations of a grid are added as trials in order. A sampler restarts its draws in every process,
so each trial has its own seed: the same command draws the same values, whatever ran before.
"""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState, create_trial

from isotrope.core.errors import InputError, place
from isotrope.core.files import atomic_replace, open_own, os_errors_as_input_errors
from isotrope.core.fingerprint import fingerprint
from isotrope.sweeps.search_space import Varied
from isotrope.sweeps.spec import Sweep, Values

optuna.logging.set_verbosity(optuna.logging.WARNING)

JOURNAL = "optuna.log"
"""The file in the sweep's folder: ``optuna-dashboard FOLDER/optuna.log`` opens it."""

_REPEATS = 10  # choices for each that must be new, until there are taken to be no others


def planned(spec: Sweep, stage: Sequence[Varied]) -> list[dict[str, str]] | None:
    """Return all values of a stage; None if they depend on scores."""
    sampler = spec.sampler_of(stage)
    if sampler == "grid":
        return _grid(stage)
    if sampler == "tpe":
        return None
    study = optuna.create_study()
    drawn: list[dict[str, str]] = []
    for number in range(_REPEATS * spec.trials):
        study.sampler = optuna.samplers.RandomSampler(seed=_seed(spec, number))
        values = _spelled(stage, study.ask(_distributions(stage)).params)
        if values not in drawn:
            drawn.append(values)
        if len(drawn) == spec.trials:
            break
    return drawn


def _grid(stage: Sequence[Varied]) -> list[dict[str, str]]:
    """Return every combination, the last setting varying fastest."""
    for setting in stage:
        if setting.span is not None:
            low, high = setting.ends
            raise InputError(
                f"a grid has no values of {setting.name}: give some, as {setting.name}={low},{high}"
                f" or {setting.name}={low}..{high}:5, or choose `--sampler random`"
            )
    names = [setting.name for setting in stage]
    combinations = itertools.product(*(setting.values for setting in stage))
    return [dict(zip(names, values, strict=True)) for values in combinations]


def tried(spec: Sweep, stage: Sequence[Varied], fixed: Values) -> list[dict[str, str]]:
    """Return the values that earlier commands tried and that this one allows.

    Args:
        spec: the sweep.
        stage: The varied settings.
        fixed: The best values of the earlier stages.
    """
    trials: list[dict[str, str]] = []
    if not (spec.output / JOURNAL).is_file():
        return trials
    with _reading(spec.output / JOURNAL) as journal:
        for name in optuna.get_all_study_names(journal):
            study = optuna.load_study(study_name=name, storage=journal)
            if study.user_attrs.get("fixed") != dict(fixed):
                continue
            for trial in study.get_trials(deepcopy=False):
                params = trial.params
                fits = params.keys() == {setting.name for setting in stage}
                if fits and all(setting.holds(str(params[setting.name])) for setting in stage):
                    values = _spelled(stage, params)
                    trials += [values] if values not in trials else []
    return trials


class StageStudy:
    """The study of one stage; no other process uses the sweep's folder.

    Args:
        spec: the sweep.
        stage: The varied settings.
        fixed: The best values of the earlier stages.
        place: The number of the stage, from 1.

    Raises:
        InputError: the journal is damaged, or cannot be written.
    """

    def __init__(self, spec: Sweep, stage: Sequence[Varied], fixed: Values, place: int) -> None:
        self._spec, self._stage = spec, stage
        self._journal = spec.output / JOURNAL
        _mend(self._journal)
        plan = planned(spec, stage)
        self.count = spec.trials if plan is None else len(plan)
        self._chosen = plan is None
        self._first = tried(spec, stage, fixed) if plan is None else plan
        title = f"{place}. {', '.join(setting.name for setting in stage)} ({spec.metric})"
        ranges = [(setting.name, setting.values, setting.span) for setting in stage]
        choice = [spec.sampler_of(stage), spec.draws, spec.highest, list(spec.seeds)]
        with _reading(self._journal) as storage:
            self._study = optuna.create_study(
                storage=storage,
                study_name=f"{title} {fingerprint(spec.metric, ranges, dict(fixed), choice)[:6]}",
                direction="maximize" if spec.highest else "minimize",
                load_if_exists=True,
            )
            if not self._study.user_attrs:
                self._study.set_user_attr("fixed", dict(fixed))  # first: ``tried`` needs it
                self._study.set_user_attr("seeds", list(spec.seeds))

    def settings(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number and the values of trials until enough of them differ.

        Trials of earlier commands come first, because some of their runs may be unfinished.
        """
        different: list[dict[str, str]] = []
        for trial in self._study.get_trials(deepcopy=False):
            if len(trial.params) < len(self._stage):  # killed while its values were chosen
                self.tell(trial.number, None)
                continue
            values = _spelled(self._stage, trial.params)
            different += [values] if values not in different else []
            yield trial.number, values
        for values in self._first:
            if values not in different and len(different) < self.count:
                different.append(values)
                yield self._add(values), values
        for _ in range(_REPEATS * self.count if self._chosen else 0):
            if len(different) >= self.count:
                return
            number, values = self._ask()
            different += [values] if values not in different else []
            yield number, values

    def _add(self, values: Values) -> int:
        trial = create_trial(
            state=TrialState.RUNNING,
            params=_params(self._stage, values),
            distributions=_distributions(self._stage),
        )
        with os_errors_as_input_errors(self._journal):
            self._study.add_trial(trial)
        return len(self._study.get_trials(deepcopy=False)) - 1

    def _ask(self) -> tuple[int, dict[str, str]]:
        seed = _seed(self._spec, len(self._study.get_trials(deepcopy=False)))
        with warnings.catch_warnings(), os_errors_as_input_errors(self._journal):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # trials that are running count as bad, so that those beside them differ
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            self._study.sampler = sampler
            trial = self._study.ask(_distributions(self._stage))
        return trial.number, _spelled(self._stage, trial.params)

    def tell(self, number: int, score: float | None) -> None:
        """Record the score of a trial (None without a score), unless it already has one."""
        failed = TrialState.FAIL if score is None else None
        with os_errors_as_input_errors(self._journal):
            self._study.tell(number, score, state=failed, skip_if_finished=True)


# what Optuna raises for lines that it has not written
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


@contextmanager
def _reading(journal: Path) -> Iterator[JournalStorage]:
    """Yield what is kept in a journal, which Optuna reads when it is asked for something."""
    try:
        with os_errors_as_input_errors(journal):
            open_own(journal, "ab").close()  # Optuna would write through a link
            file = str(journal)
            yield JournalStorage(JournalFileBackend(file, JournalFileOpenLock(file)))
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"{place(journal)} is damaged ({type(error).__name__}); move it away: finished runs "
            "are not trained again"
        ) from error


def _mend(journal: Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if not journal.is_file():
        return
    text = journal.read_bytes()
    complete = text[: text.rfind(b"\n") + 1]
    if complete != text:
        with atomic_replace(journal) as temporary:
            temporary.write_bytes(complete)


def _seed(spec: Sweep, number: int) -> int:
    return int(np.random.SeedSequence([spec.draws, number]).generate_state(1)[0])


def _distributions(stage: Sequence[Varied]) -> dict[str, BaseDistribution]:
    return {setting.name: _distribution(setting) for setting in stage}


def _distribution(setting: Varied) -> BaseDistribution:
    if setting.span is None:
        return CategoricalDistribution(setting.values)
    if setting.span.integers:
        low, high = int(setting.span.low), int(setting.span.high)
        return IntDistribution(low, high, log=setting.span.log)
    return FloatDistribution(setting.span.low, setting.span.high, log=setting.span.log)


def _spelled(stage: Sequence[Varied], params: dict[str, Any]) -> dict[str, str]:
    """Return Optuna's values as flags take them."""
    return {
        setting.name: str(params[setting.name])
        if setting.span is None
        else setting.span.spelled(params[setting.name])
        for setting in stage
    }


def _params(stage: Sequence[Varied], values: Values) -> dict[str, str | float]:
    """Return values as Optuna takes them."""
    kinds = {
        setting.name: str if setting.span is None else int if setting.span.integers else float
        for setting in stage
    }
    return {name: kind(values[name]) for name, kind in kinds.items()}

"""An Optuna study, which suggests values and records the trials in a journal.

The journal is a text file, which Optuna's dashboard can open. A trial is one combination of values,
and the score of a trial is the mean over the seeds. The combinations of a grid become trials in
order. The sampler gets a new seed for each trial, so the same command draws the same values.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna import distributions
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState, create_trial

from isotrope.core.errors import InputError, place
from isotrope.core.files import atomic_replace, open_own, os_errors_as_input_errors
from isotrope.core.fingerprint import fingerprint
from isotrope.sweeps.plan import grid
from isotrope.sweeps.search_space import Varied
from isotrope.sweeps.spec import Sweep

optuna.logging.set_verbosity(optuna.logging.ERROR)

JOURNAL = "optuna.log"
"""The journal in the folder of a sweep."""

_REPEATS = 10  # draws for each trial; if these give too few different values, the study ends


class SweepStudy:
    """The study of a sweep, in its own journal or in a copy.

    Attributes:
        count: Number of different combinations of values to try.
    """

    def __init__(self, spec: Sweep, journal: Path | None = None) -> None:
        self._spec = spec
        self._journal = journal or spec.chosen.output / JOURNAL
        self._plan = grid(spec)
        self.count = spec.chosen.trials if self._plan is None else len(self._plan)
        self._distributions = {setting.name: _distribution(setting) for setting in spec.varied}
        names = ", ".join(self._distributions)
        about = [spec.varied, spec.sampler, spec.chosen.draws, spec.highest]
        file = str(self._journal)
        try:
            with os_errors_as_input_errors(self._journal):
                open_own(self._journal, "ab").close()  # Optuna would write through a link
                self.study = optuna.create_study(
                    storage=JournalStorage(JournalFileBackend(file, JournalFileOpenLock(file))),
                    study_name=f"{names} ({spec.metric}) {fingerprint(spec.metric, about)[:6]}",
                    direction="maximize" if spec.highest else "minimize",
                    load_if_exists=True,
                )
        except InputError:
            raise
        except Exception as error:  # Optuna may raise any error for a line that it did not write
            raise InputError(
                f"move {place(spec.chosen.output / JOURNAL)} away and start the sweep again, which "
                f"keeps finished runs: this file is damaged ({type(error).__name__})"
            ) from error

    def settings(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield number and values of each trial, until ``count`` combinations have been tried.

        The trials of earlier commands come first, because some of their runs may be unfinished.
        """
        different: list[dict[str, str]] = []
        for number, values in self.tried():
            different += [values] if values not in different else []
            yield number, values
        for values in self._plan or ():
            if values not in different:
                yield self._add(values), values
        for _ in range(_REPEATS * self.count if self._plan is None else 0):
            if len(different) >= self.count:
                return
            number, values = self._ask()
            different += [values] if values not in different else []
            yield number, values

    def tried(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number and the values of each trial so far."""
        for trial in self.study.get_trials(deepcopy=False):
            if len(trial.params) < len(self._spec.varied):  # killed while its values were chosen
                self.tell(trial.number, None)
            else:
                yield trial.number, self._spelled(trial.params)

    def _add(self, values: dict[str, str]) -> int:
        trial = create_trial(
            state=TrialState.RUNNING, params={**values}, distributions=self._distributions
        )
        with os_errors_as_input_errors(self._journal):
            self.study.add_trial(trial)
        return len(self.study.get_trials(deepcopy=False)) - 1

    def _ask(self) -> tuple[int, dict[str, str]]:
        number = len(self.study.get_trials(deepcopy=False))
        seed = int(np.random.SeedSequence([self._spec.chosen.draws, number]).generate_state(1)[0])
        with warnings.catch_warnings(), os_errors_as_input_errors(self._journal):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # running trials count as bad, so that tpe does not choose the same values again
            self.study.sampler = (
                optuna.samplers.TPESampler(seed=seed, constant_liar=True)
                if self._spec.sampler == "tpe"
                else optuna.samplers.RandomSampler(seed=seed)
            )
            trial = self.study.ask(self._distributions)
        return trial.number, self._spelled(trial.params)

    def tell(self, number: int, score: float | None) -> None:
        """Record the score of a trial; None records a failure. A trial keeps its first score."""
        failed = TrialState.FAIL if score is None else None
        with os_errors_as_input_errors(self._journal):
            self.study.tell(number, score, state=failed, skip_if_finished=True)

    def _spelled(self, params: dict[str, Any]) -> dict[str, str]:
        """Return Optuna's values as the text of flags."""
        return {
            setting.name: str(params[setting.name])
            if setting.span is None
            else setting.span.spelled(params[setting.name])
            for setting in self._spec.varied
        }


def mend(journal: Path) -> None:
    """Remove the lock and the incomplete last line that a killed process left in a journal."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    text = journal.read_bytes() if journal.is_file() else b""
    complete = text[: text.rfind(b"\n") + 1]
    if complete != text:
        with atomic_replace(journal) as temporary:
            temporary.write_bytes(complete)


def _distribution(setting: Varied) -> distributions.BaseDistribution:
    if (span := setting.span) is None:
        return distributions.CategoricalDistribution(setting.values)
    if span.integers:
        return distributions.IntDistribution(int(span.low), int(span.high), log=span.log)
    return distributions.FloatDistribution(span.low, span.high, log=span.log)

"""Runs a sweep: trains the missing runs, and scores them.

Every run has an ordinary run folder, named by the run's values and seed. Therefore, finished runs
are not repeated if values are added later.
"""

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from isotrope.core.errors import Diverged, InputError, first_line, memory_is_full
from isotrope.core.files import write_text
from isotrope.core.lock import exclusive_lock
from isotrope.core.progress import format_duration
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.sweeps.plan import check_metric, check_sweep, grid
from isotrope.sweeps.spec import Sweep, Values
from isotrope.sweeps.study import JOURNAL, SweepStudy, mend
from isotrope.sweeps.trials import Trial, best_of
from isotrope.training.early_checks import as_begun, check_folder
from isotrope.training.images.settings import ImageSettings
from isotrope.training.launch import each
from isotrope.training.run import awaits_second, trained
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

Report = Callable[[str], None]


class PlannedRun(NamedTuple):
    """One run of a sweep, as it is passed to the process that trains it."""

    trial: int  # index among the trials
    seed: int
    settings: RunSettings


def sweep(spec: Sweep, report: Report = lambda line: None) -> list[Trial]:
    """Train the runs that are not finished, and return all trials."""
    check_sweep(spec)
    output = spec.chosen.output
    with exclusive_lock(output, f"measuring into {output}", " (`--show` prints the finished runs)"):
        mend(output / JOURNAL)
        existing(spec)  # before any training: refuses runs with other settings or other data
        return _Trainings(spec, report).run()


def existing(spec: Sweep) -> list[Trial]:
    """Return the trials with the results so far, without training."""
    check_metric(spec)
    values, journal = grid(spec), spec.chosen.output / JOURNAL
    if values is None and journal.is_file():
        with tempfile.TemporaryDirectory() as folder:  # Optuna writes to a journal that it opens
            copy = Path(shutil.copy(journal, folder))
            mend(copy)
            values = [values for _, values in SweepStudy(spec, copy).tried()]
    trials, data = [], _Data(spec)
    for entry in values or ():
        trials.append(Trial(entry, spec.metric))
        for seed in spec.chosen.seeds:
            result = _finished(spec.run(entry, seed))
            data.check(entry, seed, result)
            trials[-1].take(seed, result)
    return trials


class _Trainings:
    """Trains the missing runs of a sweep, and stores the results of all in its trials."""

    def __init__(self, spec: Sweep, report: Report) -> None:
        self.spec, self.report = spec, report
        self.study, self.data = SweepStudy(spec), _Data(spec)
        self.trials: list[Trial] = []
        self.start = time.monotonic()
        self.seconds: list[float] = []
        self.total = self.study.count * len(spec.chosen.seeds)
        names = ", ".join(setting.name for setting in spec.varied)
        report(f"{self.study.count} trials of {names}, {self.total} runs")

    def run(self) -> list[Trial]:
        with closing(each(_train, self._runs(), self.spec.jobs)) as finished:
            for run, result in finished:
                self._store(self.trials[run.trial], run.seed, result)
        return self.trials

    def _runs(self) -> Iterator[PlannedRun]:
        """Yield the runs to train; store the results of finished runs."""
        for number, values in self.study.settings():
            known = next((trial for trial in self.trials if trial.values == values), None)
            if known is not None:
                known.numbers.append(number)
                self._tell_optuna(known)
                continue
            trial = Trial(values, self.spec.metric, [number])
            self.trials.append(trial)
            index = len(self.trials) - 1
            for seed in self.spec.chosen.seeds:
                settings = self.spec.run(values, seed)
                result = _finished(settings)
                if result is None:
                    yield PlannedRun(index, seed, settings)
                else:
                    self._store(trial, seed, result)

    def _store(self, trial: Trial, seed: int, result: Result | str | InputError) -> None:
        """Store the outcome of a run, and report it."""
        self.data.check(trial.values, seed, result)
        trial.take(seed, result)
        score = trial.scores.get(seed)
        number = "none" if score is None else f"{score:.4g}"
        outcome = trial.notes.get(seed) or f"{trial.metric} {number}"
        if isinstance(result, Result):
            self.seconds.append(float(result.metrics.get("wall_seconds") or 0.0))
        done = sum(entry.runs for entry in self.trials)
        setting = " ".join(f"{name}={value}" for name, value in trial.values.items())
        progress = f"[{done}/{max(done, self.total)}]"
        self.report(f"{progress} {setting} seed={seed}: {outcome} ({self._time(done)})")
        self._tell_optuna(trial)

    def _tell_optuna(self, trial: Trial) -> None:
        """Report the score of a complete trial to Optuna."""
        if not self._complete(trial):
            return
        for number in trial.numbers:
            self.study.tell(number, trial.score)
        if self.spec.chosen.keep == "best":
            self._discard()

    def _complete(self, trial: Trial) -> bool:
        """Return whether all runs ended; the same command trains a failed run again."""
        return trial.runs == len(self.spec.chosen.seeds) and not trial.failures

    def _time(self, done: int) -> str:
        """Return the time so far and, if a run has shown how long runs take, the time to go."""
        passed = format_duration(time.monotonic() - self.start)
        if not self.seconds or done >= self.total:
            return f"{passed} so far"
        left = statistics.fmean(self.seconds) * (self.total - done) / self.spec.jobs
        return f"{passed} so far, about {format_duration(left)} to go"

    def _discard(self) -> None:
        """Remove the models of complete trials that are not the best, and what led to them."""
        complete = list(filter(self._complete, self.trials))
        best = best_of(complete, highest=self.spec.highest)
        for trial in complete:
            for seed in () if trial is best else (*trial.results, *trial.notes):
                run = RunFolder(self.spec.folder(trial.values, seed))
                for part in (run.model, run.rejected, run.refit, run.checkpoints, run.tokens):
                    shutil.rmtree(part, ignore_errors=True)


class _Data:
    """Checks that all runs of a sweep have the same data."""

    def __init__(self, spec: Sweep) -> None:
        self.spec = spec
        self._seen: dict[object, tuple[str, Path]] = {}  # fingerprint and folder, by settings

    def check(self, values: Values, seed: int, result: Result | str | InputError | None) -> None:
        """Refuse a result if an earlier run with equal settings of the data had other data."""
        if not isinstance(result, Result):
            return
        folder = self.spec.folder(values, seed)
        for (name, *about), fingerprint in _fingerprints(self.spec.run(values, seed), result):
            first, other = self._seen.setdefault((name, *about), (fingerprint, folder))
            if fingerprint != first:
                raise InputError(
                    "choose another `--output`, or delete the older run: scores on different data "
                    f"cannot be ranked. The data {name} changed between {folder} and {other}"
                )


def _fingerprints(
    settings: RunSettings, result: Result
) -> Iterator[tuple[tuple[str, object], str]]:
    """Yield each data set of a run: its name, the settings it depends on, and its fingerprint."""
    if isinstance(settings, TrainSettings):
        for file, digest in result.details.get("data", {}).get("digests", {}).items():
            yield (file, ()), digest
        scored = (result.details.get("dev") or {}).get("data")
        if settings.dev not in (None, "auto") and scored:  # auto is held out of the training data
            yield (str(settings.dev), "dev"), scored
    elif isinstance(settings, ImageSettings) and "data" in result.provenance:
        pictures = settings.classes, settings.limit, settings.image_size, settings.encoder
        by_seed = settings.holdout or settings.data == "digits"  # a fifth of these is held out
        drawn = (settings.holdout, settings.seed) if by_seed else ()
        yield (settings.data, (*pictures, *drawn)), result.provenance["data"]


def _finished(settings: RunSettings) -> Result | str | None:
    """Return the result of a run, or why it diverged; None if it must still be trained."""
    folder = Path(settings.output)
    if not RunFolder(folder).config.is_file():
        return None
    if isinstance(settings, TrainSettings):
        settings = as_begun(settings)  # with numbers in place of "auto"
    finished = check_folder(folder, settings, resume=True)
    if finished is not None:
        return None if awaits_second(settings, finished) else finished
    note = RunFolder(folder).diverged
    return note.read_text(encoding="utf-8") if note.is_file() else None


def _train(run: PlannedRun) -> Result | str | InputError:
    """Train one run, from its last checkpoint if possible, or return why it has no result."""
    try:
        return trained(run.settings).result
    except Diverged as error:
        write_text(RunFolder(run.settings.output).diverged, str(error))
        return str(error)
    except Exception as error:
        if not memory_is_full(error):
            raise
        reason = first_line(error)
    gc.collect()  # trainer and callbacks refer to each other
    # not raised: the frames of the first error hold the memory that the next run needs
    return InputError(f"not enough memory ({reason})", remedy="lower `--batch-size`")

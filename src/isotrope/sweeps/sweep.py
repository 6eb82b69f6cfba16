"""Runs a sweep: trains the missing runs, stage by stage, and scores them.

Every run is an ordinary run folder, named by its values and its seed, so finished runs are not
repeated if values are added later. A stage varies its settings, with those of earlier stages fixed
at their best values.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from isotrope.core.documents import read_yaml
from isotrope.core.errors import Diverged, InputError, SettingError
from isotrope.core.files import atomic_replace
from isotrope.core.lock import exclusive_lock
from isotrope.core.progress import format_duration
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.sweeps.plan import check_sweep
from isotrope.sweeps.same_data import SameData
from isotrope.sweeps.search_space import Varied
from isotrope.sweeps.spec import Sweep, Values
from isotrope.sweeps.study import StageStudy, planned, tried
from isotrope.sweeps.train_one import trained
from isotrope.sweeps.trials import Stage, Trial, best_of
from isotrope.training.early_checks import as_begun, check_folder
from isotrope.training.launch import each
from isotrope.training.settings import RunSettings, TrainSettings

Run = tuple[int, int, RunSettings]
"""One run: its trial, its seed and its settings."""

Report = Callable[[str], None]


def sweep(spec: Sweep, report: Report = lambda line: None, *, measure: bool = True) -> list[Stage]:
    """Train the missing runs and return all trials.

    Stops after a stage without scores.

    Args:
        spec: The plan.
        report: Function that receives a line for each stage and each finished run.
        measure: False trains nothing.

    Raises:
        InputError: Before anything runs: a name, a value, the data, the encoder or the folder is
            wrong, or the data of finished runs have changed.
        LostProcess: a process died, or was stopped; finished runs are kept.
        KeyboardInterrupt: Ctrl-C; finished runs are kept.
    """
    if not measure:
        return _stages(spec, report, measure=False)
    check_sweep(spec)
    doing = f"measuring into {spec.output}"
    with exclusive_lock(spec.output, doing, " (`--show` prints the finished runs)"):
        _same_base(spec)
        return _stages(spec, report, measure=True)


def _stages(spec: Sweep, report: Report, *, measure: bool) -> list[Stage]:
    stages: list[Stage] = []
    fixed: dict[str, str] = {}
    same_data = SameData(spec)  # a stage goes on with what the one before has chosen
    for place, varied in enumerate(spec.stages, start=1):
        if measure:
            trials = _StageRun(spec, varied, fixed, place, report, same_data).run()
        else:
            trials = _existing(spec, varied, fixed, same_data)
        stages.append(Stage(varied, dict(fixed), trials))
        best = best_of(trials, highest=spec.highest)
        if best is None:
            break
        fixed = dict(best.values)
    return stages


def _existing(
    spec: Sweep, varied: Sequence[Varied], fixed: Values, same_data: SameData
) -> list[Trial]:
    """Return the trials of a stage as far as they have been trained; nothing is written."""
    plan = planned(spec, varied)
    trials = []
    for number, values in enumerate(tried(spec, varied, fixed) if plan is None else plan, start=1):
        trials.append(Trial(number, {**fixed, **values}, spec.metric))
        for seed in spec.seeds:
            result = _finished(spec.run(trials[-1].values, seed))
            trials[-1].take(seed, result)
            same_data.check(trials[-1].values, seed, result)
    return trials


class _StageRun:
    """The runs of one stage."""

    def __init__(
        self,
        spec: Sweep,
        varied: Sequence[Varied],
        fixed: Values,
        place: int,
        report: Report,
        same_data: SameData,
    ) -> None:
        self.spec, self.fixed, self.report = spec, fixed, report
        self.study = StageStudy(spec, varied, fixed, place)
        self.same_data = same_data
        self.trials: list[Trial] = []
        self.numbers: list[list[int]] = []  # Optuna's, of each trial: it may choose one twice
        self.start = time.monotonic()
        self.seconds: list[float] = []
        self.total = self.study.count * len(spec.seeds)
        report(
            f"stage {place} of {len(spec.stages)}: {self.study.count} trials of "
            f"{', '.join(setting.name for setting in varied)}, {self.total} runs"
        )

    def run(self) -> list[Trial]:
        with closing(each(_train, self._runs(), self.spec.jobs)) as finished:
            for (place, seed, _), result in finished:
                self._ended(place, seed, result)
        return self.trials

    def _runs(self) -> Iterator[Run]:
        """Yield the runs to train; finished ones are used as they are."""
        for number, values in self.study.settings():
            values_of_trial = {**self.fixed, **values}
            place = next(
                (i for i, t in enumerate(self.trials) if t.values == values_of_trial), None
            )
            if place is not None:
                self.numbers[place].append(number)
                self._tell_optuna(place)
                continue
            place = len(self.trials)
            self.trials.append(Trial(place + 1, values_of_trial, self.spec.metric))
            self.numbers.append([number])
            for seed in self.spec.seeds:
                settings = self.spec.run(values_of_trial, seed)
                result = _finished(settings)
                if result is None:
                    yield place, seed, settings
                else:
                    self._ended(place, seed, result)

    def _ended(self, place: int, seed: int, result: Result | str | InputError) -> None:
        """Store the outcome of a run, and report it."""
        trial = self.trials[place]
        trial.take(seed, result)
        self.same_data.check(trial.values, seed, result)
        score = trial.scores.get(seed)
        number = "none" if score is None else f"{score:.4g}"
        outcome = trial.notes.get(seed) or f"{trial.metric} {number}"
        if isinstance(result, Result):
            self.seconds.append(float(result.metrics.get("wall_seconds") or 0.0))
        done = sum(entry.runs for entry in self.trials)
        setting = " ".join(f"{name}={value}" for name, value in trial.values.items())
        progress = f"[{done}/{max(done, self.total)}]"
        self.report(f"{progress} {setting} seed={seed}: {outcome} ({self._passed(done)})")
        self._tell_optuna(place)

    def _tell_optuna(self, place: int) -> None:
        """Let Optuna know the score of a trial that is complete.

        A run that failed is tried again by the same command: its trial continues.
        """
        trial = self.trials[place]
        if trial.runs < len(self.spec.seeds) or trial.failures:
            return
        for number in self.numbers[place]:
            self.study.tell(number, trial.score)
        if self.spec.keep == "best":
            self._discard()

    def _passed(self, done: int) -> str:
        passed = format_duration(time.monotonic() - self.start)
        if not self.seconds or done >= self.total:
            return f"{passed} so far"
        left = statistics.fmean(self.seconds) * (self.total - done) / self.spec.jobs
        return f"{passed} so far, about {format_duration(left)} to go"

    def _discard(self) -> None:
        """Remove models and checkpoints of complete trials that are not the best."""
        complete = [trial for trial in self.trials if trial.runs == len(self.spec.seeds)]
        best = best_of(complete, highest=self.spec.highest)
        for trial in complete:
            for seed in () if trial is best else trial.results:
                files = RunFolder(self.spec.folder(trial.values, seed))
                for part in (files.model, files.checkpoints):
                    shutil.rmtree(part, ignore_errors=True)


def _finished(settings: RunSettings) -> Result | str | None:
    """Return the result of a run, or why it diverged; None where it is to be trained."""
    folder = Path(settings.output)
    if not RunFolder(folder).config.is_file():
        return None
    if isinstance(settings, TrainSettings):
        settings = as_begun(settings)  # its temperature may have been found
    finished = check_folder(folder, settings, resume=True)
    if finished is not None:
        return finished
    note = folder / _DIVERGED
    return note.read_text(encoding="utf-8") if note.is_file() else None


_DIVERGED = "diverged.txt"


def _train(run: Run) -> Result | str:
    """Train one run, from its last checkpoint if it has one; return why, if it diverges."""
    settings = run[2]
    try:
        return trained(settings).result
    except Diverged as error:
        with atomic_replace(Path(settings.output) / _DIVERGED) as temporary:
            temporary.write_text(str(error), encoding="utf-8")
        return str(error)


def _same_base(spec: Sweep) -> None:
    """Refuse a folder that holds a sweep of other trainings; else write down what this one is."""
    file = spec.output / "shared.yaml"
    varied = {setting.name.replace("-", "_") for stage in spec.stages for setting in stage}
    current = spec.settings.read({**spec.base, "output": "runs", "progress": False})
    if not file.is_file():
        with atomic_replace(file) as temporary:
            temporary.write_text(current.to_yaml(), encoding="utf-8")
        return
    before = spec.settings.read(read_yaml(file), source=str(file))
    for name in spec.settings.model_fields:
        old, new = getattr(before, name), getattr(current, name)
        if isinstance(old, dict) and isinstance(new, dict):  # objective.temperature and others
            prefix = name.removesuffix("_settings")
            old, new = (
                {k: v for k, v in part.items() if f"{prefix}.{k}" not in varied}
                for part in (old, new)
            )
        if name not in {*spec.settings.free, *varied, "seed"} and old != new:
            raise SettingError(
                f"{spec.output} holds a sweep of other runs: it was {old!r}, now it is {new!r}",
                setting=name,
                value=new,
                remedy="choose another `--output`",
            )

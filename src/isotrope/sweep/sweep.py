"""Sweep: train what has not been trained yet, score by score, stage by stage.

Every run is an ordinary run folder, named by its values and its seed: what is there is not trained
again, also where values are added later. A stage varies its settings with those of the stages
before fixed at their best.
"""

import json
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from isotrope.core.alone import alone
from isotrope.core.durations import lasting
from isotrope.core.errors import Diverged, InputError
from isotrope.core.files import replacing, writable
from isotrope.core.result import Result
from isotrope.methods.run import check_output
from isotrope.methods.settings import RunSettings, read_yaml
from isotrope.sweep.asked import Sweep, kind_of, planned
from isotrope.sweep.checks import check_sweep
from isotrope.sweep.samplers import Grid, Random, Sampler, Tpe, Values
from isotrope.sweep.trained import trained
from isotrope.sweep.trials import Stage, Trial, best_of
from isotrope.sweep.varied import Varied
from isotrope.sweep.workers import each

__all__ = ["sweep"]

Run = tuple[int, int, RunSettings]
"""Trial, seed, and what is trained."""


def sweep(
    asked: Sweep, tell: Callable[[str], None] = lambda line: None, *, measure: bool = True
) -> list[Stage]:
    """Train what has not been trained yet; return everything there is.

    A stage without any score is the last.

    Args:
        asked: what to do.
        tell: takes a line when a stage begins, and for each run that ends.
        measure: False trains nothing.

    Raises:
        InputError: found before anything runs: a name, a value, data, an encoder, a folder that
            another sweep fills.
        LostProcess: a process died, or was asked to stop; what was finished is kept.
        KeyboardInterrupt: Ctrl-C; what was finished is kept.
    """
    if not measure:
        return _stages(asked, tell, measure=False)
    check_sweep(asked)
    doing = f"measuring into {asked.output}"
    with alone(asked.output, doing, " (--show looks at what there is)"):
        _same_base(asked)
        return _stages(asked, tell, measure=True)


def _stages(asked: Sweep, tell: Callable[[str], None], *, measure: bool) -> list[Stage]:
    found: list[Stage] = []
    fixed: dict[str, str] = {}
    for number, varied in enumerate(asked.stages, start=1):
        trials = _Trials(asked, varied, fixed, number, tell).run(measure=measure)
        found.append(Stage(varied, dict(fixed), trials))
        best = best_of(trials, highest=asked.highest)
        if best is None:
            break
        fixed = dict(best.values)
    return found


class _Trials:
    """The trials of one stage."""

    def __init__(
        self,
        asked: Sweep,
        varied: Sequence[Varied],
        fixed: Values,
        stage: int,
        tell: Callable[[str], None],
    ) -> None:
        self.asked, self.varied, self.fixed, self.stage = asked, varied, fixed, stage
        self.kind = kind_of(asked, varied)
        self.tell = tell
        self.trials: list[Trial] = []
        self.start = time.monotonic()
        self.took: list[float] = []
        self.again: Counter[int] = Counter()  # asked for a second time while it was running
        self.log = asked.output / "trials.jsonl"

    def run(self, *, measure: bool) -> list[Trial]:
        plan = planned(self.asked, self.varied)
        if not measure:
            for values in self._before() if plan is None else plan:
                trial = self._begun(values)
                for seed in self.asked.seeds:
                    self._take(trial, seed, _finished(self.asked.run(trial.values, seed)))
            return self.trials
        self.sampler = self._sampler()
        count = self.asked.trials if plan is None else len(plan)
        self.total = count * len(self.asked.seeds)
        self.tell(
            f"stage {self.stage} of {len(self.asked.stages)}: {count} trials of "
            f"{', '.join(one.name for one in self.varied)}, {self.total} runs"
        )
        with closing(each(_train, self._runs(), self.asked.jobs)) as finished:
            for (number, seed, _), found in finished:
                self._ended(self.trials[number], seed, found)
        return self.trials

    def _sampler(self) -> Sampler:
        if self.kind == "grid":
            return Grid(self.varied)
        if self.kind == "random":
            return Random(self.varied, self.asked.trials, self.asked.draws)
        before = []
        for values in self._before():
            trial = Trial(0, {**self.fixed, **values}, self.asked.metric)
            for seed in self.asked.seeds:
                self._take(trial, seed, _finished(self.asked.run(trial.values, seed)))
            before.append((values, trial.score, trial.runs == len(self.asked.seeds)))
            if before[-1][2]:
                self.trials.append(trial)
                trial.number = len(self.trials)
        return Tpe(
            self.varied,
            self.asked.trials,
            self.asked.draws,
            highest=self.asked.highest,
            before=before,
        )

    def _before(self) -> list[dict[str, str]]:
        """What Optuna chose for an earlier command, as far as it may be chosen now."""
        found: list[dict[str, str]] = []
        names = {one.name for one in self.varied}
        text = self.log.read_text(encoding="utf-8") if self.log.is_file() else ""
        for line in text.split("\n")[:-1]:  # what follows the last end of line was cut off
            try:
                record = json.loads(line)
                values = {str(k): str(v) for k, v in record["values"].items()}
                here = record["stage"] == self.stage and record["fixed"] == dict(self.fixed)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise InputError(f"{self.log} is damaged ({error}): {line[:60]!r}") from error
            fits = set(values) == names and all(v.holds(values[v.name]) for v in self.varied)
            if here and fits and values not in found:
                found.append(values)
        return found

    def _begun(self, values: Values) -> Trial:
        trial = Trial(len(self.trials) + 1, {**self.fixed, **values}, self.asked.metric)
        self.trials.append(trial)
        return trial

    def _runs(self) -> Iterator[Run]:
        """Yield what is to be trained; what is finished is taken as it is."""
        while (values := self.sampler.ask()) is not None:
            whole = {**self.fixed, **values}
            known = next((i for i, t in enumerate(self.trials) if t.values == whole), None)
            if known is not None:
                if self.trials[known].runs == len(self.asked.seeds):
                    self.sampler.tell(values, self.trials[known].score)
                else:
                    self.again[known] += 1
                continue
            if self.kind == "optuna":
                self._write(values)
            trial = self._begun(values)
            for seed in self.asked.seeds:
                settings = self.asked.run(trial.values, seed)
                found = _finished(settings)
                if found is None:
                    yield trial.number - 1, seed, settings
                else:
                    self._ended(trial, seed, found)

    def _write(self, values: Values) -> None:
        if dict(values) in self._before():
            return
        record = {"stage": self.stage, "fixed": dict(self.fixed), "values": dict(values)}
        with writable(self.log), self.log.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _take(self, trial: Trial, seed: int, found: "Result | str | InputError | None") -> None:
        if isinstance(found, Result):
            trial.results[seed] = found
        elif found is not None:
            trial.notes[seed] = str(found)
        if isinstance(found, InputError):
            trial.failures.append(str(found))

    def _ended(self, trial: Trial, seed: int, found: "Result | str | InputError") -> None:
        """Keep what a run came to, say it, and let the sampler know when its trial is complete."""
        self._take(trial, seed, found)
        said = trial.notes.get(seed) or f"{trial.metric} {_number(trial.scores.get(seed))}"
        if isinstance(found, Result):
            self.took.append(float(found.metrics.get("wall_seconds") or 0.0))
        done = sum(one.runs for one in self.trials)
        told = " ".join(f"{name}={value}" for name, value in trial.values.items())
        self.tell(f"[{done}/{self.total}] {told} seed={seed}: {said} ({self._passed(done)})")
        if trial.runs < len(self.asked.seeds):
            return
        values = {one.name: trial.values[one.name] for one in self.varied}
        for _ in range(1 + self.again.pop(trial.number - 1, 0)):
            self.sampler.tell(values, trial.score)
        if self.asked.keep == "best":
            self._discard()

    def _passed(self, done: int) -> str:
        passed = time.monotonic() - self.start
        more = ""
        if self.took and done < self.total:
            left = statistics.fmean(self.took) * (self.total - done) / self.asked.jobs
            more = f", about {lasting(left)} to go"
        return f"{lasting(passed)} so far{more}"

    def _discard(self) -> None:
        """Remove models and checkpoints of complete trials that are not the best."""
        complete = [trial for trial in self.trials if trial.runs == len(self.asked.seeds)]
        best = best_of(complete, highest=self.asked.highest)
        for trial in complete:
            for seed in () if trial is best else trial.results:
                folder = self.asked.folder(trial.values, seed)
                for part in ("model", "checkpoints"):
                    shutil.rmtree(folder / part, ignore_errors=True)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _finished(settings: RunSettings) -> Result | str | None:
    """Return the result of a run, or why it diverged; None where it is to be trained.

    Raises:
        InputError: the folder belongs to another run.
    """
    folder = Path(settings.output)
    if not (folder / "config.yaml").is_file():
        return None
    finished = check_output(folder, settings, resume=True)
    if finished is not None:
        return finished.result
    said = folder / _DIVERGED
    return said.read_text(encoding="utf-8") if said.is_file() else None


_DIVERGED = "diverged.txt"


def _train(run: Run) -> Result | str:
    """Train one run, from its last checkpoint if it has one; return why, if it diverges."""
    settings = run[2]
    try:
        return trained(_training(settings), settings).result
    except Diverged as error:
        with replacing(Path(settings.output) / _DIVERGED) as temporary:
            temporary.write_text(str(error), encoding="utf-8")
        return str(error)


def _training(settings: RunSettings) -> Callable[..., Any]:
    if settings.kind == "text":
        from isotrope.methods.training import train

        return train
    from isotrope.methods.image_training import train as train_images

    return train_images


def _same_base(asked: Sweep) -> None:
    """Refuse a folder that holds a sweep of other trainings; else write down what this one is."""
    file = asked.output / "base.yaml"
    varied = {one.name.replace("-", "_") for stage in asked.stages for one in stage}
    own = asked.settings.read({**asked.base, "output": "runs", "progress": False})
    if file.is_file():
        before = asked.settings.read(read_yaml(file), source=str(file))
        for name in asked.settings.model_fields:
            old, new = getattr(before, name), getattr(own, name)
            if isinstance(old, dict) and isinstance(new, dict):  # objective.temperature and others
                prefix = name.removesuffix("_settings")
                old, new = (
                    {k: v for k, v in one.items() if f"{prefix}.{k}" not in varied}
                    for one in (old, new)
                )
            if name not in {*asked.settings.free, *varied, "seed"} and old != new:
                raise InputError(
                    f"{asked.output} holds a sweep of other runs: their --{name.replace('_', '-')} "
                    f"was {old!r}, now it is {new!r}; choose another --output"
                )
        return
    own.save(file)

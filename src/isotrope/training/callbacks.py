"""Logs, scores and saves between the steps of a run, and stops the run early if needed."""

import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isotrope.core.distributed import all_reduce_max
from isotrope.core.documents import read_json
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.files import (
    atomic_replace,
    open_own,
    os_errors_as_input_errors,
    sync,
    write_text,
)
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import json_text, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.metrics import columns
from isotrope.measures.judgement import DevEvaluation, DevHistory, Judgement, judge
from isotrope.training.checkpoints import Checkpoints
from isotrope.training.nan_guard import Trained, check_finite_weights
from isotrope.training.progress import Progress, warn
from isotrope.training.time_limit import Pace

COLUMNS = columns("text")


class Timer:
    """Counts the seconds that the steps take, including the reading of data."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.seconds = 0.0
        self.steps = 0
        self._since: float | None = None
        self._resting = 0.0

    @property
    def rate(self) -> float:
        """Rows of data per second."""
        return self.steps * self.batch_size / max(self.seconds, 1e-9)

    def rest(self, seconds: float) -> None:
        """Exclude seconds that another callback took from the time of the steps."""
        self._resting += seconds

    def begin(self) -> None:
        """Start the clock."""
        self._since, self._resting = time.perf_counter(), 0.0

    def step(self) -> None:
        """Add the time of the step that has just ended, including the reading of its data."""
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since - self._resting
        self.steps += 1
        self._since, self._resting = now, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds so far for a checkpoint."""
        return {"seconds": self.seconds, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the seconds in a checkpoint."""
        self.seconds, self.steps = state_dict["seconds"], state_dict["steps"]


class Metrics:
    """Writes metrics.csv, with a row for each logged step and no text for unmeasured numbers."""

    def __init__(
        self,
        folder: Path,
        *,
        steps_per_epoch: int | None,
        timer: Timer,
        module: Trained,
        columns: Sequence[str] = COLUMNS,
        progress: Progress,
        log: Callable[[dict[str, float], int], None],
    ) -> None:
        self.path, self.progress, self.module = RunFolder(folder).metrics, progress, module
        self.columns = tuple(columns)  # the last is the rows of data per second
        self.steps_per_epoch, self.timer = steps_per_epoch, timer
        self._log = log
        self._pending: int | None = None
        self._row: dict[str, float | None] = {}  # its row, which is not yet in the file
        self.newest: dict[str, float | None] = {}  # newest row with a loss

    def begin(self, step: int) -> None:
        """Write the header of metrics.csv; a resumed run keeps only the rows before ``step``."""
        rows = self._read() if self.path.is_file() and step > 0 else {}
        if self._pending is not None and self._pending < step:
            rows.setdefault(self._pending, self._row)
            self._pending = None
        earlier = [(at, row) for at, row in sorted(rows.items()) if at < step]
        measured = [row for _, row in earlier if row.get("loss") is not None]
        self.newest = measured[-1] if measured else {}
        with (
            atomic_replace(self.path) as temporary,
            temporary.open("w", encoding="utf-8") as handle,
        ):
            handle.write(",".join(self.columns) + "\n")
            handle.writelines(self._line(at, row) for at, row in earlier)

    def _read(self) -> dict[int, dict[str, float | None]]:
        """Return the rows of the file; skip lines that a power failure cut short."""
        *lines, unfinished = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        names = lines.pop(0).split(",") if lines else []
        broken = int(unfinished != "")
        rows: dict[int, dict[str, float | None]] = {}
        for line in lines:
            try:
                row = dict(zip(names, line.split(","), strict=True))
                # a column that an earlier version did not write stays empty
                cells = {k: float(cell) if (cell := row.get(k)) else None for k in self.columns[1:]}
                rows[int(row["step"])] = cells
            except (KeyError, ValueError):
                broken += 1
        if broken:
            warn(f"warning: skipped rows of {self.path} that cannot be read: {broken}")
        return rows

    def add(self, step: int, values: dict[str, float | None]) -> None:
        """Add values to the row of ``step``; metrics.csv gets this row when the next row begins."""
        ensure_not_replaced(self.path.parent)
        if step != self._pending:
            self.close()
            self._pending, self._row = step, {}
        # rounded as in the file, so that a resumed run has the same numbers
        self._row.update({k: v if v is None else float(f"{v:.10g}") for k, v in values.items()})
        if self._row.get("loss") is not None:
            self.newest = self._row
        self._log({name: value for name, value in values.items() if value is not None}, step)

    def state_dict(self) -> dict[str, Any]:
        """Return a dict with the row that is not yet in metrics.csv, for a checkpoint."""
        with os_errors_as_input_errors(self.path):
            sync(self.path)
        return {"pending": None if self._pending is None else (self._pending, self._row)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the unwritten row of a checkpoint."""
        if state_dict["pending"] is not None:
            self._pending, self._row = state_dict["pending"]

    def close(self) -> None:
        """Write the unfinished row."""
        if self._pending is None:
            return
        ensure_not_replaced(self.path.parent)
        with (
            os_errors_as_input_errors(self.path),
            open_own(self.path, "a", encoding="utf-8") as handle,
        ):
            handle.write(self._line(self._pending, self._row))
        self._pending = None

    def _line(self, step: int, values: dict[str, float | None]) -> str:
        row = {"step": step, **values}
        cells = ("" if row.get(k) is None else f"{row[k]:.10g}" for k in self.columns)
        return ",".join(cells) + "\n"

    def step(self, step: int) -> None:
        """Add a row for the step that has just ended, if it was measured. Steps count from 0."""
        module = self.module
        if not module.measured:
            return
        norm = module.gradient_norm
        self.add(
            step,
            {
                **module.measured,
                "epoch": None if self.steps_per_epoch is None else step / self.steps_per_epoch,
                "learning_rate": module.learning_rate_at(step),
                "gradient_norm": None if norm is None else float(norm),
                self.columns[-1]: self.timer.rate,
            },
        )
        if (loss := module.measured.get("loss")) is not None:
            self.progress.logged(step, loss)
        module.measured = {}


class Dev:
    """Measures the dev score at step 0, every ``every`` steps and at the end.

    The best model is saved, unless ``history.saved`` is "last". Losses of held-out records are
    measured at the same steps, and written to the same rows of metrics.csv.

    Args:
        history: History of the evaluations. It also has the name of the score and determines which
            model is saved.
        score: Function that evaluates the current encoder. Or a string, if no data are scored: the
            string is printed at the end of the run in place of the verdict.
        column: Column of the score in metrics.csv, and prefix of the scores in result.json.
        every: Number of steps between scores. With 0, only the start and the end are scored.
        patience: Number of scores without a new best after which the run ends. None: all steps run.
        curves: Function that returns a dict from columns to losses of held-out records, or None.
        data: Fingerprint of the scored data, which must not change when a run is resumed. None if
            nothing is scored, or if the scored data are a part of the training data.
    """

    metrics: Metrics  # receives the scores
    keep: Callable[[int], str]  # saves the best model
    saved: Callable[[], AbstractContextManager[None]] = nullcontext  # has the weights to save

    def __init__(
        self,
        history: DevHistory,
        score: Callable[[], DevEvaluation] | str,
        *,
        column: str,
        every: int,
        patience: int | None = None,
        curves: Callable[[], Mapping[str, float]] | None = None,
        data: str | None = None,
    ) -> None:
        self.curves, self.data = curves, data
        self.history, self.score, self.column = history, score, column
        self.every, self.patience = every, patience
        self.keeps_best = history.saved != "last"
        self.weights: dict[int, str] = {}  # fingerprints of the kept models, by step
        self.seconds = 0.0  # of the newest evaluation

    @property
    def scores(self) -> dict[int, float]:
        """All scores, by step."""
        return self.history.scores

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and score of the best evaluation, the earliest at ties."""
        if not self.scores:
            return None
        step = self.history.chosen_step()
        return step, self.scores[step]

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` evaluations gave no new best score."""
        if self.patience is None or not self.scores:
            return False
        return sum(step > self.history.highest_step for step in self.scores) >= self.patience

    def judgement(self) -> Judgement:
        """Return whether the training raised the score."""
        if not self.scores:
            return Judgement("not known", str(self.score))
        return judge(self.history)

    def evaluate(self, step: int) -> None:
        """Score the encoder after ``step`` updates; save the encoder if its score is the best."""
        start = time.perf_counter()
        with self.saved() if step else nullcontext():  # a blend with itself changes -0.0 to 0.0
            self._evaluate(step)
        self.seconds = time.perf_counter() - start
        self.metrics.timer.rest(self.seconds)

    def _evaluate(self, step: int) -> None:
        if self.curves is not None:
            self.metrics.add(step, {**self.curves()})
        if isinstance(self.score, str):
            return
        evaluation = self.score()
        value = evaluation.value
        self.history.add(step, evaluation)
        self._mark_end()
        self.metrics.add(step, {self.column: value})
        if self.keeps_best and self.history.chosen_step() == step:
            self.weights[step] = self.keep(step)
        self.history.save(RunFolder(self.metrics.path.parent).dev)
        first = self.scores[min(self.scores)]
        change = "start" if step == 0 else f"{value - first:+.2f} from the start"
        at = self.history.highest_step
        best = f"best {self.scores[at]:.2f} at step {at:,}"
        shown = change if self.history.saved == "trained" else best
        self.metrics.progress.scored(step, f"{self.history.name} {value:.2f}", change, shown)
        if self.exhausted and step != self.metrics.module.steps:
            since = f"in the last {self.patience} evaluations, no score was above the {best}"
            self.metrics.progress.say(f"early stopping at step {step:,}: {since}")

    def _mark_end(self) -> None:
        """Record whether the newest evaluation is the last."""
        last = max(self.scores, default=0) == self.metrics.module.steps
        self.history.ended = last or self.exhausted

    def begin(self, step: int) -> None:
        """Score the model before training."""
        if step == 0 and 0 not in self.scores:
            self.evaluate(0)

    def step(self, step: int) -> None:
        """Score every ``every`` steps and after the last step."""
        if step == self.metrics.module.steps or (self.every and step % self.every == 0):
            check_finite_weights(self.metrics.module, step)
            self.evaluate(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the scores so far for a checkpoint."""
        evaluations = self.history.evaluations
        gold = next((evaluation.gold for evaluation in evaluations.values()), None)
        return {
            "scores": self.scores,
            # as tensors, because safe loading of a checkpoint refuses numpy arrays
            "items": {step: torch.from_numpy(e.items) for step, e in evaluations.items()},
            "gold": None if gold is None else torch.from_numpy(gold),
            "weights": self.weights,
            "data": self.data,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the scores of a checkpoint."""
        before = state_dict["data"]
        _check_unchanged(f"data of the {self.history.name}", before, self.data)
        self.history.scores = {int(k): float(v) for k, v in state_dict["scores"].items()}
        self.weights = dict(state_dict.get("weights", {}))
        gold = state_dict.get("gold")
        self.history.evaluations = {
            int(step): DevEvaluation(
                self.scores[int(step)], items.numpy(), None if gold is None else gold.numpy()
            )
            for step, items in state_dict["items"].items()
        }
        self._mark_end()


def worker_gone(error: BaseException) -> bool:
    """Return whether an error reports that a process of the data loader has died."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    # _try_get_data is the method with which torch's loader reads a batch
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, (ConnectionError, EOFError)) and "_try_get_data" in frames


def _check_unchanged(what: str, before: str | None, now: str | None) -> None:
    """Refuse to resume a run whose data have changed."""
    if before != now:
        raise CannotResume(
            f"restore the {what}, or start again in another output folder: the data have changed "
            f"since the checkpoint was written (old fingerprint {before}, new fingerprint {now})"
        )


def write_provenance(folder: Path, step: int, *, seed: int, data: str) -> None:
    """Add versions, seed and data to provenance.json, when a run starts and when it is resumed."""
    path, parts = RunFolder(folder).provenance, list[dict[str, Any]]()
    if step > 0 and path.is_file():
        with suppress(InputError):  # a damaged file is replaced
            recorded = read_json(path)
            parts = recorded if isinstance(recorded, list) else []
    now = {"step": step, **provenance(seed=seed, data=data)}
    before = parts[-1].get("versions") if parts and isinstance(parts[-1], dict) else None
    if before not in (None, now["versions"]):
        warn(
            "warning: numbers may differ in the last digits from those of an uninterrupted run: "
            f"package versions changed before this run was resumed (see {path})"
        )
    write_text(path, json_text([*parts, now]))


class Between(TrainerCallback):
    """Logs, scores and saves between the steps; logged speeds exclude the time that this takes.

    After Ctrl-C or SIGTERM, the run finishes the current step, writes a checkpoint and ends. After
    a second Ctrl-C, the run ends at once, without a checkpoint. Early stopping also ends the run.

    Args:
        metrics: The log of the run; None in all processes but the first, which print nothing.
        pace: Object that corrects the number of steps of a run with ``--minutes``, or None.

    Attributes:
        save: Function that writes a checkpoint at once; set by the trainer.
        signal: Signal that asked the run to stop, or None.
        interrupted: Whether the signal ended the run before its last step, after a checkpoint.
    """

    save: Callable[[], None]

    def __init__(
        self,
        module: Trained,
        timer: Timer,
        checkpoints: Checkpoints,
        dev: Dev,
        data: str,
        metrics: Metrics | None,
        pace: Pace | None = None,
    ) -> None:
        self.module, self.timer, self.checkpoints, self.dev = module, timer, checkpoints, dev
        self.data, self.metrics, self.pace = data, metrics, pace
        self.signal: int | None = None
        self.interrupted = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Record a request to stop; at a second Ctrl-C, stop at once."""
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        again = "; press Ctrl-C again to exit at once" if number == signal.SIGINT else ""
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        warn(f"{name}: the run saves and ends after this step{again}")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Begin metrics.csv, and score the original model; with ``--keep-every``, also save it."""
        step, state.max_steps = state.global_step, self.module.steps
        self.timer.begin()
        if self.metrics is not None:
            self.metrics.progress.begin(step)
            folder = self.metrics.path.parent
            write_provenance(folder, step, seed=self.module.seed, data=self.data)
            self.metrics.begin(step)
            self.dev.begin(step)
        if step == 0 and self.checkpoints.keep is not None:
            self.save()
        if self.pace is not None:
            self.pace.begin(step)

    def _correct(
        self, pace: Pace, state: TrainerState, control: TrainerControl, device: torch.device
    ) -> None:
        """Change the number of steps if the time asks for it; the first process decides."""
        before, steps = self.module.steps, 0
        if self.metrics is not None:
            steps = pace.fitting(state.global_step, before, self.dev.seconds)
        steps = all_reduce_max(steps, device)
        if steps != before:
            why = pace.correct(steps)
            self.checkpoints.last = state.max_steps = steps = self.module.steps
            control.should_training_stop = False
            if self.metrics is not None:
                self.metrics.progress.replan(steps, why)

    def on_optimizer_step(self, *_: object, **__: object) -> None:
        """Update moving averages, queues and centres."""
        self.module.after_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Log and score; end the run if a signal asked for it, or if scores no longer rise."""
        step = state.global_step
        self.timer.step()
        if self.metrics is not None:
            self.metrics.progress.step(step)
            self.metrics.step(step - 1)
            self.metrics.progress.silence(step)
        if self.pace is not None:
            self._correct(self.pace, state, control, args.device)
        if self.metrics is not None:
            self.dev.step(step)
        # only the first process knows the score, and a signal may not reach all processes
        exhausted = all_reduce_max(int(self.dev.exhausted), args.device)
        number = all_reduce_max(self.signal or 0, args.device)
        if number:  # otherwise, keep a signal that has come since: the next step is the last
            self.signal = number
        if exhausted:  # this step is the last, so that a signal does not interrupt the run
            self.checkpoints.last = step
            control.should_training_stop = True
        elif number and not control.should_training_stop:
            control.should_save = control.should_training_stop = self.interrupted = True
        control.should_save |= self.checkpoints.due(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        state = {"data": self.data, "timer": self.timer.state_dict()}
        if self.metrics is not None:
            state |= {"metrics": self.metrics.state_dict(), "dev": self.dev.state_dict()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint; refuse to continue if the data have changed."""
        _check_unchanged("data", state["data"], self.data)
        self.timer.load_state_dict(state["timer"])
        if self.metrics is not None:
            self.metrics.load_state_dict(state["metrics"])
            self.dev.load_state_dict(state["dev"])

    def close(self) -> None:
        """Close the bar, and write the last row."""
        if self.metrics is not None:
            self.metrics.progress.close()
            self.metrics.close()

"""Callbacks between steps: logging, dev score, early stopping, checkpoints, requests to stop."""

import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from isotrope.core.checksum import add_checksum
from isotrope.core.distributed import all_reduce_max, is_peer_failure
from isotrope.core.documents import read_json
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.files import atomic_replace, open_own, os_errors_as_input_errors
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import provenance
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.metrics import columns
from isotrope.measures.judgement import DevEvaluation, DevHistory, Judgement, judge, unjudged
from isotrope.training.launch import handling
from isotrope.training.loggers import Loggers
from isotrope.training.nan_guard import GuardedModule, check_finite_weights
from isotrope.training.progress import Progress, warn

__all__ = [
    "COLUMNS",
    "SPARE",
    "Checkpoints",
    "DataFingerprintCheck",
    "Dev",
    "DirectCheckpointIO",
    "ImmediateInterrupt",
    "Metrics",
    "ProvenanceWriter",
    "Stop",
    "Timer",
    "worker_gone",
]


SPARE = ".previous.ckpt"
"""A checkpoint between its two names; a process that is killed there leaves it behind."""

COLUMNS = columns("text")


class Timer(L.Callback):
    """The seconds spent on data, forward and backward passes and updates, and on nothing else.

    The first callback of a run: its end-of-step hook runs before any other callback's, and its
    start-of-step hook after them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0
        self._since: float | None = None
        self._resting = 0.0

    def rest(self, seconds: float) -> None:
        """Leave time spent by another callback out of the account."""
        self._resting += seconds

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._since, self._resting = time.perf_counter(), 0.0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Add the step that has just ended, fetching its data included."""
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since - self._resting
        self.steps += 1
        self._since, self._resting = now, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds so far, which go into checkpoints."""
        return {"seconds": self.seconds, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the account of a checkpoint."""
        self.seconds, self.steps = state_dict["seconds"], state_dict["steps"]


class Metrics(L.Callback):
    """metrics.csv and loggers: one row a logged step, what was not measured left empty."""

    def __init__(
        self,
        folder: Path,
        *,
        batch_size: int,
        steps_per_epoch: int | None,
        timer: Timer,
        columns: Sequence[str] = COLUMNS,
        progress: Progress,
        loggers: Sequence[str] = ("tensorboard",),
    ) -> None:
        self.path, self.progress = RunFolder(folder).metrics, progress
        self.columns = tuple(columns)  # the last is the rows of data a second
        self.batch_size, self.steps_per_epoch, self.timer = batch_size, steps_per_epoch, timer
        self.loggers = Loggers(folder, loggers)
        self._pending: int | None = None
        self._row: dict[str, float | None] = {}  # of that step; what is in the file is not kept
        self._newest: dict[str, float | None] = {}  # with a measured batch

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the file; on resuming keep the rows before the present step: others come again."""
        self.loggers.start()
        step = trainer.global_step
        rows = self._read() if self.path.is_file() and step > 0 else {}
        if self._pending is not None and self._pending < step:
            rows.setdefault(self._pending, self._row)
            self._pending = None
        earlier = [(at, row) for at, row in sorted(rows.items()) if at < step]
        measured = [row for _, row in earlier if row.get("loss") is not None]
        self._newest = measured[-1] if measured else {}
        with (
            atomic_replace(self.path) as temporary,
            temporary.open("w", encoding="utf-8") as handle,
        ):
            handle.write(",".join(self.columns) + "\n")
            handle.writelines(self._line(at, row) for at, row in earlier)

    def _read(self) -> dict[int, dict[str, float | None]]:
        """Return the rows of the file, without a line that a power failure has cut short."""
        *lines, unfinished = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        names = lines.pop(0).split(",") if lines else []
        broken = int(unfinished != "")
        rows: dict[int, dict[str, float | None]] = {}
        for line in lines:
            try:
                row = dict(zip(names, line.split(","), strict=True))
                # a column that the run did not have then stays empty
                cells = {k: float(cell) if (cell := row.get(k)) else None for k in self.columns[1:]}
                rows[int(row["step"])] = cells
            except (KeyError, ValueError):
                broken += 1
        if broken:
            warn(f"warning: {broken} rows of {self.path} cannot be read and are left out")
        return rows

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Flush the file to the disk: the checkpoint has the rows that come, not those before."""
        if self.path.is_file():
            with os_errors_as_input_errors(self.path), self.path.open("rb") as handle:
                os.fsync(handle.fileno())

    def add(self, step: int, values: dict[str, float | None]) -> None:
        """Begin or complete the row of ``step``; it is written when the next one begins."""
        ensure_not_replaced(self.path.parent)
        if step != self._pending:
            self.flush()
            self._pending, self._row = step, {}
        self._row.update(values)
        if self._row.get("loss") is not None:
            self._newest = self._row
        self.loggers.log(values, step)

    def state_dict(self) -> dict[str, Any]:
        """Return the unwritten row, which goes into checkpoints."""
        return {
            "pending": None if self._pending is None else (self._pending, self._row),
            "loggers": self.loggers.run_ids,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the unwritten row of a checkpoint, and the runs of its loggers."""
        self.loggers.run_ids = state_dict.get("loggers", {})  # older checkpoints know of none
        if state_dict["pending"] is not None:
            self._pending, self._row = state_dict["pending"]

    def flush(self) -> None:
        """Write the row that is being filled."""
        if self._pending is None:
            return
        ensure_not_replaced(self.path.parent)
        with (
            os_errors_as_input_errors(self.path),
            open_own(self.path, "a", encoding="utf-8") as handle,
        ):
            handle.write(self._line(self._pending, self._row))
        self._pending = None

    def last(self) -> dict[str, float | None]:
        """Return the newest row with a measured batch; what it lacks did not exist then."""
        return self._newest

    def _line(self, step: int, values: dict[str, float | None]) -> str:
        row = {"step": step, **values}
        cells = ("" if row.get(k) is None else f"{row[k]:.10g}" for k in self.columns)
        return ",".join(cells) + "\n"

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Add a row if the step was measured."""
        module = cast("GuardedModule", pl_module)
        if not module.measured:
            return
        step = trainer.global_step - 1  # the step that has just ended, counted from 0
        norm = module.gradient_norm
        self.add(
            step,
            {
                **module.measured,
                "epoch": None if self.steps_per_epoch is None else step / self.steps_per_epoch,
                "learning_rate": module.learning_rate_at(step),
                "gradient_norm": None if norm is None else float(norm),
                self.columns[-1]: self.timer.steps
                * self.batch_size
                / max(self.timer.seconds, 1e-9),
            },
        )
        if (loss := module.measured.get("loss")) is not None:
            self.progress.logged(step, loss)
        module.measured = {}

    def close(self) -> None:
        """Write buffered rows."""
        try:
            self.flush()
        finally:
            self.loggers.close()


class Dev(L.Callback):
    """The dev score at step 0, every k steps and at the end; the best step's model may be kept.

    What else is measured of held-out data then goes into the same rows of metrics.csv.

    Args:
        score: evaluates the encoder as it is; None if there is nothing to score.
        name: the score's name in messages.
        column: the score's column in metrics.csv; its values in result.json begin with it.
        every: steps between scores; 0 for scores at the start and the end only.
        last: the last step of the run.
        keeps_best: whether the step with the best score is saved instead of the last one.
        otherwise: the verdict if there is no score.
        patience: evaluations without a rise after which the run ends; None for no end but the last
            step.
        curves: measures what is held out, by column; None where nothing is.
        data: the fingerprint of what is scored, with which alone a run goes on; None where the
            training data have it, or there is nothing to score.
    """

    metrics: Metrics
    timer: Timer
    progress: Progress
    keep: Callable[[int], str]

    def __init__(
        self,
        score: Callable[[], DevEvaluation] | None,
        *,
        name: str,
        column: str,
        every: int,
        last: int,
        keeps_best: bool,
        otherwise: str,
        patience: int | None = None,
        curves: Callable[[], Mapping[str, float]] | None = None,
        data: str | None = None,
    ) -> None:
        self.curves, self.data = curves, data
        self.score, self.name, self.column = score, name, column
        self.every, self.last, self.patience = every, last, patience
        self.keeps_best, self.otherwise = keeps_best, otherwise
        self.history = DevHistory(name, "best" if keeps_best else "last")
        self.weights: dict[int, str] = {}  # fingerprints of what was kept, by step

    def attach(
        self, metrics: Metrics, timer: Timer, progress: Progress, keep: Callable[[int], str]
    ) -> None:
        """Write scores into the log of a run, and save its best step by ``keep``."""
        self.metrics, self.timer, self.progress, self.keep = metrics, timer, progress, keep

    @property
    def scores(self) -> dict[int, float]:
        """All scores, by step."""
        return self.history.scores

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and score of the best evaluation, the earliest at ties."""
        if not self.scores:
            return None
        step = self.history.best
        return step, self.scores[step]

    @property
    def exhausted(self) -> bool:
        """Whether the score has not risen for as many evaluations as ``patience`` says."""
        if self.patience is None or not self.scores:
            return False
        return sum(step > self.history.best for step in self.scores) >= self.patience

    def judgement(self) -> Judgement:
        """Return whether training helped."""
        if not self.scores:
            return Judgement("not known", self.otherwise)
        if not self.history.complete:
            step = self.history.best if self.keeps_best else max(self.scores)
            return unjudged(self.name, self.scores.get(0), self.scores[step], step)
        return judge(self.history)

    def evaluate(self, step: int) -> None:
        """Score the encoder as it is after ``step`` updates; keep it if it is the best so far."""
        start = time.perf_counter()
        if self.curves is not None:
            self.metrics.add(step, {**self.curves()})
        if self.score is None:
            self.timer.rest(time.perf_counter() - start)
            return
        evaluation = self.score()
        value = evaluation.value
        self.history.add(step, evaluation)
        self.metrics.add(step, {self.column: value})
        if self.keeps_best and self.history.best == step:
            self.weights[step] = self.keep(step)
        if self.history.complete:
            self.history.save(RunFolder(self.metrics.path.parent).dev)
        first = self.scores[min(self.scores)]
        change = "start" if step == 0 else f"{value - first:+.2f} from the start"
        at = self.history.best
        best = f"best {self.scores[at]:.2f} at step {at:,}"
        self.progress.scored(step, f"{self.name} {value:.2f}", change, best)
        if self.exhausted and step != self.last:
            self.progress.say(f"early stopping at step {step:,}: {best}, not risen since")
        self.timer.rest(time.perf_counter() - start)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Score the model as it came."""
        if trainer.global_step == 0 and 0 not in self.scores:
            self.evaluate(0)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Score every k steps and after the last."""
        step = trainer.global_step
        if step == self.last or (self.every and step % self.every == 0):
            check_finite_weights(pl_module, step)
            self.evaluate(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the scores so far, which go into checkpoints."""
        evaluations = self.history.evaluations
        gold = next((evaluation.gold for evaluation in evaluations.values()), None)
        return {
            "scores": self.scores,
            # as tensors: arrays are not among what a checkpoint may hold
            "items": {step: torch.from_numpy(e.items) for step, e in evaluations.items()},
            "gold": None if gold is None else torch.from_numpy(gold),
            "weights": self.weights,
            "data": self.data,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the scores of a checkpoint.

        Raises:
            CannotResume: the score is of other data now, and no change of it would mean anything.
        """
        before = state_dict.get("data", self.data)  # an older checkpoint does not have it
        if before != self.data:
            raise CannotResume(
                f"cannot resume: what the {self.name} is measured on has changed since the "
                f"checkpoint (fingerprint {before} then, {self.data} now); restore it, or start "
                "again in another output folder"
            )
        self.history.scores = {int(k): float(v) for k, v in state_dict["scores"].items()}
        self.weights = dict(state_dict.get("weights", {}))
        gold = state_dict.get("gold")
        # an older checkpoint has the scores alone
        self.history.evaluations = {
            int(step): DevEvaluation(
                self.scores[int(step)], items.numpy(), None if gold is None else gold.numpy()
            )
            for step, items in state_dict.get("items", {}).items()
        }


def worker_gone(error: BaseException) -> bool:
    """Return whether an error says that a process of the data loader has gone.

    It may come at any moment of a step, whose end is then not to be saved.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    # between handing a batch over and its being read, which this method of torch's loader does
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, (ConnectionError, EOFError)) and any(
        frame.name == "_try_get_data" for frame in frames
    )


class DirectCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to its file; Lightning holds it in memory and goes through /tmp."""

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | Path,
        storage_options: object = None,
    ) -> None:
        """Write it."""
        try:
            with Path(path).open("wb") as handle:
                torch.save(checkpoint, handle)
        except RuntimeError as error:
            # after a write that fails torch ends its archive nevertheless, and fails again
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


class Checkpoints(L.Callback):
    """checkpoints/last.ckpt, written whole and sealed, the one before kept as previous.ckpt.

    Args:
        folder: where all checkpoints lie.
        every: steps between checkpoints; none follows the last step, after which nothing resumes.
        keep: steps between those that stay for looking at (step-0.ckpt, ..., that of the last
            step); None: none does.
        last: step of the run.
        timer: which does not count the time of writing.
    """

    def __init__(
        self, folder: Path, *, every: int, last: int, timer: Timer, keep: int | None = None
    ) -> None:
        self.folder, self.every, self.last, self.timer = folder, every, last, timer
        self.keep = keep

    def save(self, trainer: L.Trainer) -> None:
        """Write a checkpoint of the present step."""
        self._write(trainer, self.folder / "last.ckpt")

    def _write(self, trainer: L.Trainer, newest: Path) -> None:
        start = time.perf_counter()
        check_finite_weights(trainer.lightning_module, trainer.global_step)
        if not trainer.is_global_zero:
            trainer.save_checkpoint(newest)  # meets the first process, which writes
            return
        ensure_not_replaced(self.folder.parent)
        with atomic_replace(newest) as temporary:
            try:
                trainer.save_checkpoint(temporary)
            except RuntimeError as error:
                # after a whole file: the others, who meet us behind it, are gone
                if not is_peer_failure(error):
                    raise
            add_checksum(temporary)
            if newest.is_file() and newest.name == "last.ckpt":
                self._keep(newest)
        self.timer.rest(time.perf_counter() - start)

    def _keep(self, newest: Path) -> None:
        """Give the present checkpoint a second name; it keeps its first until it is replaced."""
        spare = self.folder / SPARE
        spare.unlink(missing_ok=True)
        try:
            spare.hardlink_to(newest)
        except OSError:  # a file system without hard links
            shutil.copy2(newest, spare)
        spare.replace(self.folder / "previous.ckpt")

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Save the last whole step when another process is lost: the next one cannot end."""
        if is_peer_failure(exception) and trainer.is_global_zero and trainer.global_step > 0:
            self.save(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Save every k steps, but not after the last, and what shall stay."""
        step = trainer.global_step
        # first the kept one: a run that resumes from here does not make it again
        if self.keep and (step % self.keep == 0 or step == self.last):
            self._write(trainer, self.folder / f"step-{step}.ckpt")
        if step % self.every == 0 and step != self.last:
            self.save(trainer)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the model as it came, if any shall stay."""
        if self.keep and trainer.global_step == 0:
            self._write(trainer, self.folder / "step-0.ckpt")


class DataFingerprintCheck(L.Callback):
    """Ensures that a run is resumed with the data it was begun with."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def state_dict(self) -> dict[str, Any]:
        """Return the fingerprint of the data, which goes into checkpoints."""
        return {"data": self.fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compare with that of a checkpoint.

        Raises:
            CannotResume: the data are others now.
        """
        if state_dict["data"] != self.fingerprint:
            raise CannotResume(
                f"cannot resume: the data have changed since the checkpoint (fingerprint "
                f"{state_dict['data']} then, {self.fingerprint} now); restore them, or start again "
                "in another output folder"
            )


class ProvenanceWriter(L.Callback):
    """provenance.json: what each part of a run was made with; one that went on has several.

    Args:
        folder: the run folder.
        seed: the run's seed.
        data: their fingerprint.
    """

    def __init__(self, folder: Path, *, seed: int, data: str) -> None:
        self.path = RunFolder(folder).provenance
        self.seed, self.data = seed, data

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the provenance before the first step."""
        parts: list[dict[str, Any]] = []
        if trainer.global_step > 0 and self.path.is_file():
            with suppress(InputError):  # damaged: its contents are lost, the run is not
                recorded = read_json(self.path)
                parts = recorded if isinstance(recorded, list) else []
        now = {"step": trainer.global_step, **provenance(seed=self.seed, data=self.data)}
        before = parts[-1].get("versions") if parts and isinstance(parts[-1], dict) else None
        if before not in (None, now["versions"]):
            warn(
                f"warning: other versions than before ({self.path} has both): from here on the "
                "numbers may differ in their last digits"
            )
        with atomic_replace(self.path) as temporary:
            temporary.write_text(json.dumps([*parts, now], indent=2) + "\n", encoding="utf-8")


class ImmediateInterrupt(BaseException):
    """A second Ctrl-C; Lightning would turn a KeyboardInterrupt into exit code 1."""


_ENOUGH = 1_000
"""Stands among numbers of signals for a dev score that has not risen; larger than any of them."""


class Stop(L.Callback):
    """Ctrl-C and SIGTERM end the run after the present step, with a checkpoint.

    A second Ctrl-C ends it at once, without one. Where the dev score has not risen for long enough,
    the present step becomes the last one. Comes before ``checkpoints`` among the callbacks.
    """

    def __init__(self, checkpoints: Checkpoints, dev: Dev) -> None:
        self.checkpoints, self.dev = checkpoints, dev
        self.signal: int | None = None
        self._handlers = ExitStack()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise ImmediateInterrupt
        self.signal = number
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        warn(f"{name}: ending this step, then saving (Ctrl-C again: at once, unsaved)")

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Put our handlers in place of Python's (signals reach the main thread only)."""
        # Lightning's own would end the run without a word or an exit code, and under Slurm requeue
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        self._handlers.enter_context(handling(self._on_signal))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """End the run if we, or any process of it, were asked to, or if it no longer helps."""
        # the first process alone knows the score
        reason = all_reduce_max(_ENOUGH if self.dev.exhausted else self.signal or 0)
        if reason == _ENOUGH:
            self.signal, self.checkpoints.last = None, trainer.global_step
            trainer.should_stop = True
            return
        self.signal = reason or None
        if self.signal is not None and not trainer.should_stop:
            self.checkpoints.save(trainer)
            trainer.should_stop = True

    def restore(self) -> None:
        """Restore the signal handlers."""
        self._handlers.close()

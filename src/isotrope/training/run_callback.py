"""Logs, scores and saves between the steps of a run, and stops the run early if needed."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isotrope.core.distributed import all_reduce_max
from isotrope.training.checkpoints import Checkpoints, check_unchanged
from isotrope.training.dev_scorer import DevScorer
from isotrope.training.nan_guard import Trained
from isotrope.training.progress import warn
from isotrope.training.run import write_provenance
from isotrope.training.run_log import RunLog, Timer
from isotrope.training.time_limit import Pace


@dataclass(kw_only=True, eq=False)
class RunCallback(TrainerCallback):
    """Logs, scores and saves between the steps; logged speeds exclude the time that this takes.

    After Ctrl-C or SIGTERM, the run finishes the current step, writes a checkpoint and ends. After
    a second Ctrl-C, the run ends at once, without a checkpoint. Early stopping also ends the run.

    Attributes:
        checkpoints: Object that decides after which steps a checkpoint is written.
        save: Function that writes a checkpoint at once.
        fingerprint: Fingerprint of the training data, which must not change when a run is resumed.
        log: The log of the run; None in all processes but the first, which print nothing.
        pace: Object that corrects the number of steps of a run with ``--minutes``, or None.
        stop_signal: Signal that asked the run to stop, or None.
        interrupted: Whether the signal ended the run before its last step, after a checkpoint.
    """

    module: Trained
    timer: Timer
    checkpoints: Checkpoints
    save: Callable[[], None]
    dev: DevScorer
    fingerprint: str
    log: RunLog | None
    pace: Pace | None = None
    stop_signal: int | None = field(default=None, init=False)
    interrupted: bool = field(default=False, init=False)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Record a request to stop; at a second Ctrl-C, stop at once."""
        if self.stop_signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop_signal = number
        name, again = "SIGTERM", ""
        if number == signal.SIGINT:
            name, again = "Ctrl-C", "; press Ctrl-C again to exit at once"
        warn(f"{name}: the run saves and ends after this step{again}")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Begin metrics.csv, and score the original model; with ``--keep-every``, also save it."""
        step, state.max_steps = state.global_step, self.module.steps
        self.timer.begin()
        if self.log is not None:
            folder = self.log.path.parent
            write_provenance(folder, step, seed=self.module.seed, data=self.fingerprint)
            self.log.begin(step)
            self.dev.begin(step)
            self.log.progress.begin(step)  # its clock leaves out the first score
            self.log.progress.until = self.pace.until if self.pace is not None else None
        if step == 0 and self.checkpoints.keep is not None:
            self.save()
        if self.pace is not None:
            self.pace.begin()

    def on_optimizer_step(self, *_: object, **__: object) -> None:
        """Update moving averages, queues and centres."""
        self.module.after_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Log and score; end the run if a signal asked for it, or if scores no longer rise."""
        step = state.global_step
        self.timer.end_step()
        if self.log is not None:
            self.log.progress.step(step)
            self.log.add_measured(step - 1)
            self.log.progress.silence(step)
        if self.pace is not None:
            self._correct_steps(self.pace, state, control, args.device)
        if self.log is not None:
            self.dev.after_step(step)
        if self.pace is not None:
            self.pace.begin()  # its clock leaves out the score
        self._end_early(step, control, args.device)
        control.should_save |= self.checkpoints.due(step)

    def _correct_steps(
        self, pace: Pace, state: TrainerState, control: TrainerControl, device: torch.device
    ) -> None:
        """Change the number of steps if the time asks for it; the first process decides."""
        planned, fitting = self.module.steps, 0
        if self.log is not None:
            fitting = pace.fitting(state.global_step, planned, self.dev.seconds, self.dev.every)
        fitting = all_reduce_max(fitting, device)
        if fitting == planned:
            return
        reason = pace.correct(fitting)
        self.checkpoints.last = state.max_steps = self.module.steps
        control.should_training_stop = False  # the trainer sets it at the last planned step
        if self.log is not None:
            self.log.progress.replan(self.module.steps, reason)

    def _end_early(self, step: int, control: TrainerControl, device: torch.device) -> None:
        """End the run at early stopping or a signal; all processes decide alike."""
        # only the first process knows the score, and a signal may not reach all processes
        is_exhausted = all_reduce_max(int(self.dev.is_exhausted), device)
        number = all_reduce_max(self.stop_signal or 0, device)
        if number:  # otherwise, keep a signal that has come since: the next step is the last
            self.stop_signal = number
        if is_exhausted:  # this step is the last, so that a signal does not interrupt the run
            self.checkpoints.last = step
            control.should_training_stop = True
        elif number and not control.should_training_stop:
            control.should_save = control.should_training_stop = self.interrupted = True

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        state: dict[str, Any] = {"data": self.fingerprint, "timer": self.timer.state_dict()}
        if self.log is not None:
            state |= {"metrics": self.log.state_dict(), "dev": self.dev.state_dict()}
        if self.pace is not None:
            state["pace"] = self.pace.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint; refuse to continue if the data have changed."""
        check_unchanged("data", state["data"], self.fingerprint)
        self.timer.load_state_dict(state["timer"])
        if self.log is not None:
            self.log.load_state_dict(state["metrics"])
            self.dev.load_state_dict(state["dev"])
        if self.pace is not None:
            self.pace.load_state_dict(state.get("pace", 0.0))

    def close(self) -> None:
        """Close the bar, and write the last row."""
        if self.log is not None:
            self.log.progress.close()
            self.log.close()

"""Logs, scores and saves between the steps of a run, and stops the run early if needed."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isotrope.core.distributed import all_reduce_max
from isotrope.training.checkpoints import Checkpoints, check_unchanged
from isotrope.training.dev_scorer import Dev
from isotrope.training.nan_guard import Trained
from isotrope.training.progress import warn
from isotrope.training.run import write_provenance
from isotrope.training.run_log import Metrics, Timer
from isotrope.training.time_limit import Pace


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
        check_unchanged("data", state["data"], self.data)
        self.timer.load_state_dict(state["timer"])
        if self.metrics is not None:
            self.metrics.load_state_dict(state["metrics"])
            self.dev.load_state_dict(state["dev"])

    def close(self) -> None:
        """Close the bar, and write the last row."""
        if self.metrics is not None:
            self.metrics.progress.close()
            self.metrics.close()

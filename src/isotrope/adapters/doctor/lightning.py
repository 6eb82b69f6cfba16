"""Handles the events of Lightning's trainer for the doctor.

Lightning passes each loss to its callbacks before the backward pass, even with manual optimisation,
so nothing has to be wrapped.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isotrope.adapters.doctor.hugging_face import highest_rate, scale_of
from isotrope.adapters.doctor.messages import words_of
from isotrope.core.distributed import local_norm
from isotrope.core.run_folder import RECORDING
from isotrope.paradigm.graph_reading import GraphReading

if TYPE_CHECKING:
    from isotrope.adapters.doctor.doctor import Doctor


class LightningEvents:
    """Handlers of the Lightning events that the Doctor needs. Only the first process prints.

    Attributes:
        doctor: The Doctor, which gets the measured rows.
        step: Number of the step that runs now; None outside of a training.
    """

    def __init__(self, doctor: "Doctor") -> None:
        self.doctor = doctor
        self.step: int | None = None
        self._is_fitting = False
        self._name = "the loss"  # in a training, the class of the trained module
        self._due = False  # whether the Doctor measures this batch
        self._losses = 0  # number of losses of this batch whose backward pass has ended
        # of the loss whose backward pass runs now; the hooks of a reading end with the reading
        self._reading: GraphReading | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare for a training. Delete the measured rows, unless a training is resumed."""
        doctor = self.doctor
        self._is_fitting, self._name = True, type(pl_module).__name__
        doctor.anatomy.settings |= {"trainer": "lightning", "planned": max(trainer.max_steps, 0)}
        doctor.anatomy.words = words_of(pl_module.modules())
        doctor.know(pl_module.named_parameters())
        if trainer.ckpt_path is None and trainer.global_step == 0:
            doctor.forget()
        logs = trainer.log_dir if trainer.loggers else None  # all processes have to read log_dir
        folder = None if logs is None else Path(logs) / RECORDING
        doctor.begin(folder, is_first=trainer.is_global_zero)

    def on_train_batch_start(self, trainer: Any, *_: object) -> None:
        """Record the number of the step before the optimiser increases it."""
        self.step, self._reading, self._losses = trainer.global_step, None, 0
        self._due = self.doctor.anatomy.due(self.step)
        size = getattr(trainer.train_dataloader, "batch_size", None)  # not known before the first
        self.doctor.anatomy.settings["batch-size"] = size if isinstance(size, int) else None

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Watch the backward pass of a loss at the steps that the Doctor measures."""
        due = self._due and not self.doctor.observes
        if due and loss.grad_fn is not None and loss.numel() == 1:
            self._reading = GraphReading(loss)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Measure the pairs that the loss compared."""
        reading, self._reading = self._reading, None
        self._losses += 1
        if reading is None:
            return
        reading.end()  # this finds out whether the loss is ``paired``
        # With manual optimisation, a batch may have several losses. Without pairs, the first leads
        # to the verdict `not-examined`, but a later one, such as a penalty, is ignored.
        if self._losses == 1 or reading.paired:
            self._record(trainer, reading)

    def _record(self, trainer: Any, reading: GraphReading) -> None:
        """Measure the pairs of a loss, and give the row to the doctor."""
        later = self._losses > 1
        name = f"loss {self._losses} of {self._name}" if later else self._name
        series = f"of loss {self._losses} in each batch"
        anatomy = self.doctor.anatomy.of(series)
        # the trainer may divide the loss by these numbers; half precision multiplies it by a scale
        divisors = trainer.accumulate_grad_batches, 1 / scale_of(trainer.precision_plugin)
        row = anatomy.see([reading], self.step or 0, divisors=divisors)
        if row is not None:
            anatomy.note(self.step, epoch=float(trainer.current_epoch))
            self.doctor.record(name, row, series)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Record learning rate and gradient norm; send all newest numbers to the loggers."""
        row = self.doctor.rows[-1] if self.doctor.rows else None
        if row is None or row["step"] != self.step or row["learning_rate"] is not None:
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        sharded = any(hasattr(x, "to_local") for x in gradients)  # this process has only a part
        total = None if sharded else math.hypot(*map(local_norm, gradients))
        self.doctor.anatomy.note(gradient_norm=total, learning_rate=highest_rate(optimizer))
        for logger in trainer.loggers:
            logger.log_metrics(self.doctor.numbers(), step=self.step)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the validation score."""
        name = self.doctor.dev
        value = None if name is None else trainer.callback_metrics.get(name)
        if value is not None and not trainer.sanity_checking:
            self.doctor.anatomy.note(trainer.global_step, dev=float(value))

    def on_fit_end(self, *_: object) -> None:
        """Report the verdict and save the rows."""
        self.doctor.anatomy.settings.pop("planned", None)
        self.on_exception()

    def on_exception(self, *_: object) -> None:
        """Report the verdict and save the rows, also if an exception ended the training."""
        if self._is_fitting:  # on_exception is also called for errors of validate, test and predict
            self._is_fitting = False
            self.close()
            self.doctor.finish()

    def close(self) -> None:
        """Discard a batch that was interrupted."""
        self._reading = self.step = None

"""Handles the events of Lightning's trainer for the doctor.

``training_step`` returns the embeddings beside the loss; nothing else of a module changes::

    return {"loss": loss, "anchors": anchors, "positives": positives}
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isotrope.adapters.doctor.wrapping import calling_after
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RECORDING

if TYPE_CHECKING:
    from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["LightningEvents"]


class LightningEvents:
    """Handlers of those Lightning events that the doctor needs.

    ``negatives`` and ``groups`` of what ``training_step`` returns are looked at too. The first
    process writes and speaks. Under manual optimisation the graph is gone when the step returns:
    components need an ``objective`` there, and there are no norms of gradients.
    """

    def __init__(self, doctor: "Doctor") -> None:
        self.doctor = doctor
        self._module: Any = None
        self._step = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Wrap ``training_step``, to measure between it and the backward pass.

        The rows of an earlier training are deleted, unless this one continues it.
        """
        doctor, self._module = self.doctor, pl_module
        doctor.anatomy.settings |= {"trainer": "lightning"}
        if trainer.ckpt_path is None and trainer.global_step == 0:
            doctor.forget()
        if not trainer.is_global_zero:
            doctor.say = doctor.path = None
        else:
            logged = trainer.log_dir is not None and trainer.loggers
            doctor.keep_in(Path(trainer.log_dir) / RECORDING if logged else None)
        observe = doctor.quietly(functools.partial(self._observe, trainer, pl_module))
        pl_module.training_step = calling_after(pl_module.training_step, observe)

    def on_train_batch_start(self, trainer: Any, *_: object) -> None:
        """Note the step: under manual optimisation ``training_step`` itself counts it up."""
        self._step = trainer.global_step

    def _observe(self, trainer: Any, pl_module: Any, output: object) -> None:
        """Measure a batch, if its step is due; without its graph if the backward pass is over."""
        if output is None or not self.doctor.anatomy.due(self._step):  # None skips a batch
            return
        wanted = {"loss", "anchors", "positives"}
        if not isinstance(output, Mapping) or not wanted <= output.keys():
            returned = list(output) if isinstance(output, Mapping) else type(output).__name__
            raise InputError(
                "training_step must return a dictionary with loss, anchors and positives; found "
                f"{returned}: add the embeddings that the loss was computed from"
            )
        graph = pl_module.automatic_optimization
        anchors, positives, loss = (output[name] for name in ("anchors", "positives", "loss"))
        self.doctor.observe(
            anchors if graph else anchors.detach(),
            positives,
            loss if graph else loss.detach(),
            negatives=output.get("negatives"),
            groups=output.get("groups"),
            step=self._step,
        )
        if not graph:
            self._log(trainer, trainer.optimizers[0].param_groups[0]["lr"])

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Record the learning rate and the norm of the gradient, and log them."""
        row = self.doctor.rows[-1] if self.doctor.rows else None
        if row is None or row["step"] != trainer.global_step or row["learning_rate"] is not None:
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        self.doctor.anatomy.note(gradient_norm=norm)
        self._log(trainer, optimizer.param_groups[0]["lr"])

    def _log(self, trainer: Any, learning_rate: float) -> None:
        """Record the learning rate in the newest row, and log its numbers."""
        self.doctor.anatomy.note(learning_rate=learning_rate)
        step = int(self.doctor.rows[-1]["step"] or 0)
        for logger in trainer.loggers:
            logger.log_metrics(self.doctor.numbers(), step=step)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the validation score."""
        name = self.doctor.dev
        value = None if name is None else trainer.callback_metrics.get(name)
        if value is not None and not trainer.sanity_checking:
            self.doctor.anatomy.note(trainer.global_step, dev=float(value))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Save the rows: they may show why the training failed."""
        self.on_fit_end(trainer, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the verdict, and restore ``training_step``."""
        self.close()
        self.doctor.finish()

    def close(self) -> None:
        """Restore ``training_step``."""
        if self._module is not None:
            self._module.__dict__.pop("training_step", None)
        self._module = None

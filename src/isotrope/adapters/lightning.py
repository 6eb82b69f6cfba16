"""Lightning: the anatomy of a training of someone else's LightningModule.

Its ``training_step`` returns the embeddings beside the loss; nothing else of it changes::

    return {"loss": loss, "anchors": anchors, "positives": positives}

    watch = AnatomyCallback("runs/theirs")
    lightning.Trainer(callbacks=[watch]).fit(module, loader)
    print(watch.anatomy.diagnose())
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isotrope.core.errors import InputError, MissingExtra
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.paradigm.objective import Objective

try:
    import lightning as L
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "lightning", extra="train") from error

__all__ = ["AnatomyCallback"]


class AnatomyCallback(L.Callback):
    """Looks at what ``training_step`` returns: ``loss``, ``anchors``, ``positives``.

    ``negatives`` and ``groups`` are looked at too if they are there. The numbers go to the
    trainer's loggers as ``anatomy/norm`` and so on, and into checkpoints, so that a resumed
    training goes on with its rows. The first process writes. Under manual optimisation the graph
    is gone when the step returns: components need an ``objective`` there, and there are no norms
    of gradients.

    Args:
        path: file or folder to write metrics.csv to when training ends, well or not; None leaves
            that to ``Anatomy.save``.
        objective: what the loss is, if it is one of ours.
        every: steps from one look to the next.
        against: as for :class:`~isotrope.diagnostics.anatomy.Anatomy`.
        reduction: likewise.
        temperature: likewise.
        dev: name of a logged metric of validation, larger is better, noted as ``dev``.

    Attributes:
        anatomy: what was seen.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        objective: Objective | None = None,
        every: int = 10,
        against: Literal["cross", "both"] | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        temperature: float | None = None,
        dev: str | None = None,
    ) -> None:
        self.path, self.dev = path, dev
        self.anatomy = Anatomy(
            objective, every=every, against=against, reduction=reduction, temperature=temperature
        )

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put ourselves between ``training_step`` and the backward pass."""
        step = pl_module.training_step

        @functools.wraps(step)
        def watched(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - anyone's signature
            at = trainer.global_step  # manual optimisation counts within the step
            output = step(*given, **named)
            if output is not None and self.anatomy.due(at):  # None skips a batch
                self._observe(output, at, graph=pl_module.automatic_optimization)
                if not pl_module.automatic_optimization:
                    self._tell(trainer, learning_rate=trainer.optimizers[0].param_groups[0]["lr"])
            return output

        pl_module.training_step = watched  # type: ignore[method-assign]

    def _observe(self, output: object, step: int, *, graph: bool) -> None:
        """Look at a batch; without its graph where the backward pass has been.

        Raises:
            InputError: a ``training_step`` that returns something else.
        """
        wanted = {"loss", "anchors", "positives"}
        if not isinstance(output, Mapping) or not wanted <= output.keys():
            found = list(output) if isinstance(output, Mapping) else type(output).__name__
            raise InputError(
                "training_step must return a dictionary with loss, anchors and positives; found "
                f"{found}: add the embeddings that the loss was computed from"
            )
        anchors, positives, loss = (output[name] for name in ("anchors", "positives", "loss"))
        self.anatomy.observe(
            anchors if graph else anchors.detach(),
            positives,
            loss if graph else loss.detach(),
            negatives=output.get("negatives"),
            groups=output.get("groups"),
            step=step,
        )

    def on_before_optimizer_step(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Note learning rate and norm of the gradient, and tell the loggers."""
        row = self.anatomy.rows[-1] if self.anatomy.rows else None
        if row is None or row["step"] != trainer.global_step or row["learning_rate"] is not None:
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        rate = optimizer.param_groups[0]["lr"]
        self.anatomy.note(gradient_norm=_norm(gradients))
        self._tell(trainer, learning_rate=rate)

    def _tell(self, trainer: L.Trainer, learning_rate: float) -> None:
        """Note the learning rate in the newest row, and tell the loggers all of it."""
        self.anatomy.note(learning_rate=learning_rate)
        row = self.anatomy.rows[-1]
        told = {f"anatomy/{k}": v for k, v in row.items() if v is not None and k != "step"}
        for logger in trainer.loggers:
            logger.log_metrics(told, step=int(row["step"] or 0))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the score of validation."""
        value = trainer.callback_metrics.get(self.dev) if self.dev is not None else None
        if value is not None and not trainer.sanity_checking:
            self.anatomy.note(trainer.global_step, dev=float(value))

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Write what there is: what broke a training off may be seen in it."""
        self.on_fit_end(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the rows, and give ``training_step`` back."""
        pl_module.__dict__.pop("training_step", None)
        if self.path is not None and trainer.is_global_zero:
            self.anatomy.save(self.path)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, which go into checkpoints."""
        return {"rows": self.anatomy.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the rows of a checkpoint."""
        self.anatomy.rows = list(state_dict["rows"])


def _norm(gradients: list[Tensor]) -> float:
    return float(torch.nn.utils.get_total_norm(gradients))

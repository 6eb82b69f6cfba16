"""The trainers of a run: sentence-transformers' trainer for text, transformers' for images.

Subclasses extend both trainers. Batches and random numbers depend only on seed and step, so they
are the same in a resumed run. If a number is not finite, the run ends before the weights change.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback

from isotrope.core.distributed import all_reduce_max, barrier, rank
from isotrope.core.errors import CannotResume, InputError, first_line
from isotrope.core.files import os_errors_as_input_errors, remove
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.run_folder import STATES, WEIGHTS
from isotrope.training.checkpoints import finish
from isotrope.training.nan_guard import NonFiniteGuard, Trained, check_finite_weights
from isotrope.training.optimisers import step_seed
from isotrope.training.run_callback import RunCallback
from isotrope.training.text_module import TextModule

if not hasattr(Trainer, "_get_grad_norm"):  # an older trainer would never call ours
    raise InputError(
        "run pip install 'transformers>=5.3': in older versions, gradients cannot be checked"
    )


class RunTrainer(Trainer):
    """A trainer for the steps of a run; call :meth:`attach` before ``train``."""

    run_callback: RunCallback
    module: Trained
    guard: NonFiniteGuard
    batches: DataLoader[Any]

    def attach(
        self,
        run_callback: RunCallback,
        guard: NonFiniteGuard,
        batches: DataLoader[Any],
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        """Store the batches, the callbacks, and the guard that checks numbers in each step."""
        self.run_callback, self.module = run_callback, run_callback.module
        self.guard, self.batches = guard, batches
        self.remove_callback(PrinterCallback)
        for callback in (run_callback, *callbacks):
            self.add_callback(callback)
        # else each checkpoint would save the tokenizer, which the model folder already has
        self.processing_class = None

    # a step

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the remaining batches; an empty loader after early stopping."""
        ended = all_reduce_max(int(self.run_callback.dev.is_exhausted), self.args.device)
        empty: Any = []
        return DataLoader(empty) if ended else self.batches

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: object = None
    ) -> Tensor:
        """Compute the loss and gradient of a step, without changing the mode of the modules."""
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
        assert isinstance(loss, Tensor)
        self.guard.check_forward(self.state.global_step, loss)
        self.accelerator.backward(loss)
        self.module.after_backward()
        return loss.detach()

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> float:
        """Check the gradient before the update; return its norm, which the trainer may clip."""
        norm = float(Trainer._get_grad_norm(self, model, grad_norm=grad_norm))
        self.module.gradient_norm = norm
        scaler, step = self.accelerator.scaler, self.state.global_step
        scale = None if scaler is None else float(scaler.get_scale())
        self.guard.check_gradient(step, norm, scale, str(self.args.device))
        assert self.optimizer is not None
        self.module.before_update(step, self.optimizer)
        return norm

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Return the optimiser of the run's plan."""
        self.optimizer = self.module.optimizer()
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> LambdaLR:
        """Return the schedule of the run's plan."""
        peak, updated = self.module.learning_rate, optimizer or self.optimizer
        assert updated is not None
        schedule = LambdaLR(updated, lambda step: self.module.learning_rate_at(step) / peak)
        self.lr_scheduler, self._created_lr_scheduler = schedule, True
        return schedule

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Do nothing, because :meth:`log_row` passes the numbers of a step to the loggers."""

    def log_row(self, values: dict[str, float], step: int) -> None:
        """Pass the numbers of a step to the loggers."""
        state = copy.copy(self.state)
        state.global_step = step
        self.callback_handler.on_log(self.args, state, self.control, values)

    # checkpoints

    def save_now(self) -> None:
        """Write a checkpoint of the present step."""
        assert self.model is not None
        self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        step, began = self.state.global_step, time.perf_counter()
        check_finite_weights(self.module, step)
        folder = self.run_callback.checkpoints.folder / f"checkpoint-{step}"
        first = rank() == 0
        if first:
            ensure_not_replaced(folder.parent.parent)
            remove(folder)  # left by an earlier, interrupted part of this run
        barrier(self.args.device)
        try:
            with os_errors_as_input_errors(folder):
                self._write(model, folder, trial)
        except BaseException:
            if first:
                remove(folder)
            raise
        barrier(self.args.device)
        if first:
            finish(folder)
            self.run_callback.checkpoints.rotate()
        self.run_callback.timer.rest(time.perf_counter() - began)

    def _write(self, model: nn.Module, folder: Path, trial: Any) -> None:
        """Write the files of a checkpoint."""
        try:
            super()._save_checkpoint(model, trial)
            if rank() == 0:
                with (folder / STATES).open("wb") as handle:
                    torch.save(self.run_callback.state_dict(), handle)
        except RuntimeError as error:
            # torch closes its archive after a failed write, and raises a second error
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            if "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
                raise
            raise InputError(f"free some space on the disk: cannot write {folder}") from error

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        assert output_dir is not None
        assert self.model is not None
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / WEIGHTS).open("wb") as handle:
            torch.save(self.model.state_dict() if state_dict is None else state_dict, handle)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
        with _readable(folder := Path(resume_from_checkpoint)):
            state, states = (
                torch.load(folder / name, map_location="cpu", weights_only=True)
                for name in (WEIGHTS, STATES)
            )
            assert self.model is not None
            self.model.load_state_dict(state)
            self.run_callback.load_state_dict(states)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with nullcontext() if checkpoint is None else _readable(Path(checkpoint)):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        """Do nothing: every step seeds itself."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Do nothing: every step seeds itself."""


class TextTrainer(RunTrainer, SentenceTransformerTrainer):
    """Trains a ``TextModule``."""

    module: TextModule

    def __init__(self, model: TextModule, args: Arguments) -> None:
        losses: dict[str, nn.Module] = {**model.losses}
        super().__init__(
            model=model.model,
            args=args,
            loss=losses if len(losses) > 1 else next(iter(losses.values())),
            data_collator=cast("Any", lambda batch: batch),
        )

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: the run writes its own model card."""

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *_: object, **__: object
    ) -> Tensor:
        """Return the loss of a batch, and measure the batch if its step is logged."""
        step, dataset = self.state.global_step, inputs["dataset_name"]
        torch.manual_seed(step_seed(self.module.seed, step, rank()))
        self.module.begin(step, dataset, inputs.pop("number"))
        loss = super().compute_loss(cast("SentenceTransformer", model), inputs)
        assert isinstance(loss, Tensor)
        self.module.end(loss, dataset)
        return loss


class ImageTrainer(RunTrainer):
    """Trains an ``ImageMethod``, which computes its loss itself."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs._replace(images=inputs.images.to(self.args.device, non_blocking=True))

    def compute_loss(self, model: nn.Module, inputs: Any, *_: object, **__: object) -> Tensor:
        """Return the loss of a batch."""
        loss: Tensor = model(inputs)
        return loss


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raise CannotResume for a file that torch cannot load."""
    try:
        yield
    except (MemoryError, InputError):
        raise
    except Exception as error:  # torch may raise any error for a file that is not its archive
        raise CannotResume(
            "start again in another folder: no checkpoint can be read "
            f"({folder}: {first_line(error)})"
        ) from error

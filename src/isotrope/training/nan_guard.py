"""Detects non-finite numbers within a step; the run ends, or skips the step.

The loss, the embeddings and the gradient of every step are checked before anything is changed by
them, and in all processes alike. ``--on-nan stop`` ends the run, and the last checkpoint
stays as it is. ``skip`` leaves the step out: parameters, states of the optimiser, moving averages,
queues and running statistics are what they were before it, the next step takes the next batch, and
a run that was stopped continues exactly. Overflows of float16 gradients are neither: the scaler
handles them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, cast

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from isotrope.core.distributed import all_reduce_max
from isotrope.core.errors import Diverged
from isotrope.core.views import Views
from isotrope.paradigm.anatomy import first_rows
from isotrope.paradigm.objective import Objective
from isotrope.training.progress import warn
from isotrope.training.settings import RunSettings

__all__ = ["MOST", "GuardedModule", "NonFiniteGuard", "check_finite_weights"]

MOST = 10
"""So many steps in a row are not left out: training is over by then."""

What = Literal["the loss is", "an embedding is", "the gradient is"]
_WHATS: tuple[What, ...] = ("an embedding is", "the loss is", "the gradient is")


class GuardedModule(Protocol):
    """The attributes of a training module that the loss, the guard and the log use.

    Attributes:
        objective: that it is trained with.
        backend: what computes the loss.
        guard: against numbers that are not finite.
        log_every: steps between measured batches.
        steps: how many the whole run has.
        learning_rate: the largest of the run.
        measured: numbers of the last step, if it was a logged one, else empty.
        gradient_norm: the norm in the last step, before clipping.
    """

    objective: Objective
    backend: str
    guard: "NonFiniteGuard"
    log_every: int
    steps: int
    learning_rate: float
    measured: dict[str, float | None]
    gradient_norm: Tensor | None

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters with their names."""
        ...


class NonFiniteGuard(L.Callback):
    """Keeps non-finite numbers out of a model.

    A callback, for its counts go into checkpoints; before those that log, score and save.

    Args:
        settings: the run's settings; None (a module that is trained by other means) stops.
        clip: the largest norm of the gradient, or None.

    Attributes:
        skipped: steps of the run that were left out.
        skipping: whether the present one is.
    """

    def __init__(self, settings: RunSettings | None = None, clip: float | None = None) -> None:
        self.settings, self.clip = settings, clip
        self.skipped = self.in_a_row = 0
        self._what: What | None = None
        self._views: list[Views] = []
        self._loss: Tensor | None = None
        self._buffers: list[tuple[Tensor, Tensor]] = []

    @property
    def skipping(self) -> bool:
        """Whether the present step is left out."""
        return self._what is not None

    @property
    def skips(self) -> bool:
        """Whether steps may be left out."""
        return self.settings is not None and self.settings.on_nan == "skip"

    @property
    def counted(self) -> dict[str, float | None]:
        """How many steps were left out, by its name in the log; nothing where none ever is."""
        return {"skipped": self.skipped} if self.skips else {}

    # in the step

    def forward_is_finite(
        self, module: GuardedModule, step: int, loss: Tensor, views: Sequence[Views]
    ) -> bool:
        """Return whether a step may continue to its backward pass.

        Args:
            module: what is trained.
            step: its number.
            loss: the whole batch's loss.
            views: the terms of the loss, as raw embeddings of all processes.

        Raises:
            Diverged: it may not, and the run ends.
        """
        self._views, self._loss = [view.detached() for view in views], loss.detach()
        what = 0
        if not math.isfinite(float(self._loss)):
            what = 2
        elif not all(_is_finite(x) for view in self._views for x in _matrices(view)):
            what = 1
        if worst := all_reduce_max(what):
            self._skip_or_stop(module, step, _WHATS[worst - 1])
        return not worst

    def zero_loss(self, module: GuardedModule) -> Tensor:
        """Return a loss whose gradient is zero, for every parameter that other processes await."""
        parts = [p.sum() for p in module.parameters() if p.requires_grad]
        return 0 * torch.stack([part.float() for part in parts]).sum()

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer
    ) -> None:
        """Clip by the norm of all gradients, and check and record the norm."""
        module = cast("GuardedModule", pl_module)
        module.gradient_norm = nn.utils.clip_grad_norm_(
            pl_module.parameters(), self.clip or math.inf
        )
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = None if scaler is None else float(scaler.get_scale())
        self.check_gradient(module, trainer.global_step, module.gradient_norm, scale)

    def check_gradient(
        self, module: GuardedModule, step: int, norm: Tensor, scale: float | None = None
    ) -> None:
        """Check the gradient before the update, and drop it if the step is skipped.

        Args:
            module: what is trained.
            step: its number.
            norm: its gradient's norm.
            scale: what a float16 loss was multiplied by. Above 1 a gradient may overflow for that
                reason alone: the scaler leaves the step out, and scales less in the next.

        Raises:
            Diverged: it is not finite, and the run ends.
        """
        overflows = scale is not None and scale > 1
        broken = not (self.skipping or overflows or math.isfinite(float(norm)))
        if all_reduce_max(int(broken)):
            self._skip_or_stop(module, step, "the gradient is")
        if self.skipping:
            # optimisers pass over parameters without a gradient, and over their states
            for parameter in module.parameters():
                parameter.grad = None

    def _skip_or_stop(self, module: GuardedModule, step: int, what: What) -> None:
        self._what = what
        if not self.skips or self.in_a_row + 1 >= MOST:
            self._stop(module, step, what)

    # around the step

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Copy the buffers that the forward pass will change."""
        self._what = None
        if self.skips:
            self._buffers = [(buffer, buffer.clone()) for buffer in pl_module.buffers()]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        """Count a skipped step, restore the buffers and drop the gradients."""
        module = cast("GuardedModule", pl_module)
        if self.skipping:
            for buffer, before in self._buffers:
                buffer.copy_(before)
            self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
            warn(f"step {trainer.global_step - 1}: {self._what} not finite; left out")
            module.measured, module.gradient_norm = self.counted, None
        else:
            self.in_a_row = 0
            if module.measured:
                module.measured |= self.counted
        self._views, self._loss, self._buffers = [], None, []
        # Lightning would keep them through the next forward pass
        pl_module.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, which go into checkpoints."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the counts of a checkpoint."""
        self.skipped, self.in_a_row = state_dict["skipped"], state_dict["in_a_row"]

    # at the end

    def _stop(self, module: GuardedModule, step: int, what: What) -> None:
        """End the run.

        Raises:
            Diverged: always, with the same message in every process.
        """
        before = f", as something was in the {MOST - 1} steps before" if self.skips else ""
        for line in described(module, self._views, self._loss):
            warn(line)
        *remedies, last = _advice(module, self.settings)
        advice = f"{', '.join(remedies)} or {last}" if remedies else last
        raise Diverged(f"training diverged: {what} not finite at step {step}{before}; use {advice}")


def check_finite_weights(module: nn.Module, step: int) -> None:
    """Check that no parameter is infinite or NaN before a model is saved.

    Raises:
        Diverged: the last update has made a parameter infinite, or NaN.
    """
    if broken := non_finite_names(module.named_parameters()):
        raise Diverged(
            f"training diverged: after {step} steps the weights are not finite ({broken[0]}), and "
            "are not saved; use a lower `--learning-rate`"
        )


def non_finite_names(tensors: Iterable[tuple[str, Tensor | None]]) -> list[str]:
    """Return the names of the tensors that are not finite."""
    return [name for name, x in tensors if x is not None and not _is_finite(x)]


def described(module: GuardedModule, views: Sequence[Views], loss: Tensor | None) -> Iterator[str]:
    """Yield lines on the finite and non-finite values of a step, and their size.

    Args:
        module: what is trained.
        views: the terms of its loss.
        loss: their mean.
    """
    if loss is not None:
        yield f"  loss: {float(loss):.6g}"
    for view in views:
        for name, rows in zip(("anchors", "positives", "negatives"), _matrices(view), strict=False):
            norms = torch.linalg.vector_norm(rows.float(), dim=1)
            yield f"  norms of {len(rows):,} {name}: {_span(norms)}"
        yield from _components(module.objective, view)
    for name, tensors in (
        ("weights", dict(module.named_parameters())),
        ("gradients", {k: p.grad for k, p in module.named_parameters() if p.grad is not None}),
    ):
        if tensors:
            broken = non_finite_names(tensors.items())
            first = f", the first of them {broken[0]}" if broken else ""
            yield f"  {name}: {len(tensors) - len(broken):,} of {len(tensors):,} finite{first}"


@torch.no_grad()
def _components(objective: Objective, views: Views) -> Iterator[str]:
    if not objective.has_terms:
        return
    terms = objective.components(objective.compare(first_rows(views)))
    ratio = terms.pull if terms.ratio is None else terms.ratio
    yield f"  gradient dissipation: {_span(terms.dissipation)}"
    yield f"  weight: {_span(terms.weight)}"
    yield f"  {'pull' if terms.ratio is None else 'ratio'}: {_span(ratio)}"


def _span(x: Tensor) -> str:
    """Return how many numbers are finite, the smallest and the largest."""
    finite = x[x.isfinite()]
    span = f", {float(finite.min()):.4g} to {float(finite.max()):.4g}" if len(finite) else ""
    return f"{len(finite):,} of {x.numel():,} finite{span}"


def _advice(module: GuardedModule, settings: RunSettings | None) -> Iterator[str]:
    """Yield what may help, in the words of the command line."""
    yield f"a lower `--learning-rate` (it is {module.learning_rate:g})"
    temperature = module.objective.hyperparameters().get("temperature")
    if temperature is not None:
        yield f"a higher `--objective.temperature` (it is {float(temperature):g})"
    if settings is None:
        return
    if settings.precision != "32":
        yield "`--precision 32`"
    if getattr(settings, "clip", None) is None:
        yield "`--clip 1`"
    if settings.on_nan != "skip":
        yield "`--resume` with `--on-nan skip`"


def _is_finite(x: Tensor) -> bool:
    """Return whether all numbers are finite, without a tensor of as many booleans."""
    return x.numel() == 0 or all(math.isfinite(float(end)) for end in torch.aminmax(x.detach()))


def _matrices(views: Views) -> list[Tensor]:
    matrices = [views.anchors, views.positives]
    return matrices if views.negatives is None else [*matrices, views.negatives]

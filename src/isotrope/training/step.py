"""Computes the seed and the loss of a step, for text and images alike."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from isotrope.core.distributed import GlobalBatch
from isotrope.core.views import Views
from isotrope.paradigm.separable import shared_loss
from isotrope.training.nan_guard import GuardedModule

__all__ = ["step_loss", "step_seed"]


def step_seed(seed: int, step: int, process: int = 0) -> int:
    """Return the random seed of one step in one process, a function of these three alone."""
    # odd constants of 64 bits, as splitmix64 has, keep neighbouring seeds and steps apart
    mixed = seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + process * 0x94D049BB133111EB
    return (mixed + 1) % 2**63


def step_loss(
    module: GuardedModule,
    step: int,
    batches: Sequence[GlobalBatch],
    checked: Sequence[Views],
    measure: Callable[[], dict[str, float | None]],
    *,
    counted: int | None = None,
) -> Tensor:
    """Return the mean of the objective over the pairs of views of a step, and log its numbers.

    Similarities and the loss are computed in float32 even when the encoder is not. Every
    ``log_every`` steps, and in the last, what ``measure`` returns goes into ``module.measured``. A
    step with something that is not finite has a loss of 0 without a gradient, or ends the run.

    Args:
        module: what is trained.
        step: its number.
        batches: the gathered examples of all processes, one batch for each pair of views.
        checked: this process's own views, in which everything must be finite.
        measure: measures the batch.
        counted: the number by which ``log_every`` counts: of several data sets, each has its own.

    Raises:
        Diverged: something is not finite, and ``--on-nan`` is ``stop``.
    """
    # similarities in half precision would be divided by the temperature with their rounding
    with torch.autocast(batches[0].views.anchors.device.type, enabled=False):
        losses = [shared_loss(module.objective, batch, backend=module.backend) for batch in batches]
        loss = torch.stack(losses).mean()
        if not module.guard.forward_is_finite(module, step, loss, checked):
            return module.guard.zero_loss(module)
        if (
            step if counted is None else counted
        ) % module.log_every == 0 or step == module.steps - 1:
            module.measured = measure()
            module.measured["loss"] = float(loss.detach())
    return loss

"""Stops a run at a loss, embedding or gradient that is not finite, and suggests remedies.

Each step is checked in all processes before the weights change, so the last checkpoint remains
valid. If a float16 gradient overflows, torch's gradient scaler skips the step.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import torch
from torch import Tensor, nn

from isotrope.core.distributed import all_reduce_max
from isotrope.core.errors import Diverged
from isotrope.core.views import Views
from isotrope.paradigm.anatomy import first_rows
from isotrope.paradigm.objective import Objective
from isotrope.training.progress import warn
from isotrope.training.run_settings import RunSettings

if TYPE_CHECKING:
    from isotrope.training.images.method import ImageMethod
    from isotrope.training.text_module import TextModule

_FAULTS = "", "an embedding", "the loss"  # the worst is last: what any process has is named

Trained: TypeAlias = "TextModule | ImageMethod"
"""A module in training."""


class NonFiniteGuard:
    """Ends a run before numbers that are not finite change the weights."""

    def __init__(self, module: Trained, settings: RunSettings) -> None:
        self.module, self.settings = module, settings
        self._loss: Tensor | None = None

    def check_forward(self, step: int, loss: Tensor) -> None:
        """Check the loss of a step, and the embeddings from which it was computed."""
        fault, self._loss = "", loss.detach()
        if not math.isfinite(float(self._loss)):
            fault = "the loss"
        elif not all(_is_finite(x) for view in self.module.seen for x in _matrices(view)):
            fault = "an embedding"
        if fault := _FAULTS[all_reduce_max(_FAULTS.index(fault), loss.device)]:
            self._stop(step, fault)

    def check_gradient(self, step: int, norm: float, scale: float | None, device: str) -> None:
        """Check the gradient before the update; torch skips a float16 step that overflows."""
        overflows = scale is not None and scale > 1
        if all_reduce_max(int(not (overflows or math.isfinite(norm))), device):
            self._stop(step, "the gradient")

    def _stop(self, step: int, fault: str) -> NoReturn:
        """End the run, with the same message in every process."""
        for line in described(self.module, self.module.seen, self._loss):
            warn(line)
        *remedies, last = _advice(self.module, self.settings)
        advice = f"{', '.join(remedies)} or {last}" if remedies else last
        raise Diverged(f"training diverged: {fault} is not finite at step {step}; use {advice}")


def check_finite_weights(module: "Trained | nn.Module", step: int) -> None:
    """Check that no parameter is infinite or NaN before a model is saved."""
    if broken := non_finite_names(module.named_parameters()):
        raise Diverged(
            f"training diverged: use a lower `--learning-rate`. After {step} steps, the weights "
            f"{broken[0]} are not finite, so the model is not saved"
        )


def non_finite_names(tensors: Iterable[tuple[str, Tensor | None]]) -> list[str]:
    """Return the names of the tensors that are not finite."""
    return [name for name, x in tensors if x is not None and not _is_finite(x)]


def described(module: Trained, views: Sequence[Views], loss: Tensor | None) -> Iterator[str]:
    """Yield lines that describe a step: the loss, and how many other values are finite."""
    if loss is not None:
        yield f"  loss: {float(loss):.6g}"
    for view in map(Views.detached, views):
        for name, rows in zip(("anchors", "positives", "negatives"), _matrices(view), strict=False):
            norms = torch.linalg.vector_norm(rows.float(), dim=1)
            yield f"  norms of {len(rows):,} {name}: {_span(norms)}"
        yield from _components(module.objective, view)
    for name, tensors in (
        ("parameters", dict(module.named_parameters())),
        ("gradients", {k: p.grad for k, p in module.named_parameters() if p.grad is not None}),
    ):
        if tensors:
            broken = non_finite_names(tensors.items())
            first = f"; the first that is not: {broken[0]}" if broken else ""
            yield f"  {name}: {len(tensors) - len(broken):,} of {len(tensors):,} finite{first}"


@torch.no_grad()
def _components(objective: Objective, views: Views) -> Iterator[str]:
    if not objective.has_terms:
        return
    terms = objective.components(objective.compare(first_rows(views)))
    ratio = terms.pull if terms.ratio is None else terms.ratio
    yield f"  gradient dissipation: {_span(terms.dissipation)}"
    yield f"  weight of negatives: {_span(terms.weight)}"
    yield f"  {'pull' if terms.ratio is None else 'ratio'}: {_span(ratio)}"


def _span(x: Tensor) -> str:
    """Return the number of finite values, the smallest and the largest."""
    finite = x[x.isfinite()]
    span = f", {float(finite.min()):.4g} to {float(finite.max()):.4g}" if len(finite) else ""
    return f"{len(finite):,} of {x.numel():,} finite{span}"


def _advice(module: Trained, settings: RunSettings) -> Iterator[str]:
    """Yield possible remedies, as flags of the command line."""
    yield f"a lower `--learning-rate` (it is {module.learning_rate:g})"
    owner, values = "objective", module.objective.hyperparameters()
    if getattr(settings, "loss", None) is not None:  # a loss of sentence-transformers
        owner, values = "loss", vars(next(iter(vars(module)["losses"].values())))
    for name, how in ("temperature", "higher"), ("scale", "lower"):
        if values.get(name) is not None:
            yield f"a {how} `--{owner}.{name}` (it is {float(values[name]):g})"
    if settings.precision != "32":
        yield "`--precision 32`"
    if getattr(settings, "clip", None) is None:
        yield "`--clip 1`"


def _is_finite(x: Tensor) -> bool:
    """Return whether all numbers are finite, without allocating a tensor."""
    return x.numel() == 0 or all(math.isfinite(float(end)) for end in torch.aminmax(x.detach()))


def _matrices(views: Views) -> list[Tensor]:
    matrices = [views.anchors, views.positives]
    return matrices if views.negatives is None else [*matrices, views.negatives]

"""Records the embeddings of a batch, and their gradients, in any training loop.

A hook on an embedding tensor receives its gradient in the backward pass that training runs anyway:
there is no second backward pass, no graph is kept, and the loss may be any, even one that caches
gradients and embeds everything a second time for them. Embeddings made without gradients, as in
such a loss's first pass, count only if there are no others.

A loss over nested prefixes (``MatryoshkaLoss``) makes the embeddings of each prefix from those of
the next longer one, so that the gradient on a prefix includes those of all shorter ones. They are
subtracted.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Catch", "Caught"]

_SAME = 1e-4  # the most by which a normalised prefix may differ from the embeddings made from it


@dataclass(frozen=True)
class Caught:
    """Embeddings, and the gradient of the loss on them.

    Attributes:
        embeddings: n x d.
        gradient: n x d, of the loss that was computed from these embeddings themselves; None if
            none has arrived.
        whole: whether these are all the requested rows.
    """

    embeddings: Tensor
    gradient: Tensor | None
    whole: bool


@dataclass
class _ModelOutput:
    """The embeddings of one call of the model."""

    embeddings: Tensor
    gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


@dataclass
class Catch:
    """The outputs of the model for one batch, in the order of its calls."""

    _with_gradient: list[_ModelOutput] = field(default_factory=list)
    _without_gradient: list[_ModelOutput] = field(default_factory=list)

    def add(self, embeddings: Tensor) -> None:
        """Keep a copy of the model's output, which is not changed.

        Args:
            embeddings: n x d, a column of the batch, a piece of one, or several columns.
        """
        output = _ModelOutput(embeddings.detach().clone())
        if embeddings.requires_grad:
            embeddings.register_hook(output.receive)
            self._with_gradient.append(output)
        else:
            self._without_gradient.append(output)

    def sizes(self) -> list[int]:
        """Return the number of rows of each model output that :meth:`first` joins."""
        return [len(output.embeddings) for output in self._outputs()]

    def first(self, rows: int) -> Caught | None:
        """Return the first ``rows`` embeddings with their gradient; None if there are none.

        Args:
            rows: number of rows of all columns together.
        """
        outputs = self._outputs()
        batches = _whole_batches(outputs, rows)
        if not batches:
            joined = _join(outputs[:1])
            return (
                None if joined is None else Caught(joined.embeddings, joined.gradient, whole=False)
            )
        return Caught(batches[0].embeddings, _without_prefixes(batches), whole=True)

    def _outputs(self) -> list[_ModelOutput]:
        return self._with_gradient or self._without_gradient


def _whole_batches(outputs: list[_ModelOutput], rows: int) -> list[_ModelOutput]:
    """Join consecutive outputs to batches of ``rows`` rows, until one does not fit."""
    batches: list[_ModelOutput] = []
    pending: list[_ModelOutput] = []
    for output in outputs:
        pending.append(output)
        count = sum(len(o.embeddings) for o in pending)
        if count > rows:
            break
        if count == rows:
            whole = _join(pending)
            assert whole is not None
            batches.append(whole)
            pending = []
    return batches


def _join(outputs: list[_ModelOutput]) -> _ModelOutput | None:
    """Concatenate outputs; the gradient is None if no output has one."""
    if not outputs or len({output.embeddings.shape[1] for output in outputs}) > 1:
        return None
    gradients = [output.gradient for output in outputs]
    gradient = None
    if any(g is not None for g in gradients):
        gradient = torch.cat(
            [
                torch.zeros_like(output.embeddings) if g is None else g
                for output, g in zip(outputs, gradients, strict=True)
            ]
        )
    return _ModelOutput(torch.cat([output.embeddings for output in outputs]), gradient)


def _without_prefixes(batches: list[_ModelOutput]) -> Tensor | None:
    """Return the gradient on the first embeddings, less the part that came through a prefix."""
    gradient = batches[0].gradient
    if gradient is None or len(batches) < 2 or batches[1].gradient is None:
        return gradient
    # on the CPU: Apple's GPUs have no float64
    x, shorter, through = (
        y.cpu().double()
        for y in (batches[0].embeddings, batches[1].embeddings, batches[1].gradient)
    )
    prefix = x[:, : shorter.shape[1]]
    norm = torch.linalg.vector_norm(prefix, dim=1, keepdim=True).clamp_min(1e-12)
    if shorter.shape[1] >= x.shape[1] or float((prefix / norm - shorter).abs().max()) > _SAME:
        return gradient
    through = (through - shorter * (through * shorter).sum(dim=1, keepdim=True)) / norm
    corrected = gradient.cpu().double().clone()
    corrected[:, : shorter.shape[1]] -= through
    return corrected.to(gradient)

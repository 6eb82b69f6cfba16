"""Catching: the embeddings that a training makes, and the gradients that reach them.

A hook on an embedding tensor is given its gradient in the backward pass that training runs anyway:
no second backward pass, no graph that is kept, and the loss may be anything, also one that caches
gradients and embeds everything a second time for them. What is embedded without gradients, as in
such a loss's first pass, counts only where nothing else is embedded.

A loss of nested prefixes (``MatryoshkaLoss``) makes the embeddings of each prefix from those of
the one before it, so that the gradient of a prefix holds those of all shorter ones. Its own is what
is left without them.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Catch", "Caught"]

_SAME = 1e-4  # what a prefix, normalised, may differ from the embeddings that were made of it


@dataclass(frozen=True)
class Caught:
    """Embeddings, and the gradient of the loss on them.

    Attributes:
        embeddings: n x d.
        gradient: n x d, of the loss that was computed from these embeddings themselves; None where
            none has come.
        whole: whether these are all the rows that were looked for.
    """

    embeddings: Tensor
    gradient: Tensor | None
    whole: bool


@dataclass
class _Part:
    """What one call of the model has made."""

    embeddings: Tensor
    gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


@dataclass
class Catch:
    """What was embedded for one batch, in the order in which it was."""

    _parts: list[_Part] = field(default_factory=list)
    _idle: list[_Part] = field(default_factory=list)

    def add(self, embeddings: Tensor) -> None:
        """Keep what the model has made; nothing of it is changed.

        Args:
            embeddings: n x d, a column of the batch, a piece of one, or several at once.
        """
        part = _Part(embeddings.detach().clone())
        if embeddings.requires_grad:
            embeddings.register_hook(part.receive)
            self._parts.append(part)
        else:
            self._idle.append(part)

    def sizes(self) -> list[int]:
        """Return how many rows each call of the model made, of those that :meth:`first` joins."""
        return [len(part.embeddings) for part in self._parts or self._idle]

    def first(self, rows: int) -> Caught | None:
        """Return the first so many rows, with the gradient that is their own; None without any.

        Args:
            rows: of all columns together.
        """
        passes = _passes(self._parts or self._idle, rows)
        if not passes:
            found = _joined((self._parts or self._idle)[:1])
            return None if found is None else Caught(found.embeddings, found.gradient, whole=False)
        return Caught(passes[0].embeddings, _own(passes), whole=True)


def _passes(parts: list[_Part], rows: int) -> list[_Part]:
    """The parts put together to whole batches, as far as they go."""
    found: list[_Part] = []
    held: list[_Part] = []
    for part in parts:
        held.append(part)
        count = sum(len(p.embeddings) for p in held)
        if count > rows:
            break
        if count == rows:
            whole = _joined(held)
            assert whole is not None
            found.append(whole)
            held = []
    return found


def _joined(parts: list[_Part]) -> _Part | None:
    """Several parts as one; without a gradient where none of them has any."""
    if not parts or len({part.embeddings.shape[1] for part in parts}) > 1:
        return None
    gradients = [part.gradient for part in parts]
    gradient = None
    if any(g is not None for g in gradients):
        pairs = zip(parts, gradients, strict=True)
        gradient = torch.cat([torch.zeros_like(p.embeddings) if g is None else g for p, g in pairs])
    return _Part(torch.cat([part.embeddings for part in parts]), gradient)


def _own(passes: list[_Part]) -> Tensor | None:
    """The gradient on the first embeddings, without what has come through prefixes of them."""
    gradient = passes[0].gradient
    if gradient is None or len(passes) < 2 or passes[1].gradient is None:
        return gradient
    # on the CPU: Apple's GPUs have no float64
    x, shorter, through = (
        y.cpu().double() for y in (passes[0].embeddings, passes[1].embeddings, passes[1].gradient)
    )
    prefix = x[:, : shorter.shape[1]]
    norm = torch.linalg.vector_norm(prefix, dim=1, keepdim=True).clamp_min(1e-12)
    if shorter.shape[1] >= x.shape[1] or float((prefix / norm - shorter).abs().max()) > _SAME:
        return gradient
    through = (through - shorter * (through * shorter).sum(dim=1, keepdim=True)) / norm
    own = gradient.cpu().double().clone()
    own[:, : shorter.shape[1]] -= through
    return own.to(gradient)

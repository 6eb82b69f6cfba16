"""Records the score matrix of a loss, anchors by candidates, and its gradient."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.adapters.doctor.wrapping import calling_after

__all__ = ["ScoreHooks"]


@dataclass
class _ScoredCall:
    """The scores of one call, and their gradient."""

    scores: Tensor
    gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


class ScoreHooks:
    """The scores of one batch.

    ``similarity_fct`` of a loss is wrapped during its call; its result does not change. If there
    is none, the model's scores are the columns, positives first.

    Args:
        quietly: wraps a function so that no error reaches the training.
    """

    def __init__(self, quietly: Callable[[Callable[..., object]], Callable[..., None]]) -> None:
        self._quietly = quietly
        self._wrapped: list[tuple[nn.Module, Any]] = []
        self._matrices: list[_ScoredCall] = []
        self._columns: list[_ScoredCall] = []
        self._activation: Callable[[Tensor], Tensor] | None = None

    def open(self, loss: nn.Module) -> None:
        """Wrap the similarity functions of a loss."""
        activation = getattr(loss, "activation_fn", None)
        self._activation = activation if callable(activation) else None
        for module in loss.modules():
            similarity = vars(module).get("similarity_fct")
            if callable(similarity):
                self._wrapped.append((module, similarity))
                vars(module)["similarity_fct"] = self._watched(similarity)

    def _watched(self, similarity: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return calling_after(
            similarity, self._quietly(functools.partial(self._keep, self._matrices))
        )

    def _keep(self, parts: list[_ScoredCall], scores: Tensor) -> None:
        if scores.requires_grad:
            part = _ScoredCall(scores.detach().clone())
            scores.register_hook(part.receive)
            parts.append(part)

    def add(self, scores: object) -> None:
        """Keep a model's scores of pairs of texts, n or n x 1."""
        if isinstance(scores, Tensor) and scores.numel() == len(scores):
            self._keep(self._columns, scores)

    def restore(self) -> None:
        """Restore the similarity functions of the loss."""
        for module, similarity in self._wrapped:
            vars(module)["similarity_fct"] = similarity
        self._wrapped.clear()

    def close(self) -> None:
        """Forget this batch."""
        self.restore()
        # the lists of a batch that was broken off may still be filled: they are not used again
        self._matrices, self._columns = [], []

    def matrix(self, rows: int | None) -> tuple[Tensor, Tensor] | None:
        """Return scores and gradient, both n x m, of ``rows`` anchors; None without any."""
        if rows is None:
            return None
        matrices = [p for p in self._matrices if p.gradient is not None and p.scores.ndim == 2]
        width = matrices[0].scores.shape[1] if matrices else 0
        held = [p for p in matrices if p.scores.shape[1] == width]
        if width >= max(2, rows) and sum(len(p.scores) for p in held) >= rows:
            scores, gradient = _join(held, 0)
            return scores[:rows], gradient[:rows]
        columns = [p for p in self._columns if p.gradient is not None and len(p.scores) == rows]
        if len(columns) < 3:  # of a pair, or a triplet, there is no batch to see
            return None
        scores, gradient = _join(columns, 1)
        return self._activated(scores, gradient)

    def _activated(self, scores: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and gradient after the activation that the loss applies to scores."""
        if self._activation is None:
            return scores, gradient
        with torch.enable_grad():
            leaf = scores.double().requires_grad_()
            value = self._activation(leaf)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient.double() / slope.where(slope != 0, torch.inf)


def _join(parts: list[_ScoredCall], dim: int) -> tuple[Tensor, Tensor]:
    """Concatenate scores and gradients along ``dim``; vectors become columns for ``dim`` 1."""
    shape = (-1, 1) if dim == 1 else None
    scores = [p.scores if shape is None else p.scores.reshape(shape) for p in parts]
    gradients = [p.gradient for p in parts if p.gradient is not None]
    gradients = [g if shape is None else g.reshape(shape) for g in gradients]
    return torch.cat(scores, dim=dim), torch.cat(gradients, dim=dim)

"""Recovers GD, W and R of all anchors of a batch from its gradient alone.

``decompose`` calls a loss; here nothing is left of it but its gradient g_i on the anchors, as in a
training loop of someone else's. Pushes and pull of anchor i are again the y_i of least norm with

    T_i P^T y_i = g_i,    T_i the projection on the tangent plane at h_i, P the columns (c x d),

and one singular value decomposition P = U S V^T serves all anchors: with y = U z, w = S z,
a = V^T h_i and b = V^T g_i the normal equations are (I - a a^T) w = b, whose matrix has an inverse
in closed form; where h_i lies in the span of the columns it has none, and z is the shortest of a
line. That is O(c^2 d) for the batch, where a decomposition for each anchor is O(c^3 d).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.decompose import normalised_mass

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True)
class Recovered:
    """The components that a gradient holds.

    Attributes:
        terms: as :func:`isotrope.paradigm.decompose.decompose` returns them, in float64 on the
            CPU: each row of W sums to 1 where it has a mass, and the 1/tau of a softmax is in GD.
        determined: n booleans, where no other GD and pull give the same gradient: it takes fewer
            columns than dimensions, and a positive that is neither the anchor nor in there twice.
        misfit: the share of the gradient that no components give: 0 all fits, 1 nothing does.
    """

    terms: Terms
    determined: Tensor
    misfit: float


def recover(
    gradient: Tensor,
    views: Views,
    *,
    against: Literal["cross", "both"] = "cross",
) -> Recovered:
    """Return the components of the anchors' losses from their gradients by the raw anchors.

    Args:
        gradient: n x d, row i of anchor i's own loss: of a mean over n anchors, n times its
            gradient. ``terms.scale`` is 1/n, that of the mean.
        views: the raw embeddings; further negatives are columns too, and rows of one group are no
            negatives of each other: a loss that pushes them apart has a misfit.
        against: what the negatives are: the other view, or both views (NT-Xent).
    """
    noise = min(max(gradient.shape) * torch.finfo(gradient.dtype).eps, 0.01)
    pairs = choose_pairs(views.map(lambda x: x.detach().cpu().double()).unit())
    h, columns, negative = pairs.views.anchors, pairs.columns(against), pairs.negative(against)
    norm = torch.linalg.vector_norm(views.anchors.detach().cpu().double(), dim=1, keepdim=True)
    target = tangent(gradient.detach().cpu().double() * norm, h)
    positive = torch.arange(len(h)) + views.offset
    coefficient, determined = _solve(columns, h, target, negative, positive, noise)
    push = coefficient.where(negative, 0.0)
    pull = -_picked(coefficient, positive)
    fitted = tangent(push @ columns - pull[:, None] * pairs.views.own, h)
    size, _ = normalised_mass(push, pull)
    divisor = size.where(size != 0, 1.0)
    residual, target_norm = target - fitted, float(torch.linalg.vector_norm(target))
    weight, pull = push / divisor[:, None], pull / divisor
    terms = Terms(size, weight, pull, against, scale=1 / len(h), residual=residual)
    misfit = float(torch.linalg.vector_norm(residual)) / target_norm if target_norm else 0.0
    return Recovered(terms, determined, misfit)


def _solve(
    columns: Tensor, h: Tensor, target: Tensor, negative: Tensor, positive: Tensor, noise: float
) -> tuple[Tensor, Tensor]:
    """Coefficients of the columns (n x c), and where pull and mass are the only ones (n)."""
    u, s, vt = torch.linalg.svd(columns, full_matrices=False)
    keep = s > noise * s[0]
    u, s, v = u[:, keep], s[keep], vt[keep].T
    a, b = h @ v, target @ v
    outside = (h - a @ v.T).square().sum(dim=1, keepdim=True)  # 1 - |a|^2, as a sum of squares
    spanned = outside <= noise**2
    once = b + a * (a * b).sum(dim=1, keepdim=True) / outside.where(~spanned, 1.0)
    line = a / s
    length = line.square().sum(dim=1, keepdim=True)  # 0 of a row without direction
    back = (line * b / s).sum(dim=1, keepdim=True) / length.where(length > 0, 1.0)
    w = once.where(~spanned, b - back * a)
    # what could be added to a solution: outside U for every anchor, and where h is spanned, a line
    close = math.sqrt(noise)
    free = torch.eye(len(u), dtype=u.dtype) - u @ u.T
    determined = free.diagonal()[positive] <= close
    determined &= (negative.to(u.dtype) @ free).abs().amax(dim=1) <= close
    null = torch.nn.functional.normalize(line @ u.T, dim=1)
    unmoved = _picked(null, positive).abs().maximum((null * negative).sum(dim=1).abs()) <= close
    return (w / s) @ u.T, determined & (unmoved | ~spanned[:, 0])


def _picked(x: Tensor, column: Tensor) -> Tensor:
    """One entry of each row."""
    return x.gather(1, column[:, None])[:, 0]

"""Recovers GD, W and R of all anchors of a batch from its gradient alone.

``decompose`` calls a loss; here nothing is left of it but its gradient g_i on the anchors, as in a
training loop of someone else's. Pushes and pull of anchor i are again the y_i of least norm with

    T_i P^T y_i = g_i,    T_i the projection on the tangent plane at h_i, P the columns (c x d),

and one singular value decomposition P = U S V^T serves all anchors: with y = U z, w = S z,
a = V^T h_i and b = V^T g_i the normal equations are (I - a a^T) w = b, whose matrix has an inverse
in closed form; where h_i lies in the span of the columns it has none, and z is the shortest of a
line. That is O(c^2 d) for the batch, where a decomposition for each anchor is O(c^3 d).

A number of the result is determined where half of its digits are known. Let f be a row with
f . y the pull or the mass: what of f no column reaches is free, and with q = S^-1 U^T f a relative
error of the gradient comes back multiplied by (|q|^2 + (a q)^2 / (1 - |a|^2))^(1/2).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.rounding import rounding
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.decompose import normalised_mass


@dataclass(frozen=True)
class Recovered:
    """The components that a gradient holds.

    Attributes:
        terms: as :func:`isotrope.paradigm.decompose.decompose` returns them, in float64 on the
            CPU: each row of W sums to 1 where it has a mass, and the 1/tau of a softmax is in GD.
        determined: n booleans, where no other GD and pull give the same gradient within its
            rounding, so that half of their digits are known: it takes fewer columns than
            dimensions, and a positive that is neither near the anchor nor in there twice.
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
    noise = rounding(gradient.dtype, max(gradient.shape))
    pairs = choose_pairs(views.map(lambda x: x.detach().cpu().double()).unit())
    h, columns, negative = pairs.views.anchors, pairs.columns(against), pairs.negative(against)
    norm = torch.linalg.vector_norm(views.anchors.detach().cpu().double(), dim=1, keepdim=True)
    target = tangent(gradient.detach().cpu().double() * norm, h)
    positive = torch.arange(len(h)) + views.offset
    system = _System(columns, h, noise)
    coefficient = system.solved(target)
    own = torch.nn.functional.one_hot(positive, len(columns)).to(h)
    push, pull = coefficient.where(negative, 0.0), -(coefficient * own).sum(dim=1)
    fitted = tangent(push @ columns - pull[:, None] * pairs.views.own, h)
    size, normalised = normalised_mass(push, pull)
    divisor = size.where(size != 0, 1.0)
    summed = negative.to(h).where(normalised[:, None], push.sign())  # GD is its sum of pushes
    force = (push * summed).sum(dim=1).abs().maximum(pull.abs())
    length = torch.linalg.vector_norm(coefficient, dim=1)
    # a softmax is rounded beside 1, not beside what is left of it: the largest anchor shows it
    error = noise * length + rounding(gradient.dtype, 1) * length.max()
    length, error = length.where(force > 0, 1.0), error.where(force > 0, noise)
    doubt = system.doubt(own, length, error).maximum(system.doubt(summed, length, error))
    determined = doubt <= math.sqrt(noise) * force.where(force > 0, 1.0)
    residual, target_norm = target - fitted, float(torch.linalg.vector_norm(target))
    weight, pull = push / divisor[:, None], pull / divisor
    terms = Terms(size, weight, pull, against, scale=1 / len(h), residual=residual)
    misfit = float(torch.linalg.vector_norm(residual)) / target_norm if target_norm else 0.0
    return Recovered(terms, determined, misfit)


class _System:
    """The columns P (c x d) as they are seen from the tangent planes of all anchors."""

    def __init__(self, columns: Tensor, h: Tensor, noise: float) -> None:
        u, s, vt = torch.linalg.svd(columns, full_matrices=False)
        keep = s > noise * s[0]
        self.u, self.s, self.v = u[:, keep], s[keep], vt[keep].T
        self.a = h @ self.v
        outside = h - self.a @ self.v.T
        self.outside = outside - outside @ self.v @ self.v.T  # once more: it may be short
        square = self.outside.square().sum(dim=1, keepdim=True)  # 1 - |a|^2
        spanned = square <= noise  # a square: of less, fewer than half of the digits are known
        self.square = square.where(~spanned, torch.inf)
        # where h is spanned, what can be added to a solution is a line
        line = torch.nn.functional.normalize((self.a / self.s) @ self.u.T, dim=1)
        self.line = line.where(spanned, 0.0)

    def solved(self, target: Tensor) -> Tensor:
        """Return the coefficients of least norm, n x c."""
        b = target @ self.v
        # a . b is -outside . g, since g is tangent
        along = -(self.outside * target).sum(dim=1, keepdim=True) / self.square
        # along the line, before the division by what may be tiny
        line = self.a / self.s
        back = (line * b / self.s).sum(dim=1, keepdim=True)
        back = back / line.square().sum(dim=1, keepdim=True)  # NaN of a row without direction
        along = along.where(self.square.isfinite(), -back.nan_to_num(0.0))
        coefficients: Tensor = ((b + along * self.a) / self.s) @ self.u.T
        return coefficients

    def doubt(self, f: Tensor, length: Tensor, error: Tensor) -> Tensor:
        """Return by how much f . y may be wrong (n).

        Args:
            f: n x c.
            length: n, of y.
            error: n, of the gradient.
        """
        beside = self._beside_line(f)
        inside = beside @ self.u
        free = torch.linalg.vector_norm(beside - inside @ self.u.T, dim=1)
        free = free + torch.linalg.vector_norm(f - beside, dim=1)
        q = inside / self.s
        back = q.square().sum(dim=1) + (self.a * q).sum(dim=1).square() / self.square[:, 0]
        doubt: Tensor = length * free + error * back.sqrt()
        return doubt

    def _beside_line(self, x: Tensor) -> Tensor:
        return x - self.line * (self.line * x).sum(dim=1, keepdim=True)

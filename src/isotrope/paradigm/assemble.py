"""From the three components back to the gradient they describe."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs

__all__ = ["assemble", "averaged", "received", "tangent"]


def assemble(terms: Terms, views: Views) -> Tensor:
    """Return GD_i (sum_j W_ij x_j - pull_i h'_i) + residual_i, n x d (Li et al. 2024, section 2.3).

    Args:
        terms: the components of every anchor.
        views: the views they came from, in the objective's space (unit rows).
    """
    columns = pairs(views).columns(terms.against)
    pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
    direction = terms.weight @ columns - pull * views.own
    gradient = terms.dissipation[:, None] * direction
    return gradient if terms.residual is None else gradient + terms.residual


def received(terms: Terms, views: Views, of: Literal["anchors", "positives"]) -> Tensor:
    """Return what the anchors' losses do to the vectors that they are compared with, n x d.

    Anchor i's loss depends on s_ij with derivative GD_i W_ij, so its gradient on x_j is
    GD_i W_ij h_i; and on its positive -GD_i pull_i h_i. These are the roles of a vector as a
    negative and as a positive of others, in the same unit as :func:`assemble`.

    Args:
        terms: the components of every anchor, of an objective that holds nothing constant.
        views: in the objective's space; of gathered positives only the anchors' own are told.
        of: what the columns h_j of the same view receive (``against`` within or both), or what
            the positives receive, as positive and as negatives (cross or both).
    """
    n, m = len(views.anchors), len(views.positives)
    push = (terms.dissipation[:, None] * terms.weight).T @ views.anchors
    if of == "anchors":
        first = {"cross": None, "within": 0, "both": m}[terms.against]
        return torch.zeros_like(views.anchors) if first is None else push[first : first + n]
    pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
    pulled = -terms.dissipation[:, None] * pull * views.anchors
    return pulled if terms.against == "within" else pulled + push[views.rows]


def averaged(own: Terms, other: Terms, swapped: Views) -> Terms:
    """Return the components of the mean of both directions: (H, H') and (H', H).

    They are those of the first; what its anchors receive as the positives of the second, and as
    its negatives, is residual.

    Args:
        own: of the first direction alone.
        other: of the second.
        swapped: the views of ``other``.
    """
    residual = received(other, swapped, "positives")
    if own.residual is not None:
        residual = own.residual + residual
    return replace(own, scale=own.scale / 2, residual=residual)


def tangent(vectors: Tensor, points: Tensor) -> Tensor:
    """Return the part of each row of ``vectors`` (n x d) orthogonal to the unit ``points``.

    It is what reaches an un-normalised embedding (up to its norm): radial parts do not move it.
    """
    return vectors - (vectors * points).sum(dim=1, keepdim=True) * points

"""Computes the gradients of anchors, and of vectors compared with them, from GD, W and R."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs


def assemble(terms: Terms, views: Views) -> Tensor:
    """Return each anchor's GD_i (sum_j W_ij x_j - pull_i h'_i + extra_i) + residual_i, n x d."""
    columns = pairs(views).columns(terms.against)
    direction = terms.weight @ columns - terms.pulls * views.own
    if terms.extra is not None:
        direction = direction + terms.extra
    gradient = terms.dissipation[:, None] * direction
    return gradient if terms.residual is None else gradient + terms.residual


def received(terms: Terms, views: Views, of: Literal["anchors", "positives"]) -> Tensor:
    """Return the gradient of the anchors' losses with respect to the vectors of one view, n x d.

    Vector j receives GD_i W_ij h_i from each anchor i that has vector j as a negative. Vector j
    receives -GD_i pull_i h_i from the anchor i that has vector j as its positive. As in
    :func:`assemble`, the result is not multiplied by ``terms.scale``.

    Args:
        terms: The components of every anchor. The objective must not treat any input as constant.
        views: The views in the objective's space. If the positives were gathered from several
            processes, the result has only the rows that belong to the anchors in ``views``.
        of: The view whose gradient is returned. ``anchors``: a row has a gradient as a negative of
            other anchors if ``terms.against`` is within or both; else it has none. ``positives``: a
            row is the positive of its own anchor and, if ``terms.against`` is cross or both, also a
            negative of other anchors.
    """
    n, m = len(views.anchors), len(views.positives)
    push = (terms.dissipation[:, None] * terms.weight).T @ views.anchors
    if of == "anchors":
        first = {"cross": None, "within": 0, "both": m}[terms.against]
        return torch.zeros_like(views.anchors) if first is None else push[first : first + n]
    pulled = -terms.dissipation[:, None] * terms.pulls * views.anchors
    return pulled if terms.against == "within" else pulled + push[views.rows]


def averaged(first: Terms, other: Terms, swapped: Views) -> Terms:
    """Return the components of the mean of two losses: each view serves once as anchors.

    GD, W and the pull come from the first loss. The residual includes the gradient that the first
    view gets from the second loss, in which the first view has the positives and the negatives.

    Args:
        first: The components of the loss with the first view as anchors.
        other: The components of the loss with the second view as anchors, with the same ``scale``.
        swapped: The views of ``other``.
    """
    residual = received(other, swapped, "positives")
    if first.residual is not None:
        residual = first.residual + residual
    return replace(first, scale=first.scale / 2, residual=residual)


def tangent(vectors: Tensor, points: Tensor) -> Tensor:
    """Return the part of each row of ``vectors`` orthogonal to the same (unit) row of ``points``.

    Normalisation removes the radial part of a gradient. An embedding that is not yet normalised
    receives only this tangent part, divided by the embedding's norm.
    """
    return vectors - (vectors * points).sum(dim=1, keepdim=True) * points

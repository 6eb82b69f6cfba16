"""Turns the three components into the gradients of the anchors and of the compared vectors."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs


def assemble(terms: Terms, views: Views) -> Tensor:
    """Return GD_i (sum_j W_ij x_j - pull_i h'_i + extra_i) + residual_i, n x d (see ``Terms``)."""
    columns = pairs(views).columns(terms.against)
    direction = terms.weight @ columns - terms.pulls * views.own
    if terms.extra is not None:
        direction = direction + terms.extra
    gradient = terms.dissipation[:, None] * direction
    return gradient if terms.residual is None else gradient + terms.residual


def received(terms: Terms, views: Views, of: Literal["anchors", "positives"]) -> Tensor:
    """Return the gradient of the anchors' losses with respect to the columns of W, n x d.

    The columns are the vectors that the anchors are compared with. Vector j receives GD_i W_ij h_i
    from each anchor i that has it as a negative, and -GD_i pull_i h_i from the anchor i that has it
    as its positive. As in :func:`assemble`, ``terms.scale`` is not yet applied.

    Args:
        terms: The components of every anchor, for an objective that treats no input as constant.
        views: The views in the objective's space. If the positives were gathered from several
            processes, the result has only the rows that belong to the anchors in ``views``.
        of: The view whose gradient is returned. ``anchors``: each row receives a part as a negative
            of other anchors if ``terms.against`` is within or both, and otherwise nothing.
            ``positives``: each row receives a part as the positive of its own anchor and, if
            ``terms.against`` is cross or both, a part as a negative of other anchors.
    """
    n, m = len(views.anchors), len(views.positives)
    push = (terms.dissipation[:, None] * terms.weight).T @ views.anchors
    if of == "anchors":
        first = {"cross": None, "within": 0, "both": m}[terms.against]
        return torch.zeros_like(views.anchors) if first is None else push[first : first + n]
    pulled = -terms.dissipation[:, None] * terms.pulls * views.anchors
    return pulled if terms.against == "within" else pulled + push[views.rows]


def averaged(first: Terms, other: Terms, swapped: Views) -> Terms:
    """Return the components of the mean of both directions, each with one view as the anchors.

    The components are those of the first direction. The residual holds the gradient that
    the first view receives from the second direction, as positives and as negatives.

    Args:
        first: The components of the first direction alone.
        other: The components of the second direction, with the same ``scale``.
        swapped: The views of ``other``.
    """
    residual = received(other, swapped, "positives")
    if first.residual is not None:
        residual = first.residual + residual
    return replace(first, scale=first.scale / 2, residual=residual)


def tangent(vectors: Tensor, points: Tensor) -> Tensor:
    """Return the part of each row of ``vectors`` (n x d) orthogonal to the unit ``points``.

    Normalisation removes the radial part of a gradient. The embedding before normalisation
    receives only this tangent part, divided by the embedding's norm.
    """
    return vectors - (vectors * points).sum(dim=1, keepdim=True) * points

"""From the three components back to the gradient they describe."""

from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs

__all__ = ["assemble", "tangent"]


def assemble(terms: Terms, views: Views) -> Tensor:
    """Return GD_i (sum_j W_ij x_j - pull_i h'_i) + residual_i, n x d (paper 000, section 2.3).

    Args:
        terms: the components of every anchor.
        views: the views they came from, in the objective's space (unit rows).
    """
    columns = pairs(views).columns(terms.against)
    pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
    direction = terms.weight @ columns - pull * views.own
    gradient = terms.dissipation[:, None] * direction
    return gradient if terms.residual is None else gradient + terms.residual


def tangent(vectors: Tensor, points: Tensor) -> Tensor:
    """Return the part of each row of ``vectors`` (n x d) orthogonal to the unit ``points``.

    It is what reaches an un-normalised embedding (up to its norm): radial parts do not move it.
    """
    return vectors - (vectors * points).sum(dim=1, keepdim=True) * points

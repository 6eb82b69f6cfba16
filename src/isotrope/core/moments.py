"""Second moments of two views: the only statistic that decorrelating objectives need."""

from torch import Tensor

from isotrope.core.views import Views

__all__ = ["cross_moment"]


def cross_moment(views: Views) -> Tensor:
    """Return C = sum_i h_i h'_i^T / n, d x d, of the anchors and their own positives.

    Paper 000, section 4.1 (the cross-correlation without batch normalisation).
    """
    return views.anchors.T @ views.own / len(views.anchors)

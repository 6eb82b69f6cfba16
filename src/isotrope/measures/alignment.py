"""Alignment (Wang and Isola, 2020): the mean squared distance of the two views of an input."""

from torch import Tensor

from isotrope.core.rounding import at_least_float
from isotrope.core.views import unit


def alignment(anchors: Tensor, positives: Tensor, alpha: float = 2.0) -> Tensor:
    """Return mean_i ||h_i - h'_i||^alpha of the normalised rows; 0 if both views are equal.

    Args:
        anchors: Embeddings of one view, n x d, of any norm.
        positives: Embeddings of the other view, n x d, of any norm.
        alpha: Exponent of the distance. Papers use 2 (Nie et al., 2023, eq. 3). With this exponent,
            orthogonal views have an alignment of 2.

    Example:
        >>> import torch
        >>> float(alignment(torch.eye(2), torch.eye(2).flip(0)))
        2.0
    """
    h, other = unit(at_least_float(anchors)), unit(at_least_float(positives))
    square = (h - other).square().sum(dim=1)
    return square.pow(alpha / 2).mean()

"""Opposite halves: the share of inputs whose two views lie on opposite sides of the sphere.

For these inputs, the gradient of the cosine shrinks as the views move further apart, because it is
proportional to the sine of the angle between the views (Draganov et al., 2024, Prop. 3.1).
"""

import math

import torch
from torch import Tensor

from isotrope.core.rounding import at_least_float, rounding
from isotrope.core.views import unit


def opposite_halves(anchors: Tensor, positives: Tensor, angle: float = math.pi / 2) -> Tensor:
    """Return the share of pairs (h_i, h'_i) that are more than ``angle`` apart, in [0, 1].

    In many dimensions, half of all pairs of independent directions are more than pi/2 apart, and
    hardly any pair is more than 7 pi/8 apart (Draganov et al., 2024, table 2 and C.1). The result
    is NaN if a row is not finite. A zero row has no angle and counts as orthogonal.

    Args:
        anchors: Embeddings of one view, n x d, n >= 1, of any norm.
        positives: Embeddings of the other view, n x d, of any norm.
        angle: Angle in radians, between 0 and pi.

    Returns:
        A tensor of one number without a gradient, in float32 or a more precise type.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> y = torch.tensor([[5.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [-2.0, 0.0]])
        >>> float(opposite_halves(x, y)), float(opposite_halves(x, y, 7 * torch.pi / 8))
        (0.5, 0.25)
    """
    if not len(anchors):
        raise ValueError("give at least one pair of embeddings; found none")
    if not 0 <= angle <= math.pi:
        raise ValueError(f"give an angle between 0 and pi; found {angle}")
    h, other = (unit(at_least_float(x.detach())) for x in (anchors, positives))
    cosine = (h * other).sum(dim=1)
    # by more than rounding: orthogonal pairs are not beyond a right angle
    beyond = cosine < math.cos(angle) - rounding(h.dtype, h.shape[1])
    return beyond.to(h.dtype).masked_fill(cosine.isnan(), torch.nan).mean()

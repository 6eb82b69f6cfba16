"""Three distances of unit vectors, computed from the similarity s of the vectors.

``dot`` is -s, ``distance`` sqrt(2 - 2s), ``angle`` arccos s in radians (Nie et al. 2023, sec. 4.2).
``distance`` and ``angle`` clamp pairs that are closer than 0.01 (s > 1 - 5e-5), because the
derivative with respect to s is infinite at distance 0. ``angle`` also clamps pairs within 0.01 of
pi. The value of a clamped pair is constant, and its slope is 0.
"""

from typing import Literal

import torch
from torch import Tensor

Metric = Literal["dot", "distance", "angle"]

CLOSE = 5e-5  # 1 - s at a distance of .01, where the released code of the paper clamps


def angle(similarity: Tensor) -> Tensor:
    """Return arccos of ``similarity`` in radians, clamped to [0.01, pi - 0.01]."""
    return torch.arccos(similarity.clamp(-1 + CLOSE, 1 - CLOSE))


def dissimilarity(similarity: Tensor, metric: Metric) -> Tensor:
    """Return the distance of pairs with the given cosines, in the given metric.

    For a similarity of -inf, which stands for a missing negative, the distance is infinite.
    """
    if metric == "dot":
        return -similarity
    if metric == "distance":
        return (2 - 2 * similarity.clamp_max(1 - CLOSE)).sqrt()
    return torch.where(similarity == -torch.inf, torch.inf, angle(similarity))


def slope(similarity: Tensor, metric: Metric) -> Tensor:
    """Return -d dissimilarity / d similarity: 1, 1/distance or 1/sin(angle); 0 if clamped."""
    if metric == "dot":
        return torch.ones_like(similarity)
    if metric == "distance":
        steep = (2 - 2 * similarity.clamp_max(1 - CLOSE)).rsqrt()
        return steep * (similarity <= 1 - CLOSE)
    steep = (1 - similarity.clamp(-1 + CLOSE, 1 - CLOSE).square()).rsqrt()
    return steep * (similarity.abs() <= 1 - CLOSE)


def shifted(similarity: Tensor, margin: float | Tensor) -> Tensor:
    """Return cos(theta + u) for pairs at the angle theta and a margin u (Li et al. 2024, eq. 2).

    theta + u is clamped at pi, because the cosine rises again beyond pi.
    """
    if not isinstance(margin, Tensor) and margin == 0:
        return similarity
    return torch.cos((angle(similarity) + margin).clamp_max(torch.pi))

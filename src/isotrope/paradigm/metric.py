"""Three distances of unit vectors as functions of their similarity.

``dot`` is -s, ``distance`` sqrt(2 - 2s), ``angle`` arccos s in radians (Nie et al. 2023, sec. 4.2).
``distance`` and ``angle`` clamp pairs closer than .01 (s > 1 - 5e-5), and ``angle`` also pairs
within .01 of pi, because the derivatives of ``distance`` and ``angle`` by s are infinite there. For
a clamped pair the value is constant and the slope is 0.
"""

from typing import Literal

import torch
from torch import Tensor

Metric = Literal["dot", "distance", "angle"]

CLOSE = 5e-5  # 1 - s at a distance of .01, where the released code of the paper clamps


def angle(similarity: Tensor) -> Tensor:
    """Return arccos of ``similarity`` in radians, clamped within .01 of 0 and of pi."""
    return torch.arccos(similarity.clamp(-1 + CLOSE, 1 - CLOSE))


def dissimilarity(similarity: Tensor, metric: Metric) -> Tensor:
    """Return the distance of pairs with the given cosines; larger is farther.

    A similarity of -inf stands for a missing negative and is infinitely far in every metric.
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

    theta + u is clamped at pi, beyond which the cosine rises again. u = 0 changes nothing.
    """
    if not isinstance(margin, Tensor) and margin == 0:
        return similarity
    return torch.cos((angle(similarity) + margin).clamp_max(torch.pi))

"""Uniformity: how evenly embeddings cover the sphere (Wang & Isola, 2020, section 4.1.2)."""

import math

import torch
from torch import Tensor

from isotrope.core.rounding import at_least_float
from isotrope.core.views import unit


def uniformity(embeddings: Tensor, t: float = 2.0, *, block: int = 1024) -> Tensor:
    """Return log mean_{i<j} exp(-t ||h_i - h_j||^2) of unit rows h; low values mean even spread.

    Rows are processed in blocks, so memory is O(block x n).

    Args:
        embeddings: Embeddings, n x d, n >= 2, of any norm.
        t: Factor of the squared distances. Papers use 2, for example Nie et al. (2023, eq. 4).
        block: Number of rows of a block.

    Example:
        >>> import torch
        >>> round(float(uniformity(torch.eye(2))), 6)
        -4.0
    """
    n = len(embeddings)
    if n < 2:
        raise ValueError(f"give at least two embeddings for a uniformity; found {n}")
    h = unit(at_least_float(embeddings))
    parts = []
    for start in range(0, n, block):
        rows = h[start : start + block]
        exponent = 2 * t * (rows @ h[start:].T - 1)
        index = torch.arange(len(rows), device=h.device)[:, None]
        later = torch.arange(n - start, device=h.device) > index
        if later.any():
            parts.append(exponent[later].logsumexp(dim=0))
    return torch.stack(parts).logsumexp(dim=0) - math.log(n * (n - 1) / 2)

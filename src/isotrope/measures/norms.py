"""Norms of embeddings before normalisation: the gradient shrinks as the norms grow.

Source: Draganov et al., 2024, proposition 3.1.
"""

import torch
from torch import Tensor

from isotrope.core.rounding import at_least_float


def mean_norm(embeddings: Tensor) -> Tensor:
    """Return the mean Euclidean norm of the rows of ``embeddings`` (n x d)."""
    norms: Tensor = torch.linalg.vector_norm(at_least_float(embeddings), dim=1)
    return norms.mean()

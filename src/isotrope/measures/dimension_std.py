"""Mean standard deviation of the dimensions of unit vectors: the simplest sign of a collapse."""

import torch
from torch import Tensor

from isotrope.core.views import unit


def dimension_std(embeddings: Tensor) -> Tensor:
    """Return the standard deviation of each dimension of the normalised rows, averaged.

    The result is 0 if all rows point in one direction. It is at most 1/sqrt(d), if directions are
    spread evenly (Chen and He 2021, section 4.1, figure 2). The variance divides by n.

    Args:
        embeddings: Embeddings, n x d, of any length.

    Example:
        >>> import torch
        >>> float(dimension_std(torch.tensor([[3.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -1.0]])))
        0.7071067690849304
        >>> float(dimension_std(torch.tensor([[3.0, 0.0], [1.0, 0.0]])))
        0.0
    """
    if not len(embeddings):
        raise ValueError("a standard deviation needs embeddings; found 0 rows")
    h = unit(embeddings)
    return torch.std(h, dim=0, correction=0).mean()

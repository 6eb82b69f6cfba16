"""Standard deviation of unit vectors, averaged over the dimensions: low values show a collapse."""

import torch
from torch import Tensor

from isotrope.core.rounding import at_least_float
from isotrope.core.views import unit


def dimension_std(embeddings: Tensor) -> Tensor:
    """Return the mean over all dimensions of the standard deviation of the normalised rows.

    The result is 0 if all rows point in one direction. Evenly spread directions have the largest
    value, 1/sqrt(d) (Chen and He, 2021, section 4.1, figure 2). Variances are means over n rows.

    Args:
        embeddings: Embeddings, n x d, of any norm.

    Example:
        >>> import torch
        >>> float(dimension_std(torch.tensor([[3.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -1.0]])))
        0.7071067690849304
        >>> float(dimension_std(torch.tensor([[3.0, 0.0], [1.0, 0.0]])))
        0.0
    """
    if not len(embeddings):
        raise ValueError("give at least one embedding for a standard deviation; found 0 rows")
    h = unit(at_least_float(embeddings))
    return torch.std(h, dim=0, correction=0).mean()

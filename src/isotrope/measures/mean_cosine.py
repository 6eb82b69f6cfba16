"""Mean cosine: the degree to which all embeddings point in the same direction."""

from torch import Tensor

from isotrope.core.rounding import at_least_float
from isotrope.core.views import unit


def mean_cosine(embeddings: Tensor) -> Tensor:
    """Return the mean cosine over all pairs of distinct rows, exactly and in time O(n d).

    The mean is 0 for a cloud around the origin, and 1 if all rows point in one direction.
    Ethayarajh (2019) calls this mean anisotropy. It follows from the sum of all unit rows: the
    squared norm of this sum has the cosine of each pair twice, and of each row with itself once.

    Args:
        embeddings: Embeddings, n x d, n >= 2, of any norm. A zero row has cosine 0.

    Example:
        >>> import torch
        >>> float(mean_cosine(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]).double()))
        0.3333333333333333
    """
    h, n = unit(at_least_float(embeddings)), len(embeddings)
    if n < 2:
        raise ValueError(f"give at least two embeddings for a mean cosine; found {n}")
    return (h.sum(dim=0).square().sum() - h.square().sum()) / (n * (n - 1))

"""Effective rank: the number of directions over which embeddings spread."""

import math

import torch
from torch import Tensor


def effective_rank(embeddings: Tensor) -> float:
    """Return exp(-sum_k p_k log p_k) with p_k = s_k / sum_j s_j, for the singular values s.

    The mean row is subtracted first. The rank (Roy and Vetterli 2007) is 0 if all rows are equal, 1
    for rows on a line, and at most min(n - 1, d). It is NaN if a number is NaN or infinite.

    The singular values are square roots of the eigenvalues of X^T X or X X^T, whichever is smaller
    (m x m, float64). Eigenvalues below eps * m times the largest, and singular values below about
    1e-7 times the largest, count as 0.

    Args:
        embeddings: Embeddings, n x d. They are not normalised.

    Example:
        >>> import torch
        >>> round(effective_rank(torch.eye(4)), 6)
        3.0
    """
    x = embeddings.cpu().double()  # Apple's GPUs have no float64
    if not bool(x.isfinite().all()):
        return math.nan
    x = x - x.mean(dim=0)
    moment = x @ x.T if len(x) < x.shape[1] else x.T @ x
    eigenvalues = torch.linalg.eigvalsh(moment)
    noise = len(moment) * torch.finfo(moment.dtype).eps * eigenvalues[-1]
    sigma = torch.where(eigenvalues > noise, eigenvalues, 0.0).clamp_min(0).sqrt()
    p = sigma / sigma.sum()
    return float(torch.special.entr(p).sum().exp()) if sigma.any() else 0.0

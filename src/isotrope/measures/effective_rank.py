"""Effective rank: the number of directions over which embeddings spread."""

import torch
from torch import Tensor


def effective_rank(embeddings: Tensor, *, centre: bool = True) -> Tensor:
    """Return exp(-sum_k p_k log p_k), with p_k the k-th singular value divided by their sum.

    The rank is 0 if nothing varies, and 1 for a line. It is largest for an isotropic cloud: min(n,
    d), or min(n - 1, d) with centring. Source: Roy and Vetterli 2007. Without centring it is RankMe
    (Garrido et al. 2023), which an offset common to all embeddings lowers towards 1.

    Args:
        embeddings: Embeddings, n x d, which are not normalised here.
        centre: Whether to subtract the mean row first.

    Example:
        >>> import torch
        >>> round(float(effective_rank(torch.eye(4), centre=False)), 6)
        4.0
        >>> round(float(effective_rank(torch.eye(4))), 6)
        3.0
    """
    if not len(embeddings):
        raise ValueError("the effective rank needs embeddings; found 0 rows")
    x = embeddings.double()
    x = x - x.mean(dim=0) if centre else x
    return rank_of_moment(x.T @ x)


def rank_of_moment(moment: Tensor) -> Tensor:
    """Return the effective rank of rows whose X^T X (d x d, float64) is ``moment``.

    The singular values are the square roots of its eigenvalues. Eigenvalues under d * eps of the
    largest are rounding and count as 0. This drops singular values under about 1e-7 of the largest.
    """
    eigenvalues = torch.linalg.eigvalsh(moment)
    noise = len(moment) * torch.finfo(moment.dtype).eps * eigenvalues[-1]
    sigma = torch.where(eigenvalues > noise, eigenvalues, 0.0).clamp_min(0).sqrt()
    if not sigma.any():
        return sigma.sum()
    p = sigma / sigma.sum()
    rank: Tensor = torch.special.entr(p).sum().exp()
    return rank

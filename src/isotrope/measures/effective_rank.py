"""Effective rank: the number of directions over which embeddings spread."""

import torch
from torch import Tensor


def effective_rank(embeddings: Tensor, *, centre: bool = True) -> Tensor:
    """Return exp(-sum_k p_k log p_k) with p_k = s_k / sum_j s_j, for the singular values s.

    With centring, the rank (Roy and Vetterli 2007) is 0 if all rows are equal, 1 for rows on a
    line, and at most min(n - 1, d). Without centring, the rank is RankMe (Garrido et al. 2023), at
    most min(n, d). An offset common to all embeddings lowers RankMe towards 1.

    Args:
        embeddings: Embeddings, n x d. They are not normalised.
        centre: Whether to subtract the mean row first.

    Example:
        >>> import torch
        >>> round(float(effective_rank(torch.eye(4), centre=False)), 6)
        4.0
        >>> round(float(effective_rank(torch.eye(4))), 6)
        3.0
    """
    if not len(embeddings):
        raise ValueError("give at least one embedding for an effective rank; found 0 rows")
    x = embeddings.double()
    x = x - x.mean(dim=0) if centre else x
    return rank_of_moment(x.T @ x)


def rank_of_moment(moment: Tensor) -> Tensor:
    """Return the effective rank of rows X; ``moment`` is X^T X (d x d, float64).

    The singular values of X are square roots of the eigenvalues of ``moment``. Eigenvalues below
    eps * d times the largest, and singular values below about 1e-7 times the largest, count as 0.
    """
    eigenvalues = torch.linalg.eigvalsh(moment)
    noise = len(moment) * torch.finfo(moment.dtype).eps * eigenvalues[-1]
    sigma = torch.where(eigenvalues > noise, eigenvalues, 0.0).clamp_min(0).sqrt()
    if not sigma.any():
        return sigma.sum()
    p = sigma / sigma.sum()
    rank: Tensor = torch.special.entr(p).sum().exp()
    return rank

"""Second derivatives of the MIO losses by a linear projector (Manna et al. 2023, supplement 3).

z_n = psi^T h_n for the 2N rows of [view; other view], row n + N being the positive of row n, and
C_nm = z_n . z_m, the plain product that the supplement differentiates (not the cosine). With
phi and phi' the derivatives of a pair's loss and A_nm^(k) = z_n^(k) h_m + z_m^(k) h_n, the block of
columns l and k of psi is

    sum_nm ( phi'_nm A_nm^(k) A_nm^(l)T / tau^2 + [l = k] phi_nm B_nm / tau ),

B_nm = h_m h_n^T + h_n h_m^T. The supplement prints the condition on B reversed (eq. 28, 34), and
h_m h_m^T for its first term (eq. 18).
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from tests.theorems.bound import Bound

Version = Literal["v1", "v2", "v3"]


def mio_hessian(h: Tensor, psi: Tensor, temperature: float, version: Version) -> Tensor:
    """Return the Hessian of MIO by psi, in closed form (supplement eq. 19, 20, 28, 34).

    Args:
        h: 2N x p features, the second half being the other view in the same order.
        psi: p x q weights of the projector.
        temperature: tau.
        version: which of the three losses.

    Returns:
        (q p) x (q p), symmetric; the parameters go through psi column by column, as
        ``psi.T.flatten()``.

    Raises:
        ValueError: an odd number of rows or fewer than four, or an unknown version.
    """
    positive, negative = _pairs(h, version)
    z = h @ psi
    first, second = _derivatives(z @ z.T / temperature, positive, negative, temperature, version)
    p, q = psi.shape
    # sum_nm phi' A^(k) A^(l)T, n and m exchanged giving the same: two terms instead of four
    same = torch.einsum("mkl,mi,mj->kilj", torch.einsum("nm,nk,nl->mkl", second, z, z), h, h)
    zh = torch.einsum("nk,nj->nkj", z, h)
    crossed = torch.einsum("nkj,nli->kilj", zh, torch.einsum("nm,mli->nli", second, zh))
    block = 2 * h.T @ first @ h
    hessian = 2 * (same + crossed)
    hessian += torch.einsum("kl,ij->kilj", torch.eye(q, dtype=h.dtype, device=h.device), block)
    return hessian.reshape(q * p, q * p)


def hessian_norm_bound(h: Tensor, psi: Tensor, temperature: float, version: Version) -> Bound:
    """Return the Hessian's spectral norm and an explicit bound of it, at psi.

    The triangle inequality over pairs, with the exact norms of their two terms:
    sum_nm |phi_nm| (|h_n . h_m| + |h_n||h_m|) / tau + phi'_nm |A_nm|^2 / tau^2. The right side
    costs O(N^2 (p + q)), the left side a matrix of (p q)^2.

    Args:
        h: 2N x p features.
        psi: p x q weights of the projector.
        temperature: tau.
        version: which of the three losses.
    """
    positive, negative = _pairs(h, version)
    z = h @ psi
    first, second = _derivatives(z @ z.T / temperature, positive, negative, temperature, version)
    gram, products = h @ h.T, z @ z.T
    longer = torch.outer(z.square().sum(1), h.square().sum(1))
    square = longer + longer.T + 2 * gram * products  # |A_nm|^2, all columns together
    right = (first.abs() * _rank_two_norm(gram) + second * square).sum()
    return Bound(torch.linalg.matrix_norm(mio_hessian(h, psi, temperature, version), 2), right)


def mio_lipschitz(h: Tensor, radius: float, temperature: float, version: Version) -> Tensor:
    """Return a Lipschitz constant of MIO's gradient for all psi of spectral norm up to ``radius``.

    |C_nm| <= r^2 |h_n||h_m| bounds the derivatives and |A_nm| <= 2 r |h_n||h_m| their factors. It
    is what supplement 3.1.3 sets out to prove; on all of R^(p x q) there is no such constant.

    Args:
        h: 2N x p features.
        radius: r.
        temperature: tau.
        version: which of the three losses.
    """
    positive, negative = _pairs(h, version)
    lengths = torch.outer(h.norm(dim=1), h.norm(dim=1))
    largest = radius**2 * lengths / temperature
    # |phi| grows with the distance from the pair's aim, phi' is largest at 0 or there
    attracted, _ = _derivatives(
        -largest, positive, torch.zeros_like(negative), temperature, version
    )
    repelled, _ = _derivatives(largest, torch.zeros_like(positive), negative, temperature, version)
    at = largest if version == "v3" else torch.zeros_like(largest)
    _, second = _derivatives(at, positive, negative, temperature, version)
    first = attracted.abs() + repelled
    return (first * _rank_two_norm(h @ h.T) + second * (2 * radius * lengths).square()).sum()


def _pairs(h: Tensor, version: Version) -> tuple[Tensor, Tensor]:
    """Weights of positive and negative ordered pairs, 2N x 2N, each summing to 1."""
    if version not in get_args(Version):
        raise ValueError(f"version must be one of v1, v2, v3; found {version!r}")
    rows = len(h)
    if h.ndim != 2 or rows % 2 or rows < 4:
        raise ValueError(
            f"h holds two views below each other, 2N x p with N >= 2; found shape {tuple(h.shape)}"
        )
    eye = torch.eye(rows, dtype=h.dtype, device=h.device)
    positive = eye.roll(rows // 2, dims=0)
    return positive / rows, (1 - eye - positive) / (rows * (rows - 2))


def _derivatives(
    x: Tensor, positive: Tensor, negative: Tensor, temperature: float, version: Version
) -> tuple[Tensor, Tensor]:
    """The weighted phi / tau and phi' / tau^2 of every pair at x = C / tau, 2N x 2N."""
    rising, falling = torch.sigmoid(x), torch.sigmoid(-x)
    attracted, bent = (-falling, rising * falling) if version == "v1" else (-1.0, 0.0)
    if version == "v3":
        # what is no negative pair stays out of the exponential
        repelled = bending = x.where(negative > 0, 0.0).exp()
    else:
        repelled, bending = rising, rising * falling
    first = positive * attracted + negative * repelled
    second = positive * bent + negative * bending
    return first / temperature, second / temperature**2


def _rank_two_norm(gram: Tensor) -> Tensor:
    """Spectral norms of h_m h_n^T + h_n h_m^T."""
    lengths = gram.diagonal().sqrt()
    return gram.abs() + torch.outer(lengths, lengths)

"""Adversarial batches shared by the mathematical tests: raw embeddings in float64."""

import torch
from torch import Tensor

SHAPES = [(2, 2), (3, 5), (8, 3), (33, 16), (64, 48)]


def _random(n: int, d: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, d), torch.randn(n, d)


def _clustered(n: int, d: int) -> tuple[Tensor, Tensor]:
    centre = torch.randn(1, d)
    return centre + 0.1 * torch.randn(n, d), centre + 0.1 * torch.randn(n, d)


def _collapsed(n: int, d: int) -> tuple[Tensor, Tensor]:
    line = torch.randn(1, d)
    return line * (1 + torch.rand(n, 1)) + 1e-6 * torch.randn(n, d), line.repeat(n, 1)


def _antipodal(n: int, d: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, d)
    return x, -x + 1e-3 * torch.randn(n, d)


def _duplicate_rows(n: int, d: int) -> tuple[Tensor, Tensor]:
    a, b = _random(n, d)
    a[n // 2 :] = a[: n - n // 2].clone()
    b[n // 2 :] = b[: n - n // 2].clone()
    return a, b


BATCHES = {
    "random": _random,
    "clustered": _clustered,
    "collapsed": _collapsed,
    "antipodal": _antipodal,
    "duplicate rows": _duplicate_rows,
}


def batch(kind: str, n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Anchors and positives, n x d float64, not normalised."""
    torch.manual_seed(seed)
    a, b = BATCHES[kind](n, d)
    return a.double(), b.double()

"""Computes the second moments of two views, the statistics of decorrelating objectives."""

import torch
from torch import Tensor

from isotrope.core.autograd import Context, apply

__all__ = ["gram", "moments_across", "moments_within"]

_SMALL = 256  # coordinates of which the matrix costs less than two products (benchmarks/peers.py)


def gram(x: Tensor) -> Tensor:
    """Return sum_i x_i x_i^T, d x d, of the rows of ``x`` (n x d)."""
    return apply(_Gram, Tensor, x)


def moments_within(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the diagonal of X^T X, d, and the sum of the squares of all its entries.

    For few rows of ``x`` (n x d) X X^T is smaller, and its squares have the same sum.
    """
    n, d = x.shape
    if 3 * n < 2 * d and d > _SMALL:
        smaller = gram(x.T)
        return (x * x).sum(dim=0), (smaller * smaller).sum()
    product = gram(x)
    return product.diagonal(), (product * product).sum()  # square() has twice as slow a gradient


def moments_across(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the diagonal of X^T Y, d, and the sum of the squares of all its entries.

    For few rows of ``x`` and ``y`` (n x d) the products of the entries of X X^T and Y Y^T are less,
    and have the same sum.
    """
    n, d = x.shape
    if 3 * n < 2 * d and d > _SMALL:
        return (x * y).sum(dim=0), (gram(x.T) * gram(y.T)).sum()
    product = x.T @ y
    return product.diagonal(), (product * product).sum()


class _Gram(torch.autograd.Function):
    """X^T X, whose gradient X (G + G^T) is one product: autograd's own are two."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.T @ x

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return x @ (gradient + gradient.T)

    @staticmethod
    def jvp(ctx: Context, change: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        half = x.T @ change
        return half + half.T

"""Computes the second moments of two views, the statistics of decorrelating objectives."""

import torch
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.views import Views

__all__ = ["cross_moment", "gram"]


def cross_moment(views: Views) -> Tensor:
    """Return C = sum_i h_i h'_i^T / n, d x d, of the anchors and their own positives.

    Li et al., 2024, section 4.1 (the cross-correlation without batch normalisation).
    """
    return views.anchors.T @ views.own / views.anchors.shape[0]


def gram(x: Tensor) -> Tensor:
    """Return sum_i x_i x_i^T, d x d, of the rows of ``x`` (n x d)."""
    return apply(_Gram, Tensor, x)


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

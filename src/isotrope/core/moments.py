"""Computes second moments of embeddings, for objectives that decorrelate the dimensions.

The moments are a d x d matrix C. Each function is one node of autograd, and returns only the
diagonal of C and the sum of its squared entries.
"""

import torch
from torch import Tensor

from isotrope.core.autograd import Context, InputGradients, apply

_SMALL = 256  # up to this dimension, C costs less than two products (benchmarks/peers.py)


def moments_within(x: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the diagonal of C = scale X^T X (d x d), and the sum of all squared entries of C.

    The columns of ``x`` (n x d) are centred first.
    """
    if _transformed():
        x = x - x.mean(dim=0)
        return _moments(x, x, scale)
    return apply(_OwnMoments, tuple[Tensor, Tensor], x, scale)


def moments_across(x: Tensor, y: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the diagonal of C = scale X^T Y (d x d), and the sum of all squared entries of C."""
    if _transformed():
        return _moments(x, y, scale)
    return apply(_CrossMoments, tuple[Tensor, Tensor], x, y, scale)


def _transformed() -> bool:
    """Whether torch.func or forward mode is active, which the nodes below do not support."""
    return (
        torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    )


def _few(x: Tensor) -> bool:
    n, d = x.shape
    return 3 * n < 2 * d and d > _SMALL


def _moments(x: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    if _few(x):
        squares = ((x @ x.T) * (y @ y.T)).sum()
        return (x * y).sum(dim=0) * scale, squares * scale**2
    c = x.T @ y * scale
    return c.diagonal(), (c * c).sum()


def _product(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale X Y in one operation."""
    return torch.addmm(x.new_empty(()), x, y, beta=0, alpha=scale)


class _CrossMoments(torch.autograd.Function):
    """The moments of two views."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        ctx.scale = scale
        if _few(x):
            one, other = _product(x, x.T, scale), _product(y, y.T, scale)
            ctx.save_for_backward(x, y, one, other)
            return (x * y).sum(dim=0).mul_(scale), (one * other).sum()
        c = _product(x.T, y, scale)
        ctx.save_for_backward(x, y, c)
        return c.diagonal().clone(), (c * c).sum()

    @staticmethod
    def backward(ctx: Context, by_diagonal: Tensor, by_squares: Tensor) -> InputGradients:
        x, y, *products = ctx.saved_tensors
        if torch.is_grad_enabled():  # this will be differentiated again
            return *_again(ctx, x, y, (by_diagonal, by_squares)), None
        wanted, scale = ctx.needs_input_grad, ctx.scale
        if len(products) == 2:
            one, other = (z * by_squares for z in products)
            along = by_diagonal * scale
            by_x = _product(other, x, 2 * scale).addcmul_(y, along) if wanted[0] else None
            by_y = _product(one, y, 2 * scale).addcmul_(x, along) if wanted[1] else None
            return by_x, by_y, None
        half = products[0] * by_squares
        half.diagonal().add_(by_diagonal, alpha=0.5)
        return (
            _product(y, half.T, 2 * scale) if wanted[0] else None,
            _product(x, half, 2 * scale) if wanted[1] else None,
            None,
        )


class _OwnMoments(torch.autograd.Function):
    """The moments of one centred view; the mean adds no gradient, as centred columns sum to 0."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        mean = x.mean(dim=0)
        centred = x - mean
        if _few(x):
            c = _product(centred, centred.T, scale)
            diagonal = (centred * centred).sum(dim=0).mul_(scale)
        else:
            c = _product(centred.T, centred, scale)
            diagonal = c.diagonal().clone()
        # freed by the backward pass; x and its mean take less memory than a centred copy of x
        ctx.save_for_backward(x, mean, c)
        ctx.scale = scale
        return diagonal, (c * c).sum()

    @staticmethod
    def backward(ctx: Context, by_diagonal: Tensor, by_squares: Tensor) -> InputGradients:
        if torch.is_grad_enabled():
            return _again(ctx, ctx.saved_tensors[0], None, (by_diagonal, by_squares))[0], None
        x, mean, c = ctx.saved_tensors
        centred, scale = x - mean, ctx.scale
        half = c * by_squares
        if _few(x):
            by_x = _product(half, centred, 4 * scale)
            return by_x.addcmul_(centred, by_diagonal, value=2 * scale), None
        half.diagonal().add_(by_diagonal, alpha=0.5)
        return _product(centred, half, 4 * scale), None


def _again(ctx: Context, x: Tensor, y: Tensor | None, by: tuple[Tensor, ...]) -> InputGradients:
    """Return the gradients with an autograd history, for second derivatives."""
    x = x.view_as(x)  # aliases: one matrix may be both views
    if y is None:
        centred = x - x.mean(dim=0)
        return torch.autograd.grad(
            _moments(centred, centred, ctx.scale), [x], by, create_graph=True
        )
    y = y.view_as(y)
    wanted = [z for z in (x, y) if z.requires_grad]
    found = iter(torch.autograd.grad(_moments(x, y, ctx.scale), wanted, by, create_graph=True))
    return tuple(next(found) if z.requires_grad else None for z in (x, y))

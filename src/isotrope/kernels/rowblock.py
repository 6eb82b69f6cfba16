"""The rowblock backend for single statistics, in linear memory; whole losses are in fused.

A block of B anchors is compared with all its columns in one B x c matrix of similarities, which is
reduced to B numbers and discarded; one number for each anchor is kept for the backward pass. The
backward pass forms each block again and turns it, in place, into the derivative of the statistic.
The products of this derivative with the columns and with the anchors are the gradients of both. A
statistic takes 8 n c d floating-point operations, instead of 6 if the matrix is kept.

There are no second derivatives; the error of the backward pass names the eager backend.
"""

from dataclasses import replace

import torch
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.errors import NeedsEager
from isotrope.core.softplus import softplus
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mask import Mask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.tiles import Vectors, add_chosen, add_product, chunked_topk, similarity_tiles


class RowBlockPairs(Pairs):
    """Row statistics that never hold an n x c matrix.

    The matrices themselves (``similarity``, ``negative``) are still available to code that inspects
    the components of a batch.

    Args:
        views: The views.
        direction: 1 if the positives of the batch are the anchors here, else 0.
        shared: Intermediate results that both directions of the batch use.
    """

    backend = "rowblock"

    def __init__(
        self, views: Views, direction: int = 0, shared: dict[str, object] | None = None
    ) -> None:
        super().__init__(views)
        self.direction, self.shared = direction, {} if shared is None else shared

    def swapped(self) -> "RowBlockPairs":
        return type(self)(self.views.swapped(), 1 - self.direction, self.shared)

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._reduced(_LogSumExp(), temperature, against)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._reduced(_Softplus(), temperature, against)

    def _hardest(self, against: Against) -> Tensor:
        return self._reduced(_HardestNegative(), 1.0, against)

    def _nearest(self, k: int, against: Against) -> Tensor:
        mask = Mask(self.views, against)
        k = min(k, sum(len(x) for x in mask.columns))
        with torch.no_grad():
            return torch.cat([chunked_topk(tile, k)[1] for _, tile in similarity_tiles(mask)])

    def _count(self, against: Against) -> Tensor:
        return Mask(self.views, against).counts()

    def _reduced(
        self, statistic: "_Statistic", temperature: float | Tensor, against: Against
    ) -> Tensor:
        views = self.views
        learnt = temperature if isinstance(temperature, Tensor) else None
        plain = float(temperature if learnt is None else learnt.detach())
        mask = Mask(views, against)
        inputs = (views.anchors, views.positives, views.negatives, learnt)
        return apply(_Reduce, Tensor, statistic, mask, plain, *inputs)


class _Statistic:
    """One reduction of a block, and its derivative."""

    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the rows and one number per row for the derivative."""
        raise TypeError(f"{type(self).__name__} reduces nothing")

    def differentiate(self, tile: Tensor, saved: Tensor, gradient: Tensor) -> Tensor:
        """Turn a block of s / tau, in place, into the derivatives of sum_i g_i value_i."""
        raise TypeError(f"{type(self).__name__} has no derivative")


class _LogSumExp(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.logsumexp(tile, dim=1)
        return value, value

    def differentiate(self, tile: Tensor, saved: Tensor, gradient: Tensor) -> Tensor:
        some = saved > -torch.inf  # a row without negatives gives e^{-inf - -inf}, NaN
        tile.sub_(torch.where(some, saved, 0.0)[:, None]).exp_()
        return tile.mul_(torch.where(some, gradient, 0.0)[:, None])


class _Softplus(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value = softplus(tile).sum(dim=1)
        return value, value

    def differentiate(self, tile: Tensor, saved: Tensor, gradient: Tensor) -> Tensor:
        return tile.sigmoid_().mul_(gradient[:, None])


class _HardestNegative(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value, first = chunked_topk(tile, 1)
        return value.squeeze(1), first.squeeze(1)


class _Reduce(torch.autograd.Function):
    """A statistic as a function of anchors, positives, additional negatives and temperature."""

    @staticmethod
    def forward(
        ctx: Context,
        statistic: _Statistic,
        mask: Mask,
        temperature: float,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None,
        learnt: Tensor | None,
    ) -> Tensor:
        reduced = [statistic.reduce(tile) for _, tile in similarity_tiles(mask, temperature)]
        values, saved = (torch.cat(column) for column in zip(*reduced, strict=True))
        ctx.statistic, ctx.mask, ctx.temperature = statistic, mask, temperature
        ctx.save_for_backward(anchors, positives, negatives, saved)
        return values

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: a second derivative will be taken
            raise NeedsEager("the rowblock backend has no second derivatives; use backend='eager'")
        anchors, positives, negatives, saved = ctx.saved_tensors
        views = replace(ctx.mask.views, anchors=anchors, positives=positives, negatives=negatives)
        mask = replace(ctx.mask, views=views)
        grads = [
            torch.zeros_like(x) if wanted else None
            for x, wanted in zip(
                (anchors, positives, negatives), ctx.needs_input_grad[3:6], strict=True
            )
        ]
        if isinstance(ctx.statistic, _HardestNegative):
            columns = [Vectors(x, unit=True) for x in mask.columns]
            of_columns = [grads[source] for source in mask.sources]
            add_chosen(saved, gradient, anchors, columns, grads[0], of_columns)
            return (None, None, None, *grads, None)
        slope = gradient.new_zeros(()) if ctx.needs_input_grad[6] else None
        for rows, tile in similarity_tiles(mask, ctx.temperature):
            scaled = tile.clone() if slope is not None else None
            by = gradient[rows] / ctx.temperature
            change = ctx.statistic.differentiate(tile, saved[rows], by)
            if scaled is not None and slope is not None:
                slope -= (change * scaled.masked_fill_(change == 0, 0.0)).sum()
            _spread(mask, grads, rows, change)
        return (None, None, None, *grads, slope)


def _spread(mask: Mask, grads: list[Tensor | None], rows: slice, change: Tensor) -> None:
    """Add a block's gradients to those of its anchors and its columns."""
    anchors, at = mask.views.anchors[rows], 0
    for source, columns in zip(mask.sources, mask.columns, strict=True):
        part = change[:, at : at + len(columns)]
        at += len(columns)
        if (of_anchors := grads[0]) is not None:
            add_product(of_anchors[rows], part.T, columns)
        if (other := grads[source]) is not None:
            add_product(other, part, anchors)

"""Row statistics in linear memory: a block of rows at a time against all columns.

A block of B anchors meets all its columns in one B x c matrix of similarities, is reduced to B
numbers, and the matrix is gone; what is kept for the backward pass is one number for each anchor.
The backward pass forms each block again and turns it, in place, into the derivative of the
statistic, whose products with the columns and with the anchors are the gradients of both. That is
8 n c d floating-point operations for a statistic, against 6 where nothing is formed again.

There are no second derivatives: asked for one, the backward pass names the eager backend.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isotrope.core.errors import NeedsEager
from isotrope.core.softplus import softplus
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.topk import chunked_topk

__all__ = ["BLOCK_BYTES", "Layout", "RowBlockPairs", "add_product"]

BLOCK_BYTES = 1 << 24  # of one block of similarities: it stays in the cache of a core, nearly
# so narrow an addmm adds term by term to what is there: ten times the rounding of a product
_NARROW = 16
_SUMMED = 4096  # rows of a product in bfloat16 before it is added in the format of the sum
LEAST, MOST = 16, 512  # rows of a block: under 128 the products slow down, over 512 nothing gains


class RowBlockPairs(EagerPairs):
    """Row statistics that never hold an n x c matrix.

    The matrices themselves (``similarity``, ``negative``) can still be asked for, by what looks at
    the components of a batch; they are as large as they are.
    """

    backend = "rowblock"

    def __init__(self, views: Views, side: int = 0, kept: dict[object, Any] | None = None) -> None:
        super().__init__(views)
        # what both directions have in common, see kernels.pushes, and which of them this is
        self.side, self.kept = side, {} if kept is None else kept

    def swapped(self) -> "RowBlockPairs":
        return type(self)(self.views.swapped(), 1 - self.side, self.kept)

    def pushing(self) -> "RowBlockPairs":
        """Pairs of the same direction of which only the anchors move (``kernels.pushes``)."""
        from isotrope.kernels.surrogate_sums import SurrogatePairs  # made of what is here

        return SurrogatePairs(self.views, self.side, self.kept)

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._reduced(_LogSumExp(), temperature, against)

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._reduced(_Softplus(), temperature, against)

    def hardest(self, against: Against = "cross") -> Tensor:
        return self._reduced(_Hardest(), 1.0, against)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        layout = Layout(self.views, against)
        k = min(k, sum(len(x) for x in layout.columns))
        with torch.no_grad():
            return torch.cat([chunked_topk(tile, k)[1] for _, tile in layout.tiles(1.0)])

    def count(self, against: Against = "cross") -> Tensor:
        return Layout(self.views, against).counts()

    def _reduced(
        self, statistic: "_Statistic", temperature: float | Tensor, against: Against
    ) -> Tensor:
        views = self.views
        learnt = temperature if isinstance(temperature, Tensor) else None
        plain = float(temperature if learnt is None else learnt.detach())
        layout = Layout(views, against)
        found: Tensor = _Reduce.apply(  # type: ignore[no-untyped-call]
            statistic, layout, plain, views.anchors, views.positives, views.negatives, learnt
        )
        return found


@dataclass(frozen=True)
class Layout:
    """Which columns the anchors meet, block by block, and which of them are no negatives."""

    views: Views
    against: Against

    @property
    def sources(self) -> list[int]:
        """Where the columns come from, in order: 0 anchors, 1 positives, 2 further negatives."""
        found = {"cross": [1], "within": [0], "both": [1, 0]}[self.against]
        return found if self.views.negatives is None else [*found, 2]

    @property
    def columns(self) -> list[Tensor]:
        """The columns' vectors, by source."""
        views = self.views
        all_of = (views.anchors, views.positives, views.negatives)
        return [x for x in (all_of[source] for source in self.sources) if x is not None]

    def rows(self) -> Iterator[slice]:
        """Blocks of anchors of about ``BLOCK_BYTES``, at least 16 and at most 512 rows."""
        views = self.views
        width = sum(len(x) for x in self.columns)
        height = BLOCK_BYTES // max(1, width * views.anchors.element_size())
        height = min(MOST, max(LEAST, height))
        for first in range(0, len(views.anchors), height):
            yield slice(first, min(first + height, len(views.anchors)))

    def excluded(self, rows: slice) -> Tensor:
        """B x c, True where a column is no negative of the row."""
        views, device = self.views, self.views.anchors.device
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        groups, own = views.groups, None if views.groups is None else views.groups[views.rows]
        parts = []
        if self.against in ("cross", "both"):
            part = torch.arange(len(views.positives), device=device) == row + views.offset
            parts.append(part if groups is None or own is None else part | (groups == own[row]))
        if self.against in ("within", "both"):
            part = torch.arange(len(views.anchors), device=device) == row
            parts.append(part if own is None else part | (own == own[row]))
        found = torch.cat(parts, dim=1)
        if not views.in_batch:
            found = torch.ones_like(found)
        if views.negatives is not None:
            found = torch.cat([found, found.new_zeros(len(found), len(views.negatives))], dim=1)
        return found

    def counts(self) -> Tensor:
        """n, the number of negatives of each anchor, without forming what they are."""
        views = self.views
        n, dtype = len(views.anchors), torch.promote_types(views.anchors.dtype, torch.float32)
        found = torch.zeros(n, dtype=dtype, device=views.anchors.device)  # bfloat16 counts to 256
        if views.in_batch:
            kin_across = kin_inside = torch.ones_like(found)  # rows of the same group, oneself too
            if views.groups is not None:
                kin_across = _alike(views.groups)[views.rows].to(found.dtype)
                kin_inside = _alike(views.groups[views.rows]).to(found.dtype)
            if self.against in ("cross", "both"):
                found = found + len(views.positives) - kin_across
            if self.against in ("within", "both"):
                found = found + n - kin_inside
        return found if views.negatives is None else found + len(views.negatives)

    def exclude(self, tile: Tensor, rows: slice) -> None:
        """Fill what is no negative with -inf, in place."""
        views = self.views
        if views.groups is not None or not views.in_batch:
            tile.masked_fill_(self.excluded(rows), -torch.inf)
            return
        # only the diagonals: their entries are reached without a mask of the tile's size
        starts = []
        if self.against in ("cross", "both"):
            starts.append(views.offset + rows.start)
        if self.against in ("within", "both"):
            starts.append(rows.start + (len(views.positives) if self.against == "both" else 0))
        for start in starts:
            tile[:, start : start + len(tile)].fill_diagonal_(-torch.inf)

    def tiles(self, temperature: float) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with their similarities over the temperature, -inf if excluded."""
        views = self.views
        parts = self.columns
        width = sum(len(x) for x in parts)
        buffer = views.anchors.new_empty(0)
        for rows in self.rows():
            anchors = views.anchors[rows] / temperature
            if buffer.numel() < len(anchors) * width:
                buffer = anchors.new_empty(len(anchors) * width)
            tile = buffer[: len(anchors) * width].view(len(anchors), width)
            at = 0
            for part in parts:
                torch.mm(anchors, part.T, out=tile[:, at : at + len(part)])
                at += len(part)
            self.exclude(tile, rows)
            yield rows, tile


def _alike(groups: Tensor) -> Tensor:
    """How many rows have the group of each row."""
    _, place = torch.unique(groups, return_inverse=True)
    return torch.bincount(place)[place]


class _Statistic:
    """One reduction of a block, and its derivative."""

    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the rows and what the derivative needs, one number a row."""
        raise TypeError(f"{type(self).__name__} reduces nothing")

    def differentiate(self, tile: Tensor, kept: Tensor, gradient: Tensor) -> Tensor:
        """Turn a block of s / tau, in place, into the derivatives of sum_i g_i value_i by it."""
        raise TypeError(f"{type(self).__name__} has no derivative")


class _LogSumExp(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.logsumexp(tile, dim=1)
        return value, value

    def differentiate(self, tile: Tensor, kept: Tensor, gradient: Tensor) -> Tensor:
        some = kept > -torch.inf  # a row without negatives: e^{-inf - -inf} is no number
        tile.sub_(torch.where(some, kept, 0.0)[:, None]).exp_()
        return tile.mul_(torch.where(some, gradient, 0.0)[:, None])


class _Softplus(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value = softplus(tile).sum(dim=1)
        return value, value

    def differentiate(self, tile: Tensor, kept: Tensor, gradient: Tensor) -> Tensor:
        return tile.sigmoid_().mul_(gradient[:, None])


class _Hardest(_Statistic):
    def reduce(self, tile: Tensor) -> tuple[Tensor, Tensor]:
        value, first = chunked_topk(tile, 1)
        return value.squeeze(1), first.squeeze(1)


class _Reduce(torch.autograd.Function):
    """A statistic as a function of anchors, positives, further negatives and temperature."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        statistic: _Statistic,
        layout: Layout,
        temperature: float,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None,
        learnt: Tensor | None,
    ) -> Tensor:
        reduced = [statistic.reduce(tile) for _, tile in layout.tiles(temperature)]
        values, kept = (torch.cat(column) for column in zip(*reduced, strict=True))
        ctx.statistic, ctx.layout, ctx.temperature = statistic, layout, temperature
        ctx.save_for_backward(anchors, positives, negatives, kept)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if torch.is_grad_enabled():  # create_graph: somebody will differentiate this again
            raise NeedsEager(
                "the rowblock backend has no second derivatives; ask for backend='eager'"
            )
        anchors, positives, negatives, kept = ctx.saved_tensors
        views = replace(ctx.layout.views, anchors=anchors, positives=positives, negatives=negatives)
        layout = replace(ctx.layout, views=views)
        grads = [
            torch.zeros_like(x) if wanted else None
            for x, wanted in zip(
                (anchors, positives, negatives), ctx.needs_input_grad[3:6], strict=True
            )
        ]
        if isinstance(ctx.statistic, _Hardest):
            _sparse(layout, grads, kept, gradient)
            return (None, None, None, *grads, None)
        slope = gradient.new_zeros(()) if ctx.needs_input_grad[6] else None
        for rows, tile in layout.tiles(ctx.temperature):
            scaled = tile.clone() if slope is not None else None
            by = gradient[rows] / ctx.temperature
            change = ctx.statistic.differentiate(tile, kept[rows], by)
            if scaled is not None and slope is not None:
                slope -= (change * scaled.masked_fill_(change == 0, 0.0)).sum()
            _spread(layout, grads, rows, change)
        return (None, None, None, *grads, slope)


def _spread(layout: Layout, grads: list[Tensor | None], rows: slice, change: Tensor) -> None:
    """Add what a block's derivatives do to its anchors and to its columns."""
    anchors, at = layout.views.anchors[rows], 0
    for source, columns in zip(layout.sources, layout.columns, strict=True):
        part = change[:, at : at + len(columns)]
        at += len(columns)
        if (own := grads[0]) is not None:
            add_product(own[rows], part.T, columns)
        if (other := grads[source]) is not None:
            add_product(other, part, anchors)


def add_product(into: Tensor, tile: Tensor, rows: Tensor) -> None:
    """Add ``tile``^T ``rows`` to ``into``, in place; of a bfloat16 tile, a product at a time."""
    if tile.dtype != into.dtype:
        rows = rows.to(tile.dtype)
        for start in range(0, len(into), _SUMMED):
            into[start : start + _SUMMED].add_(tile[:, start : start + _SUMMED].T @ rows)
    elif into.shape[1] < _NARROW:
        into.add_(tile.T @ rows)
    else:
        into.addmm_(tile.T, rows)


def _sparse(layout: Layout, grads: list[Tensor | None], chosen: Tensor, gradient: Tensor) -> None:
    """The same where each anchor meets one column only."""
    anchors, at = layout.views.anchors, 0
    for source, columns in zip(layout.sources, layout.columns, strict=True):
        (rows,) = ((chosen >= at) & (chosen < at + len(columns))).nonzero(as_tuple=True)
        which, by = chosen[rows] - at, gradient[rows, None]
        at += len(columns)
        if (own := grads[0]) is not None:
            own.index_add_(0, rows, by * columns[which])
        if (other := grads[source]) is not None:
            other.index_add_(0, which, by * anchors[rows])

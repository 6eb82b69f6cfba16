"""The rowblock backend for single statistics, in linear memory (``fused`` computes losses).

A block of B anchors is compared with all c columns in a B x c matrix of similarities. This matrix
is reduced to B numbers and discarded. The backward pass forms each block again, which takes a third
more operations than a matrix in memory. For the hardest negative, the backward pass forms no block.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from isotrope.core.autograd import softplus
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import SurrogateSums
from isotrope.kernels.tiles import blocks, chunked_topk, height, similarity_tiles


class RowBlockPairs(Pairs):
    """Computes row statistics without an n x c matrix in memory.

    Only ``similarity`` and ``negative`` form whole matrices.

    Args:
        views: The views of the batch, in either order.
        swapped: The same pairs with the views exchanged, if these were created first.
    """

    backend = "rowblock"

    def __init__(self, views: Views, swapped: "RowBlockPairs | None" = None) -> None:
        super().__init__(views)
        self._swapped = swapped
        self.direction = 0 if swapped is None else 1  # of the batch, as in ``SurrogateSums``

    def swapped(self) -> "RowBlockPairs":
        return self._swapped or RowBlockPairs(self.views.swapped(), self)

    @cached_property
    def sums(self) -> SurrogateSums:
        """Sums over the compared vectors, which both directions of the batch share."""
        return self._swapped.sums if self._swapped else SurrogateSums(self.views.detached())

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._reduced(_logsumexp, temperature, against)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._reduced(lambda tile: softplus(tile).sum(dim=1), temperature, against)

    def hardest(self, against: Against = "cross") -> Tensor:
        (at,) = self.nearest(1, against).unbind(dim=1)
        columns = self.columns(against).index_select(0, at.clamp_min(0))
        return (self.views.anchors * columns).sum(dim=1).masked_fill(at < 0, -torch.inf)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        mask = NegativeMask(self.views, against)
        k = min(k, sum(len(x) for x in mask.columns))
        with torch.no_grad():
            return torch.cat([chunked_topk(tile, k)[1] for tile in similarity_tiles(mask)])

    def count(self, against: Against = "cross") -> Tensor:
        return NegativeMask(self.views, against).counts()

    def _reduced(
        self, reduce: Callable[[Tensor], Tensor], temperature: float | Tensor, against: Against
    ) -> Tensor:
        """Return a reduction of s / temperature over the negatives, by blocks of anchors."""
        anchors, columns = self.views.anchors, self.columns(against)
        mask = NegativeMask(self.views, against)

        def block(rows: slice, anchors: Tensor, columns: Tensor, tau: float | Tensor) -> Tensor:
            tile = (anchors / tau) @ columns.T
            mask.fill_excluded(tile, rows)
            return reduce(tile)

        parts = [
            checkpoint(
                *(block, rows, anchors[rows], columns, temperature),
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for rows in blocks(0, len(anchors), height(len(columns), anchors))
        ]
        return torch.cat(parts)


def _logsumexp(tile: Tensor) -> Tensor:
    none = tile.detach().amax(dim=1) == -torch.inf
    if not bool(none.any()):
        return torch.logsumexp(tile, dim=1)
    # a row without negatives gets zeros, or its softmax would be 0/0 in the backward pass
    return torch.logsumexp(tile.masked_fill(none[:, None], 0.0), dim=1).masked_fill(
        none, -torch.inf
    )

"""Decides, for all backends, which columns of a similarity matrix are negatives of an anchor.

A column is not a negative if it is the anchor, the anchor's positive or a row of the anchor's
group. If ``Views.in_batch`` is False, only the additional negatives are negatives.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views


class _InBatch(NamedTuple):
    """The columns that are the rows of one view of the batch."""

    width: int
    own: int  # column of anchor 0 itself, or of its positive; the next anchor has the next column
    groups: Tensor | None


@dataclass(frozen=True)
class NegativeMask:
    """The columns with which the anchors are compared, and which of them are negatives.

    Attributes:
        views: Views in the objective's space; ``views.anchors`` are the rows.
        against: Views whose rows are columns, see ``Terms.against``.
    """

    views: Views
    against: Against

    @property
    def columns(self) -> list[Tensor]:
        """The vectors that anchors are compared with: one view or both, then the negatives."""
        anchors, positives, more = self.views.anchors, self.views.positives, self.views.negatives
        in_batch = {"cross": [positives], "within": [anchors], "both": [positives, anchors]}
        return in_batch[self.against] if more is None else [*in_batch[self.against], more]

    def _in_batch(self) -> list[_InBatch]:
        """The columns without the additional negatives, none of which is ever excluded."""
        views, parts = self.views, []
        if self.against != "within":
            parts.append(_InBatch(len(views.positives), views.offset, views.groups))
        if self.against != "cross":
            parts.append(_InBatch(len(views.anchors), 0, views.own_groups))
        return parts

    def excluded(self, rows: slice, first: int = 0) -> Tensor:
        """Return B x c booleans, True where a column is not a negative of the row.

        Args:
            rows: Slice of B anchors.
            first: Number of the first column; 0 if the columns come from several sources.
        """
        views, device = self.views, self.views.anchors.device
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        parts = []
        for width, own, groups in self._in_batch():
            part = torch.arange(first, width, device=device) == row + own
            if groups is not None and views.own_groups is not None:
                part = part | (groups[first:] == views.own_groups[rows, None])  # vmap over groups
            parts.append(part)
        excluded = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        if not views.in_batch:
            excluded = torch.ones_like(excluded)
        if views.negatives is None:
            return excluded
        additional = excluded.new_zeros(len(excluded), len(views.negatives))
        return torch.cat([excluded, additional], dim=1)

    def fill_excluded(self, tile: Tensor, rows: slice, first: int = 0) -> None:
        """Set the entries of ``tile`` to -inf, in place, where the column is not a negative."""
        views = self.views
        if views.groups is not None or not views.in_batch:
            tile.masked_fill_(self.excluded(rows, first), -torch.inf)
            return
        # only diagonals are excluded, so no mask of the tile's size is needed
        start = rows.start - first
        for width, own, _ in self._in_batch():
            tile[:, start + own : start + own + len(tile)].fill_diagonal_(-torch.inf)
            start += width

    @property
    def is_diagonal(self) -> bool:
        """Whether every row i has negatives, namely all columns except column i."""
        views = self.views
        return (
            self.against != "both"
            and views.offset == 0
            and views.groups is None
            and views.negatives is None
            and views.in_batch
            and len(views.positives) > 1
            and len(views.anchors) > 1
        )

    @property
    def each_has_negatives(self) -> bool:
        """True if every anchor has a negative, whatever the groups are; otherwise False."""
        views = self.views
        if views.negatives is not None and len(views.negatives):
            return True
        alone = any(view.width < 2 for view in self._in_batch())
        return views.groups is None and views.in_batch and not alone

    def counts(self) -> Tensor:
        """Return the number of negatives of each anchor, n values, without forming the mask."""
        views = self.views
        n, dtype = len(views.anchors), torch.promote_types(views.anchors.dtype, torch.float32)
        counts = torch.zeros(n, dtype=dtype, device=views.anchors.device)  # bfloat16 counts to 256
        for width, own, groups in self._in_batch() if views.in_batch else ():
            # exclude the anchor's group, or the anchor itself
            same = 1 if groups is None else _group_sizes(groups)[own : own + n].to(dtype)
            counts = counts + (width - same)
        return counts if views.negatives is None else counts + len(views.negatives)


def _group_sizes(groups: Tensor) -> Tensor:
    _, place = torch.unique(groups, return_inverse=True)
    return torch.bincount(place)[place]

"""Arranges the matrices that each anchor is compared with, and their statistics.

An anchor's columns come from the other view (*cross*), from its own view (*within*) and from the
additional negatives (*further*), in this order. Cross: one block serves both directions, because
the rows of one direction are the columns of the other. Within: the upper triangle is enough for all
rows of a view.

A direction is 0 if the anchors of the batch are compared with their columns, and 1 if the positives
are.
"""

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.surrogate_sums import Part
from isotrope_triton.operands import RowColumnBlock, Rows, RowStatistics
from isotrope_triton.passes import reduce_block
from isotrope_triton.tiles import NONE

_PARTS_OF: dict[Against, tuple[Part, ...]] = {
    "cross": ("cross", "further"),
    "within": ("within", "further"),
    "both": ("cross", "within", "further"),
}


class DirectedBlock(NamedTuple):
    """A block to compare, and which directions its row and column statistics belong to.

    Attributes:
        block: the rows and columns.
        row_direction: the direction whose anchors are the rows, 0 or 1.
        column_direction: the direction whose anchors are the columns; None if column statistics
            are not needed.
    """

    block: RowColumnBlock
    row_direction: int
    column_direction: int | None


class ColumnSources:
    """The views in kernel format, and the blocks in which they are compared.

    Attributes:
        views: the views of the batch.
        directions: 2 if both views serve as anchors, 1 if only the anchors do.
        view_rows: the anchors and the positives in kernel format.
        negatives: the additional negatives in kernel format, None if there are none.
    """

    def __init__(self, views: Views, directions: int, *, as_is: bool = False) -> None:
        """Copy the views into kernel format (see ``Rows``).

        Args:
            views: of a batch; as many anchors as positives if there are two directions.
            directions: 1 or 2.
            as_is: use the vectors as they are instead of normalising them.
        """
        self.views, self.directions = views, directions
        self.view_rows = [
            Rows(x, groups=groups, as_is=as_is)
            for x, groups in ((views.anchors, views.own_groups), (views.positives, views.groups))
        ]
        more = views.negatives
        self.negatives = None if more is None or len(more) == 0 else Rows(more, as_is=as_is)

    def parts_of(self, against: Against) -> list[Part]:
        """Return the parts that are not empty."""
        present = {"cross": self.views.in_batch, "within": self.views.in_batch}
        present["further"] = self.negatives is not None
        return [part for part in _PARTS_OF[against] if present[part]]

    def columns_of(self, part: Part, direction: int) -> Rows:
        """Return the vectors of a part with which the anchors of a direction are compared."""
        if part == "further":
            assert self.negatives is not None
            return self.negatives
        return self.view_rows[direction if part == "within" else 1 - direction]

    def first_column(self, against: Against, part: Part, direction: int) -> int:
        """Return the index of a part's first column among all columns.

        Parts that ``parts_of`` leaves out are counted, too: ``Mask`` excludes their columns from
        the negatives, but numbers them all the same.
        """
        before = _PARTS_OF[against][: _PARTS_OF[against].index(part)]
        return sum(len(self.columns_of(x, direction)) for x in before)

    def blocks_of(self, part: Part, direction: int | None = None) -> list[DirectedBlock]:
        """Return the blocks of a part, for the anchors of one direction or of all of them."""
        if part == "cross":
            block = RowColumnBlock(self.view_rows[0], self.view_rows[1], offset=self.views.offset)
            if direction is None:
                return [DirectedBlock(block, 0, 1 if self.directions == 2 else None)]
            return [DirectedBlock(block.swapped() if direction else block, direction, None)]
        within = part == "within"
        return [
            DirectedBlock(
                RowColumnBlock(self.view_rows[k], self.columns_of(part, k), upper=within),
                k,
                k if within else None,  # additional negatives are never anchors
            )
            for k in (range(self.directions) if direction is None else [direction])
        ]

    def reduce(
        self,
        part: Part,
        kind: tl.constexpr,
        scale: float,
        *,
        direction: int | None = None,
        shifted: bool = False,
        top: bool = False,
        place: bool = False,
    ) -> dict[int, RowStatistics]:
        """Return the statistics over one part, by direction (see ``passes.reduce_block``)."""
        collected: dict[int, list[RowStatistics]] = {}
        for block, row_direction, column_direction in self.blocks_of(part, direction):
            of_rows, of_columns = reduce_block(
                block,
                kind,
                scale,
                shifted=shifted,
                top=top,
                place=place,
                columns=column_direction is not None,
            )
            collected.setdefault(row_direction, []).append(of_rows)
            if column_direction is not None and of_columns is not None:
                collected.setdefault(column_direction, []).append(of_columns)
        return {k: RowStatistics.join(x) for k, x in collected.items()}

    def join(
        self, against: Against, direction: int, by_part: dict[Part, RowStatistics]
    ) -> RowStatistics:
        """Join the statistics of a direction over all parts."""
        statistics = [
            by_part[part].counted_from(self.first_column(against, part, direction))
            for part in self.parts_of(against)
        ]
        if not statistics:
            return RowStatistics.empty(self.view_rows[direction])
        return RowStatistics.join(statistics)

    def nearest(
        self, k: int, against: Against, direction: int, hardest: Tensor | None = None
    ) -> Tensor:
        """Return the columns of each anchor's k hardest negatives, N x k, the hardest first.

        A pass keeps only the maximum of each row, so each neighbour takes a pass of its own that
        leaves out the columns found before.

        Args:
            k: at least 1.
            against: which columns.
            direction: whose anchors.
            hardest: n, the columns of the hardest, if they are already known.

        Returns:
            Column indices, ``NOWHERE`` where an anchor has fewer than k negatives.
        """
        columns = [] if hardest is None else [hardest]
        while len(columns) < k:
            taken = torch.stack(columns, dim=1) if columns else None
            by_part = {}
            for part in self.parts_of(against):
                block = self.blocks_of(part, direction)[0].block.in_both_orders()
                first = self.first_column(against, part, direction)
                by_part[part], _ = reduce_block(
                    block, NONE, 1.0, place=True, taken=None if taken is None else taken - first
                )
            place = self.join(against, direction, by_part).place
            assert place is not None
            columns.append(place)
        return torch.stack(columns, dim=1)

"""The meetings of a batch: of which parts the columns of its anchors are made, and what is found.

Columns come from the other view (*across*), from the same view (*inside*) and from the further
negatives (*further*), in this order. Across, one meeting serves both directions: the rows of the
one are the columns of the other. Inside, one triangle serves every row of a view.
"""

from typing import Literal, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.triton.operands import RowColumnBlock, Rows, RowStatistics
from isotrope.kernels.triton.passes import reduced
from isotrope.kernels.triton.tiles import NONE

__all__ = ["ColumnSources", "Part", "RowColumnPart"]

Part = Literal["across", "inside", "further"]

_OF: dict[Against, tuple[Part, ...]] = {
    "cross": ("across", "further"),
    "within": ("inside", "further"),
    "both": ("across", "inside", "further"),
}


class RowColumnPart(NamedTuple):
    """A meeting, and whose statistics it is about.

    Attributes:
        meeting: who meets whom.
        rows: the side whose anchors are the rows, 0 or 1.
        columns: the side whose anchors are the columns, None where nobody asks.
    """

    meeting: RowColumnBlock
    rows: int
    columns: int | None


class ColumnSources:
    """Views as rows, and their meetings.

    Attributes:
        views: as given.
        sides: 2 if each view serves as anchors, 1 if only the anchors do.
        both: anchors and positives.
        negatives: the further ones, if there are any.
    """

    def __init__(self, views: Views, sides: int, *, given: bool = False) -> None:
        """Copy the views (see ``Rows``).

        Args:
            views: of a batch; square if there are two sides.
            sides: 1 or 2.
            given: they go in as they are.
        """
        self.views, self.sides = views, sides
        self.both = [
            Rows(x, groups=groups, given=given)
            for x, groups in ((views.anchors, views.own_groups), (views.positives, views.groups))
        ]
        more = views.negatives
        self.negatives = None if more is None or len(more) == 0 else Rows(more, given=given)

    def of(self, against: Against) -> list[Part]:
        """The parts that there are."""
        there = {"across": self.views.in_batch, "inside": self.views.in_batch}
        there["further"] = self.negatives is not None
        return [part for part in _OF[against] if there[part]]

    def columns(self, part: Part, side: int) -> Rows:
        """The vectors that an anchor of this side meets there."""
        if part == "further":
            assert self.negatives is not None
            return self.negatives
        return self.both[side if part == "inside" else 1 - side]

    def first(self, against: Against, part: Part, side: int) -> int:
        """The number of a part's first column among all."""
        before = _OF[against][: _OF[against].index(part)]
        return sum(len(self.columns(x, side)) for x in before)

    def meetings(self, part: Part, side: int | None = None) -> list[RowColumnPart]:
        """The meetings of a part: every one, or what the anchors of one side meet."""
        sides = range(self.sides) if side is None else [side]
        if part == "across":
            a, p, offset = *self.both, self.views.offset
            if side is None:
                return [
                    RowColumnPart(
                        RowColumnBlock(a, p, offset=offset), 0, 1 if self.sides == 2 else None
                    )
                ]
            meeting = RowColumnBlock(a, p, offset=offset)
            return [RowColumnPart(meeting if side == 0 else meeting.swapped(), side, None)]
        found = []
        for k in sides:
            rows, columns = self.both[k], self.columns(part, k)
            inside = part == "inside"
            found.append(
                RowColumnPart(RowColumnBlock(rows, columns, upper=inside), k, k if inside else None)
            )
        return found

    def reduced(
        self,
        part: Part,
        kind: tl.constexpr,
        scale: float,
        *,
        side: int | None = None,
        shifted: bool = False,
        top: bool = False,
        place: bool = False,
    ) -> dict[int, RowStatistics]:
        """What the anchors of each side, or of one, found in a part (``triton.passes``)."""
        found: dict[int, list[RowStatistics]] = {}
        for meeting, rows, columns in self.meetings(part, side):
            own, theirs = reduced(
                meeting,
                kind,
                scale,
                shifted=shifted,
                top=top,
                place=place,
                columns=columns is not None,
            )
            found.setdefault(rows, []).append(own)
            if columns is not None and theirs is not None:
                found.setdefault(columns, []).append(theirs)
        return {k: RowStatistics.joined(x) for k, x in found.items()}

    def joined(
        self, against: Against, side: int, found: dict[Part, RowStatistics]
    ) -> RowStatistics:
        """What the anchors of a side found in all parts."""
        parts = [
            found[part].counted_from(self.first(against, part, side)) for part in self.of(against)
        ]
        return RowStatistics.joined(parts) if parts else RowStatistics.nothing(self.both[side])

    def nearest(self, k: int, against: Against, side: int, known: Tensor | None = None) -> Tensor:
        """N x k, the columns of the k hardest negatives, the hardest first; ``NOWHERE`` if none.

        Args:
            k: at least 1.
            against: which columns.
            side: whose anchors.
            known: n, the hardest, if somebody knows.
        """
        found = [] if known is None else [known]
        while len(found) < k:
            taken = torch.stack(found, dim=1) if found else None
            parts = {}
            for part in self.of(against):
                meeting = self.meetings(part, side)[0].meeting.whole()
                gone = None if taken is None else taken - self.first(against, part, side)
                parts[part], _ = reduced(meeting, NONE, 1.0, place=True, taken=gone)
            place = self.joined(against, side, parts).place
            assert place is not None
            found.append(place)
        return torch.stack(found, dim=1)

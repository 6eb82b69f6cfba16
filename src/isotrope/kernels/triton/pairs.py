"""The triton backend where statistics are asked one by one, and where only anchors move.

A formula that is not fused (it asks for more than statistics) gets each of them from a meeting,
with a gradient of its own; surrogates out of components get the masses and pushes of both
directions that ``kernels.surrogate_sums`` gets from blocks of rows. There are no second
derivatives.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.autograd import Context
from isotrope.core.errors import NeedsEager
from isotrope.core.terms import AGAINST, Against, By
from isotrope.core.views import Views
from isotrope.kernels.job import LN2
from isotrope.kernels.mask import Mask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import Exponent, Masses, SurrogatePairs, SurrogateSums, Swept
from isotrope.kernels.triton.operands import (
    NOWHERE,
    Factors,
    RowColumnBlock,
    Rows,
    RowStatistics,
    finite,
)
from isotrope.kernels.triton.parts import ColumnSources, Part
from isotrope.kernels.triton.passes import reduced, spread
from isotrope.kernels.triton.tiles import EXP, NONE, POWER, SOFTPLUS

__all__ = ["TritonPairs", "TritonSums", "surrogate_pairs"]


class TritonPairs(Pairs):
    """Row statistics from tiles that stay on the GPU's cores.

    Attributes:
        side: 1 if the positives of the batch are the anchors here, 0 if the anchors are.
        shared: what both directions of the batch have in common.
        raw: the views before they were normalised, if in bfloat16.
    """

    backend = "triton"

    def __init__(
        self,
        views: Views,
        side: int = 0,
        shared: dict[str, object] | None = None,
        raw: Views | None = None,
    ) -> None:
        super().__init__(views)
        self.side, self.shared, self.raw = side, {} if shared is None else shared, raw

    def swapped(self) -> "TritonPairs":
        raw = None if self.raw is None else self.raw.swapped()
        return type(self)(self.views.swapped(), 1 - self.side, self.shared, raw)

    @property
    def parts(self) -> ColumnSources:
        """The columns of both directions, made once."""
        if "parts" not in self.shared:
            given = self.views.detached() if self.raw is None else self.raw
            square = len(given.anchors) == len(given.positives)
            given = given if self.side == 0 else given.swapped()
            self.shared["parts"] = ColumnSources(given, 2 if square else 1, given=self.raw is None)
        return cast("ColumnSources", self.shared["parts"])

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._summed(EXP, temperature, against)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._summed(SOFTPLUS, temperature, against)

    def _count(self, against: Against) -> Tensor:
        return Mask(self.views, against).counts()

    def _summed(self, kind: tl.constexpr, temperature: float | Tensor, against: Against) -> Tensor:
        views = self.views
        learnt = temperature if isinstance(temperature, Tensor) else None
        plain = float(temperature if learnt is None else learnt.detach())
        found: Tensor = _Summed.apply(  # type: ignore[no-untyped-call]
            _Asked(self.parts, self.side, kind, plain, against),
            views.anchors,
            views.positives,
            views.negatives,
            learnt,
        )
        return found

    def _nearest(self, k: int, against: Against) -> Tensor:
        width = sum(len(x) for x in Mask(self.views, against).columns)
        found = self.parts.nearest(min(k, width), against, self.side)
        return found.masked_fill(found == NOWHERE, -1).long()

    def _hardest(self, against: Against) -> Tensor:
        """The gradient goes through the columns that were found; the choice is constant."""
        at = self.nearest(1, against).squeeze(1)
        columns = self.columns(against)
        values = (self.views.anchors * columns[at.clamp_min(0)]).sum(dim=1)
        # a maximum would not tell that a column is none of numbers
        values = values + 0 * columns.detach().sum()
        return values.masked_fill(at < 0, -torch.inf)


class _Asked(NamedTuple):
    """A sum, and where it is formed.

    Attributes:
        parts: the meetings.
        side: whose anchors, 0 or 1.
        kind: what is summed.
        temperature: of it.
        against: over which columns.
    """

    parts: ColumnSources
    side: int
    kind: tl.constexpr
    temperature: float
    against: Against

    @property
    def scale(self) -> float:
        return 1 / (self.temperature * LN2)

    def found(self) -> dict[Part, RowStatistics]:
        """What the anchors find, by part; exponentials with a maximum of their own."""
        parts, side, shifted = self.parts, self.side, self.kind is EXP
        return {
            part: parts.reduced(part, self.kind, self.scale, side=side, shifted=shifted)[side]
            for part in parts.of(self.against)
        }

    def value(self, found: RowStatistics) -> Tensor:
        """The statistic."""
        assert found.mass is not None
        return (found.mass.log2() + found.tops) * LN2 if self.kind is EXP else found.mass


class _Summed(torch.autograd.Function):
    """A sum of each row as a function of anchors, positives, further negatives and temperature."""

    @staticmethod
    def forward(ctx: Context, asked: _Asked, *inputs: Tensor | None) -> Tensor:
        ctx.asked, ctx.found = asked, asked.found()
        ctx.whole = asked.parts.joined(asked.against, asked.side, ctx.found)
        return asked.value(ctx.whole)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: somebody will differentiate this again
            raise NeedsEager(
                "the triton backend has no second derivatives; ask for backend='eager'"
            )
        asked: _Asked = ctx.asked
        parts, side, tau = asked.parts, asked.side, asked.temperature
        every = [parts.both[side], parts.both[1 - side], parts.negatives]
        sums = {id(x): x.zeros() for x in every if x is not None}
        for part, found in ctx.found.items():
            factors = found.factors(gradient / tau, ctx.whole, of_logarithm=asked.kind is EXP)
            for meeting, _, columns in parts.meetings(part, side):
                into = [sums[id(x)] for x in (meeting.rows, meeting.columns)]
                theirs = None if columns is None else factors
                spread(meeting, asked.kind, asked.scale, factors, theirs, *into)
        slope = None
        if ctx.needs_input_grad[4]:  # each pair is found along its row and along its column
            along = [(sums[id(x)] * x.numbers(slice(None))).sum() for x in every if x is not None]
            slope = -torch.stack(along).sum() / (2 * tau)
        wanted = ctx.needs_input_grad[1:4]
        grads = [
            x.by_unit(sums[id(x)]) if x is not None and want else None
            for x, want in zip(every, wanted, strict=True)
        ]
        return None, *grads, slope


def surrogate_pairs(pairs: TritonPairs) -> SurrogatePairs:
    """Return pairs of the same direction of which only the anchors move."""
    if "sums" not in pairs.shared:
        views = pairs.views.detached()
        views = views.swapped() if pairs.side else views
        pairs.shared["sums"] = TritonSums(views, pairs.parts, given=pairs.raw is None)
    return SurrogatePairs(pairs, cast("TritonSums", pairs.shared["sums"]), pairs.side)


class TritonSums(SurrogateSums):
    """The sums of both directions from tiles.

    Args:
        views: unit views, without history, as side 0 has them.
        parts: the columns of both directions.
        given: the columns are the unit views, not raw ones.
    """

    def __init__(self, views: Views, parts: ColumnSources, *, given: bool) -> None:
        super().__init__(views)
        self.parts, self.given = parts, given

    def _first(self, side: int, by: By) -> tuple[Tensor, Tensor]:
        statistics = self._statistics(side, by, NONE, 1.0, place=True)
        assert statistics.place is not None
        at = statistics.place.masked_fill(statistics.place == NOWHERE, -1)
        return at.long(), statistics.tops

    def _sweep(self, part: Part, exponent: Exponent | None, crossed: bool | None) -> Swept:
        kind, scale = _kind(exponent)
        similar = kind is not POWER  # exponents are similarities
        found = self.parts.reduced(part, kind, scale, top=similar)
        both = self.parts.both
        hardest = [found[k].tops / scale for k in (0, 1)] if similar else None
        if exponent is None:
            return Swept(hardest)
        mass = [cast("Tensor", found[k].mass) for k in (0, 1)]
        if crossed is None:
            return Swept(hardest, mass)
        other = crossed and part == "inside"  # the other view pushes and is pushed
        sums, one = [x.zeros() for x in both], Factors(torch.ones_like(both[0].reciprocal))
        for meeting, rows, columns in self.parts.meetings(part):
            moved = (both[1 - rows],) * 2 if other else None
            into = None if columns is None else sums[columns]
            spread(replace(meeting, moved=moved), kind, scale, one, None, sums[rows], into)
        push = [both[1 - k if other else k].by_unit(sums[k]) for k in (0, 1)]
        return Swept(hardest, mass, push)

    def _one_way(self, side: int, by: By, exponent: Exponent) -> Masses:
        kind, scale = _kind(exponent)
        found = self._statistics(side, by, kind, scale, shifted=True)
        assert found.mass is not None
        rows = self.parts.both[side] if by != "positives" else self._own(side)
        sums, one = rows.zeros(), Factors(torch.ones_like(found.mass), finite(found.tops))
        for _, meeting in self._meetings(side, by):
            spread(meeting, kind, scale, one, None, sums, None)
        return Masses(found.tops * LN2, found.mass, rows.by_unit(sums))

    def _statistics(
        self,
        side: int,
        by: By,
        kind: tl.constexpr,
        scale: float,
        *,
        shifted: bool = False,
        place: bool = False,
    ) -> RowStatistics:
        """The statistics of the anchors of a side, where ``by`` is compared."""
        found = [
            reduced(meeting, kind, scale, shifted=shifted, place=place)[0].counted_from(first)
            for first, meeting in self._meetings(side, by)
        ]
        return (
            RowStatistics.joined(found) if found else RowStatistics.nothing(self.parts.both[side])
        )

    def _meetings(self, side: int, by: By) -> Iterator[tuple[int, RowColumnBlock]]:
        """The anchors of this direction with each part of their columns, and the first's number."""
        parts, against, own = self.parts, AGAINST[by], self._own(side)
        for part in parts.of(against):
            first = parts.first(against, part, side)
            meeting = parts.meetings(part, side)[0].meeting.whole()
            if by == "positives":  # compared; what pushes is what pushes the anchors
                moved = (own, meeting.columns)
                columns = own if part == "inside" else meeting.columns
                meeting = replace(meeting, rows=own, columns=columns, moved=moved)
            yield first, meeting

    def _own(self, side: int) -> Rows:
        """The positives of the anchors."""
        parts = self.parts
        if parts.sides == 2:
            return parts.both[1 - side]
        return self._positives

    @cached_property
    def _positives(self) -> Rows:
        views = self.parts.views
        return Rows(views.own, groups=views.own_groups, given=self.given)


def _kind(exponent: Exponent | None) -> tuple[tl.constexpr, float]:
    """What is summed of similarities, and the exponent of one of 1."""
    if exponent is None:
        return NONE, 1.0
    if exponent.power is not None:
        return POWER, exponent.power
    return EXP, 1 / (exponent.temperature * LN2)

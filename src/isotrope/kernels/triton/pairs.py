"""The triton backend where statistics are asked one by one, and where only anchors move.

A formula that is not fused (it asks for more than statistics) gets each of them from a meeting,
with a gradient of its own; surrogates out of components get the masses and pushes of both
directions from the meetings that ``kernels.pushes`` makes of blocks of rows. There are no second
derivatives.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.errors import NeedsEager
from isotrope.core.terms import AGAINST, Against, By
from isotrope.core.views import Views
from isotrope.kernels.job import LN2
from isotrope.kernels.mask import Mask
from isotrope.kernels.rowblock import RowBlockPairs
from isotrope.kernels.surrogate_sums import Exponent, Masses, SurrogatePairs
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

__all__ = ["TritonPairs", "TritonSurrogatePairs"]


class TritonPairs(RowBlockPairs):
    """Row statistics from tiles that stay on the GPU's cores.

    Attributes:
        raw: the views before they were normalised, if in bfloat16.
    """

    backend = "triton"

    def __init__(
        self,
        views: Views,
        side: int = 0,
        kept: dict[object, Any] | None = None,
        raw: Views | None = None,
    ) -> None:
        super().__init__(views, side, kept)
        self.raw = raw

    def of(self, views: Views) -> "TritonPairs":
        return type(self)(views)

    def swapped(self) -> "TritonPairs":
        raw = None if self.raw is None else self.raw.swapped()
        return type(self)(self.views.swapped(), 1 - self.side, self.kept, raw)

    def pushing(self) -> "TritonSurrogatePairs":
        return TritonSurrogatePairs(self.views, self.side, self.kept, self.raw)

    @property
    def parts(self) -> ColumnSources:
        """The meetings of both directions, made once."""
        if "parts" not in self.kept:
            given = self.views.detached() if self.raw is None else self.raw
            square = len(given.anchors) == len(given.positives)
            given = given if self.side == 0 else given.swapped()
            self.kept["parts"] = ColumnSources(given, 2 if square else 1, given=self.raw is None)
        return cast("ColumnSources", self.kept["parts"])

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._summed(EXP, temperature, against)

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._summed(SOFTPLUS, temperature, against)

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

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        width = sum(len(x) for x in Mask(self.views, against).columns)
        found = self.parts.nearest(min(k, width), against, self.side)
        return found.masked_fill(found == NOWHERE, -1).long()

    def hardest(self, against: Against = "cross") -> Tensor:
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
    def forward(ctx: Any, asked: _Asked, *inputs: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.asked, ctx.found = asked, asked.found()
        ctx.whole = asked.parts.joined(asked.against, asked.side, ctx.found)
        return asked.value(ctx.whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
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


class TritonSurrogatePairs(SurrogatePairs, TritonPairs):
    """The same where only anchors move, for both directions at once."""

    def __init__(
        self,
        views: Views,
        side: int = 0,
        kept: dict[object, Any] | None = None,
        raw: Views | None = None,
    ) -> None:
        super().__init__(views, side, kept)
        self.raw = raw

    def first(self, by: By) -> tuple[Tensor, Tensor]:
        key = ("first", by, self.side)
        if key not in self.kept:
            found = self._found_by(by, NONE, 1.0, place=True)
            assert found.place is not None
            at = found.place.masked_fill(found.place == NOWHERE, -1)
            self.kept[key] = (at.long(), found.tops)
        at, top = self.kept[key]
        return at, top

    def _sweep(
        self, part: Part, exponent: Exponent | None = None, crossed: bool | None = None
    ) -> None:
        kind, scale = _kind(exponent)
        similar = kind is not POWER  # exponents are similarities
        found = self.parts.reduced(part, kind, scale, top=similar)
        both = self.parts.both
        if similar:
            self.kept["hardest", part] = [found[k].tops / scale for k in (0, 1)]
        if exponent is None:
            return
        self.kept["mass", part, exponent] = [found[k].mass for k in (0, 1)]
        if crossed is None:
            return
        other = crossed and part == "inside"  # the other view pushes and is pushed
        sums, one = [x.zeros() for x in both], Factors(torch.ones_like(both[0].reciprocal))
        for meeting, rows, columns in self.parts.meetings(part):
            moved = (both[1 - rows],) * 2 if other else None
            into = None if columns is None else sums[columns]
            spread(replace(meeting, moved=moved), kind, scale, one, None, sums[rows], into)
        self.kept["push", part, exponent, crossed] = [
            both[1 - k if other else k].by_unit(sums[k]) for k in (0, 1)
        ]

    def _one_way(self, by: By, exponent: Exponent) -> Masses:
        kind, scale = _kind(exponent)
        found = self._found_by(by, kind, scale, shifted=True)
        assert found.mass is not None
        rows = self.parts.both[self.side] if by != "positives" else self._own
        sums, one = rows.zeros(), Factors(torch.ones_like(found.mass), finite(found.tops))
        for _, meeting in self._meetings(by):
            spread(meeting, kind, scale, one, None, sums, None)
        return Masses(found.tops * LN2, found.mass, rows.by_unit(sums))

    def _found_by(
        self,
        by: By,
        kind: tl.constexpr,
        scale: float,
        *,
        shifted: bool = False,
        place: bool = False,
    ) -> RowStatistics:
        """What the anchors of this direction find, where ``by`` is compared."""
        found = [
            reduced(meeting, kind, scale, shifted=shifted, place=place)[0].counted_from(first)
            for first, meeting in self._meetings(by)
        ]
        return (
            RowStatistics.joined(found)
            if found
            else RowStatistics.nothing(self.parts.both[self.side])
        )

    def _meetings(self, by: By) -> Iterator[tuple[int, RowColumnBlock]]:
        """The anchors of this direction with each part of their columns, and the first's number."""
        parts, against, side = self.parts, AGAINST[by], self.side
        for part in parts.of(against):
            first = parts.first(against, part, side)
            meeting = parts.meetings(part, side)[0].meeting.whole()
            if by == "positives":  # compared; what pushes is what pushes the anchors
                moved = (self._own, meeting.columns)
                columns = self._own if part == "inside" else meeting.columns
                meeting = replace(meeting, rows=self._own, columns=columns, moved=moved)
            yield first, meeting

    @property
    def _own(self) -> Rows:
        """The positives of the anchors."""
        parts = self.parts
        if parts.sides == 2:
            return parts.both[1 - self.side]
        if "own" not in self.kept:
            own = parts.views
            groups = own.own_groups
            self.kept["own"] = Rows(own.own, groups=groups, given=self.raw is None)
        return cast("Rows", self.kept["own"])


def _kind(exponent: Exponent | None) -> tuple[tl.constexpr, float]:
    """What is summed of similarities, and the exponent of one of 1."""
    if exponent is None:
        return NONE, 1.0
    if exponent.power is not None:
        return POWER, exponent.power
    return EXP, 1 / (exponent.temperature * LN2)

"""Computes single row statistics on a GPU, and surrogates in which only anchors move.

A formula that is not fused (it needs more than statistics) gets each statistic separately, with a
gradient of its own; surrogates made of components get the masses and pushes of both directions that
``kernels.surrogate_sums`` computes from blocks of rows. There are no second derivatives.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.errors import NeedsEager
from isotrope.core.terms import AGAINST, Against, By
from isotrope.core.views import Views
from isotrope.kernels.job import LN2
from isotrope.kernels.mask import Mask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import (
    Exponent,
    Masses,
    Part,
    SurrogatePairs,
    SurrogateSums,
    Swept,
)
from isotrope_triton.operands import (
    NOWHERE,
    Factors,
    RowColumnBlock,
    Rows,
    RowStatistics,
    finite,
)
from isotrope_triton.parts import ColumnSources
from isotrope_triton.passes import reduce_block, spread
from isotrope_triton.tiles import EXP, NONE, POWER, SOFTPLUS


class TritonPairs(Pairs):
    """Row statistics from tiles that stay on the GPU's cores.

    Attributes:
        direction: 1 if the positives of the batch are the anchors here, 0 if the anchors are.
        shared: what both directions of the batch have in common.
        raw: the views before they were normalised, if in bfloat16.
    """

    backend = "triton"

    def __init__(
        self,
        views: Views,
        direction: int = 0,
        shared: dict[str, object] | None = None,
        raw: Views | None = None,
    ) -> None:
        super().__init__(views)
        self.direction, self.shared, self.raw = direction, {} if shared is None else shared, raw

    def swapped(self) -> "TritonPairs":
        raw = None if self.raw is None else self.raw.swapped()
        return type(self)(self.views.swapped(), 1 - self.direction, self.shared, raw)

    @property
    def parts(self) -> ColumnSources:
        """The views in kernel format, made once for both directions."""
        if "parts" not in self.shared:
            views = self.views.detached() if self.raw is None else self.raw
            square = len(views.anchors) == len(views.positives)
            views = views if self.direction == 0 else views.swapped()
            self.shared["parts"] = ColumnSources(views, 2 if square else 1, as_is=self.raw is None)
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
        question = _Question(self.parts, self.direction, kind, plain, against)
        inputs = (views.anchors, views.positives, views.negatives, learnt)
        return apply(_Summed, Tensor, question, *inputs)

    def _nearest(self, k: int, against: Against) -> Tensor:
        width = sum(len(x) for x in Mask(self.views, against).columns)
        columns = self.parts.nearest(min(k, width), against, self.direction)
        return columns.masked_fill(columns == NOWHERE, -1).long()

    def _hardest(self, against: Against) -> Tensor:
        """The gradient goes through the columns that were found; the choice is constant."""
        at = self.nearest(1, against).squeeze(1)
        columns = self.columns(against)
        values = (self.views.anchors * columns[at.clamp_min(0)]).sum(dim=1)
        # a maximum would not tell that a column is none of numbers
        values = values + 0 * columns.detach().sum()
        return values.masked_fill(at < 0, -torch.inf)


class _Question(NamedTuple):
    """A sum, and where it is formed.

    Attributes:
        parts: the views in kernel format, and the blocks in which they are compared.
        direction: whose anchors, 0 or 1.
        kind: the summed function.
        temperature: its temperature.
        against: the columns of the sum.
    """

    parts: ColumnSources
    direction: int
    kind: tl.constexpr
    temperature: float
    against: Against

    @property
    def scale(self) -> float:
        return 1 / (self.temperature * LN2)

    def statistics(self) -> dict[Part, RowStatistics]:
        """Return the anchors' statistics by part; exponentials are in units of their maximum."""
        parts, direction, shifted = self.parts, self.direction, self.kind is EXP
        return {
            part: parts.reduce(part, self.kind, self.scale, direction=direction, shifted=shifted)[
                direction
            ]
            for part in parts.parts_of(self.against)
        }

    def value(self, statistics: RowStatistics) -> Tensor:
        """The statistic."""
        assert statistics.mass is not None
        return (
            (statistics.mass.log2() + statistics.tops) * LN2
            if self.kind is EXP
            else statistics.mass
        )


class _Summed(torch.autograd.Function):
    """Sum of each row, a function of anchors, positives, additional negatives and temperature."""

    @staticmethod
    def forward(ctx: Context, question: _Question, *inputs: Tensor | None) -> Tensor:
        ctx.question, ctx.statistics = question, question.statistics()
        ctx.whole = question.parts.join(question.against, question.direction, ctx.statistics)
        return question.value(ctx.whole)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: this will be differentiated again
            raise NeedsEager("use backend='eager': the triton backend has no second derivatives")
        question: _Question = ctx.question
        parts, direction, tau = question.parts, question.direction, question.temperature
        matrices = [parts.view_rows[direction], parts.view_rows[1 - direction], parts.negatives]
        sums = {id(x): x.zeros() for x in matrices if x is not None}
        for part, statistics in ctx.statistics.items():
            factors = statistics.factors(
                gradient / tau, ctx.whole, of_logarithm=question.kind is EXP
            )
            for block, _, columns in parts.blocks_of(part, direction):
                into = [sums[id(x)] for x in (block.rows, block.columns)]
                column_factors = None if columns is None else factors
                spread(block, question.kind, question.scale, factors, column_factors, *into)
        slope = None
        if ctx.needs_input_grad[4]:  # each pair is found along its row and along its column
            along = [
                (sums[id(x)] * x.numbers(slice(None))).sum() for x in matrices if x is not None
            ]
            slope = -torch.stack(along).sum() / (2 * tau)
        wanted = ctx.needs_input_grad[1:4]
        grads = [
            x.by_unit(sums[id(x)]) if x is not None and need else None
            for x, need in zip(matrices, wanted, strict=True)
        ]
        return None, *grads, slope


def surrogate_pairs(pairs: TritonPairs) -> SurrogatePairs:
    """Return pairs of the same direction of which only the anchors move."""
    if "sums" not in pairs.shared:
        views = pairs.views.detached()
        views = views.swapped() if pairs.direction else views
        pairs.shared["sums"] = TritonSums(views, pairs.parts, as_is=pairs.raw is None)
    return SurrogatePairs(pairs, cast("TritonSums", pairs.shared["sums"]), pairs.direction)


class TritonSums(SurrogateSums):
    """The sums of both directions from tiles.

    Args:
        views: unit views, without history, as direction 0 has them.
        parts: the columns of both directions.
        as_is: whether the columns are the unit views instead of the raw ones.
    """

    def __init__(self, views: Views, parts: ColumnSources, *, as_is: bool) -> None:
        super().__init__(views)
        self.parts, self.as_is = parts, as_is

    def _first(self, direction: int, by: By) -> tuple[Tensor, Tensor]:
        statistics = self._statistics(direction, by, NONE, 1.0, place=True)
        assert statistics.place is not None
        at = statistics.place.masked_fill(statistics.place == NOWHERE, -1)
        return at.long(), statistics.tops

    def _sweep(self, part: Part, exponent: Exponent | None, crossed: bool | None) -> Swept:
        kind, scale = _kind(exponent)
        similar = kind is not POWER  # exponents are similarities
        statistics = self.parts.reduce(part, kind, scale, top=similar)
        both = self.parts.view_rows
        hardest = [statistics[k].tops / scale for k in (0, 1)] if similar else None
        if exponent is None:
            return Swept(hardest)
        mass = [cast("Tensor", statistics[k].mass) for k in (0, 1)]
        if crossed is None:
            return Swept(hardest, mass)
        other = crossed and part == "within"  # the other view pushes and is pushed
        sums, ones = [x.zeros() for x in both], Factors(torch.ones_like(both[0].reciprocal))
        for block, rows, columns in self.parts.blocks_of(part):
            moved = (both[1 - rows],) * 2 if other else None
            into = None if columns is None else sums[columns]
            spread(replace(block, moved=moved), kind, scale, ones, None, sums[rows], into)
        push = [both[1 - k if other else k].by_unit(sums[k]) for k in (0, 1)]
        return Swept(hardest, mass, push)

    def _one_way(self, direction: int, by: By, exponent: Exponent) -> Masses:
        kind, scale = _kind(exponent)
        statistics = self._statistics(direction, by, kind, scale, shifted=True)
        assert statistics.mass is not None
        rows = self.parts.view_rows[direction] if by != "positives" else self._own(direction)
        sums, ones = (
            rows.zeros(),
            Factors(torch.ones_like(statistics.mass), finite(statistics.tops)),
        )
        for _, block in self._blocks_of(direction, by):
            spread(block, kind, scale, ones, None, sums, None)
        return Masses(statistics.tops * LN2, statistics.mass, rows.by_unit(sums))

    def _statistics(
        self,
        direction: int,
        by: By,
        kind: tl.constexpr,
        scale: float,
        *,
        shifted: bool = False,
        place: bool = False,
    ) -> RowStatistics:
        """Return the statistics of a direction's anchors when ``by`` is compared."""
        by_part = [
            reduce_block(block, kind, scale, shifted=shifted, place=place)[0].counted_from(first)
            for first, block in self._blocks_of(direction, by)
        ]
        return (
            RowStatistics.join(by_part)
            if by_part
            else RowStatistics.empty(self.parts.view_rows[direction])
        )

    def _blocks_of(self, direction: int, by: By) -> Iterator[tuple[int, RowColumnBlock]]:
        """Yield the blocks of a direction's anchors, each with the index of its first column."""
        parts, against, own = self.parts, AGAINST[by], self._own(direction)
        for part in parts.parts_of(against):
            first = parts.first_column(against, part, direction)
            block = parts.blocks_of(part, direction)[0].block.in_both_orders()
            if by == "positives":  # compared; what pushes is what pushes the anchors
                moved = (own, block.columns)
                columns = own if part == "within" else block.columns
                block = replace(block, rows=own, columns=columns, moved=moved)
            yield first, block

    def _own(self, direction: int) -> Rows:
        """Return the positives of the anchors."""
        parts = self.parts
        if parts.directions == 2:
            return parts.view_rows[1 - direction]
        return self._positives

    @cached_property
    def _positives(self) -> Rows:
        views = self.parts.views
        return Rows(views.own, groups=views.own_groups, as_is=self.as_is)


def _kind(exponent: Exponent | None) -> tuple[tl.constexpr, float]:
    """Return the summed function and its scale (see ``passes.reduce_block``)."""
    if exponent is None:
        return NONE, 1.0
    if exponent.power is not None:
        return POWER, exponent.power
    return EXP, 1 / (exponent.temperature * LN2)

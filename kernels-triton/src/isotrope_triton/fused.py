"""Computes an objective's value and gradients from blocks of its views, on a GPU.

``passes.reduce_block`` computes every statistic that the formula needs, for every row of either
direction; the formula is called on them once for each direction and differentiated; ``spread``
turns its derivatives into gradients. Rows may be coupled in any way, because all statistics are
known between the passes.

- *Exponential and pointwise* weights (InfoNCE, DCL, NT-Xent, uniformity, MIO): both passes. What
  rows and columns weigh is added in the tile, so both directions cost what one does.
- *Hardest* (triplets): the first pass finds value and place, the gradient is of one column a row.
- *Mixtures*: the two nearest columns are found by one more pass each; only the anchor moves.
- The temperature's derivative, sum_ij W_ij s_ij, is half of what all sums have along their vectors:
  each pair is counted at its row and at its column.

Gradients of raw embeddings: what a unit vector received, without what lies along it, over the norm.
"""

import functools
from collections.abc import Iterator

import torch
import triton.language as tl
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.kernels.job import LN2, UNSHIFTED, Gradients, Job
from isotrope.kernels.mixtures import Mixing, Mixture
from isotrope.kernels.statistics import Key, Kind
from isotrope.kernels.surrogate_sums import Part
from isotrope.kernels.tiles import blocks
from isotrope_triton.operands import NOWHERE, PASSED, Factors, Rows, RowStatistics
from isotrope_triton.parts import ColumnSources
from isotrope_triton.passes import spread
from isotrope_triton.tiles import EXP, NONE, SOFTPLUS

_SUMMED: dict[Kind, tl.constexpr] = {"logsumexp": EXP, "softplus": SOFTPLUS}


def value_and_gradients(
    job: Job, *, directions: int, wanted: tuple[bool, ...]
) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula.

    Args:
        job: raw views, a formula and the statistics that it needs.
        directions: 2 if the value is the mean of both directions, 1 if only the anchors serve as
            anchors.
        wanted: whether the gradients of anchors, positives and additional negatives are needed.
    """
    run = _Fused(job, directions)
    run.collect()
    value = run.evaluate()
    if not any(wanted) and job.learnt is None:
        return value, [None, None, None, None]
    run.spread(wanted)
    return value, run.finish(wanted)


class _Fused:
    """The statistics, the derivatives by them, and the sums of gradients, one after the other.

    Attributes:
        parts: the views in kernel format, and the blocks in which they are compared.
        kinds: of sums that the formula uses.
        scale: the exponent (of 2) of a similarity of 1.
        shifted: exponents leave the format of sums.
        positive: similarities of the positives.
        statistics: by kind and part, for each direction.
        by: for each direction and question, the derivative by the answer.
        by_positive: the derivative by ``positive``.
        learnt: the derivative by the temperature; None where it is not wanted.
        sums: of anchors, positives and additional negatives, see ``passes.spread``.
    """

    def __init__(self, job: Job, directions: int) -> None:
        views = job.views if directions == 1 else job.views.swapped().swapped()  # complains, or not
        self.job, self.directions, self.n = job, directions, len(views.anchors)
        self.parts = ColumnSources(views, directions)
        self.kinds = [kind for kind in _SUMMED if kind in job.questions.kinds]
        self.scale = 1 / (job.temperature * LN2) if self.kinds else 1.0
        self.shifted = 1 / job.temperature > UNSHIFTED
        a, p = self.parts.view_rows
        self.own = slice(views.offset, views.offset + self.n)
        self.positive = torch.empty_like(a.reciprocal)
        for rows, partners in self._pairs():
            self.positive[rows] = (a.numbers(rows) * p.numbers(partners)).sum(dim=1)
        self.positive *= a.exact * p.exact[self.own]
        self.statistics: dict[tuple[Kind, Part], dict[int, RowStatistics]] = {}
        self.by: list[dict[Key, Tensor]] = []
        self.by_positive = torch.zeros_like(self.positive)
        self.learnt = None if job.learnt is None else torch.zeros_like(job.learnt)
        self.mixtures: list[list[tuple[slice, Mixture]]] = []
        self.sums: list[Tensor | None] = []

    def collect(self) -> None:
        """Compute the statistics of every part (the first pass)."""
        questions = self.job.questions
        chosen = {against for kind, against in questions.temperatures if kind not in _SUMMED}
        places = {part for against in chosen for part in self.parts.parts_of(against)}
        for kind in self.kinds:
            spans = [against for k, against in questions.temperatures if k == kind]
            for part in dict.fromkeys(p for against in spans for p in self.parts.parts_of(against)):
                place = part in places and ("hardest", part) not in self.statistics
                statistics = self.parts.reduce(
                    part, _SUMMED[kind], self.scale, shifted=self._shifted(kind), place=place
                )
                self.statistics[kind, part] = statistics
                if place:
                    self.statistics["hardest", part] = statistics
        for part in places:
            if ("hardest", part) not in self.statistics:
                self.statistics["hardest", part] = self.parts.reduce(
                    part, NONE, self.scale, place=True
                )
        if questions.mixing is not None:
            self.mixtures = [
                self._mixtures(questions.mixing, direction) for direction in range(self.directions)
            ]

    def _shifted(self, kind: Kind) -> bool:
        return self.shifted and kind == "logsumexp"

    def _join(self, kind: Kind, against: Against, direction: int) -> RowStatistics:
        by_part = {
            part: self.statistics[kind, part][direction] for part in self.parts.parts_of(against)
        }
        return self.parts.join(against, direction, by_part)

    def evaluate(self) -> Tensor:
        """Call the formula for each direction and keep its derivatives; return the value."""
        counts, loss = self.job.counts(), self.positive.new_zeros((), dtype=torch.float64)
        for direction in range(self.directions):
            answers = {key: self._answer(key, direction) for key in self.job.questions.temperatures}
            evaluated = self.job.evaluate(self.positive, answers, counts, self.n)
            value, (by_positive, *by), learnt = evaluated
            loss += value.sum() / self.directions
            self.by_positive += by_positive / self.directions
            self.by.append({key: g / self.directions for key, g in zip(answers, by, strict=True)})
            if self.learnt is not None and learnt is not None:
                self.learnt += learnt / self.directions
        return loss.to(self.positive.dtype)

    def _answer(self, key: Key, direction: int) -> Tensor:
        kind, against = key
        if kind == "mixed":
            anchors = self.parts.view_rows[direction]
            tau = self.job.temperature
            return torch.cat([x.logits(anchors.unit(r), tau) for r, x in self.mixtures[direction]])
        statistics = self._join(kind, against, direction)
        if kind == "hardest":
            return statistics.tops / self.scale + self._no_numbers(against, direction)
        assert statistics.mass is not None
        if kind == "softplus":
            return statistics.mass
        return (
            (statistics.mass.log2() + statistics.tops) * LN2
            if statistics.shifted
            else statistics.mass.log()
        )

    def _no_numbers(self, against: Against, direction: int) -> Tensor:
        """Return 0, or NaN if a vector is not finite: a maximum would hide it."""
        zeros: Tensor = 0 * self.parts.view_rows[direction].reciprocal
        for part in self.parts.parts_of(against):
            zeros = zeros + 0 * self.parts.columns_of(part, direction).reciprocal.sum()
        return zeros

    def _factors(self, kind: Kind, part: Part, direction: int) -> Factors:
        """Return the factors of the rows of a direction in one part."""
        factor, shift = torch.zeros_like(self.positive), None
        statistics = self.statistics[kind, part][direction]
        for (k, against), by in self.by[direction].items():
            if k == kind and part in self.parts.parts_of(against):
                share, shift = statistics.factors(
                    by / self.job.temperature,
                    self._join(kind, against, direction),
                    of_logarithm=kind == "logsumexp",
                )
                factor += share
        return Factors(factor, shift)

    def spread(self, wanted: tuple[bool, ...]) -> None:
        """Sum the gradients (the second pass), then add those of single pairs."""
        parts = self.parts
        matrices = [*parts.view_rows, parts.negatives]
        needed = wanted if self.learnt is None else (True, True, True)
        self.sums = [
            x.zeros() if x is not None and need else None
            for x, need in zip(matrices, needed, strict=True)
        ]
        for kind, part in self.statistics:
            if kind not in _SUMMED:
                continue
            factors = [self._factors(kind, part, direction) for direction in range(self.directions)]
            for block, direction, other in parts.blocks_of(part):
                spread(
                    block,
                    _SUMMED[kind],
                    self.scale,
                    factors[direction],
                    None if other is None else factors[other],
                    self._sum_of(block.rows),
                    self._sum_of(block.columns),
                )
        self._by_temperature()
        anchors, positives = parts.view_rows
        for rows, partners in self._pairs():
            self._pair(anchors, rows, positives, partners, self.by_positive[rows])
        for direction in range(self.directions):
            for (kind, against), by in self.by[direction].items():
                if kind == "hardest":
                    self._hardest(against, direction, by)
                elif kind == "mixed":
                    self._mixed(direction, by)

    def _sum_of(self, x: Rows) -> Tensor | None:
        matrices = [*self.parts.view_rows, self.parts.negatives]
        return next(into for y, into in zip(matrices, self.sums, strict=True) if y is x)

    def _pairs(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of anchors and of their positives."""
        for rows in blocks(0, self.n, PASSED):
            yield rows, slice(self.own.start + rows.start, self.own.start + rows.stop)

    def _by_temperature(self) -> None:
        """sum_ij W_ij s_ij: each pair is found along its row and along its column."""
        if self.learnt is None or not self.job.by_temperature:
            return
        matrices, along = [*self.parts.view_rows, self.parts.negatives], self.positive.new_zeros(())
        for x, into in zip(matrices, self.sums, strict=True):
            for rows in blocks(0, 0 if x is None else len(x), PASSED):
                assert x is not None
                assert into is not None  # a learnt temperature wants all sums
                along += (into[rows] * x.numbers(rows)).sum()
        self.learnt -= along / (2 * self.job.temperature)

    def _pair(self, x: Rows, rows: slice, y: Rows, columns: slice | Tensor, by: Tensor) -> None:
        """Add the gradient of one similarity of each of some rows."""
        by = (by * x.exact[rows] * y.exact[columns]).to(by.dtype)[:, None]
        into, other = self._sum_of(x), self._sum_of(y)
        if into is not None:
            into[rows].addcmul_(by, y.numbers(columns))
        if other is None:
            return
        if isinstance(columns, slice):
            other[columns].addcmul_(by, x.numbers(rows))
        else:
            other.index_add_(0, columns, by * x.numbers(rows))

    def _hardest(self, against: Against, direction: int, by: Tensor) -> None:
        """Add the gradient of the hardest similarity: one column for each row."""
        place = self._join("hardest", against, direction).place
        assert place is not None
        x = self.parts.view_rows[direction]
        for part in self.parts.parts_of(against):
            y = self.parts.columns_of(part, direction)
            at = place - self.parts.first_column(against, part, direction)
            there = (at >= 0) & (at < len(y)) & (place != NOWHERE)
            at, share = at.clamp(0, len(y) - 1), by.where(there, 0.0)
            for rows in blocks(0, len(x), PASSED):
                self._pair(x, rows, y, at[rows], share[rows])

    def _mixtures(self, mixing: Mixing, direction: int) -> list[tuple[slice, Mixture]]:
        """Return the mixtures of a direction's anchors, block by block."""
        parts = self.parts
        views = parts.views if direction == 0 else parts.views.swapped()
        first, mixtures = self._join("hardest", "cross", direction).place, []
        two = mixing.of == "second and hardest"
        nearest = parts.nearest(2 if two else 1, "cross", direction, first)
        nearest = nearest.masked_fill(nearest == NOWHERE, -1).long()
        for rows in blocks(0, self.n, PASSED):
            columns = mixing.columns(views, rows, functools.partial(_first, nearest[rows]))
            mixtures.append(
                (rows, mixing.mixture(columns, self._units(direction, columns.clamp_min(0))))
            )
        return mixtures

    def _units(self, direction: int, columns: Tensor) -> Tensor:
        """Return unit vectors of the other view's columns, then of the additional negatives."""
        wanted, y, more = (
            columns.flatten(),
            self.parts.view_rows[1 - direction],
            self.parts.negatives,
        )
        vectors = y.unit(wanted.clamp_max(len(y) - 1))
        if more is not None:
            beyond = more.unit((wanted - len(y)).clamp_min(0))
            vectors = beyond.where((wanted >= len(y))[:, None], vectors)
        return vectors.view(*columns.shape, -1)

    def _mixed(self, direction: int, by: Tensor) -> None:
        """Add the gradients of similarities to mixtures, which are constant: only anchors move."""
        x = self.parts.view_rows[direction]
        into = self._sum_of(x)
        for rows, mixture in self.mixtures[direction]:
            pushed = (by[rows] / self.job.temperature)[:, None] * mixture.vectors
            if self.learnt is not None and self.job.by_temperature:
                self.learnt -= (pushed * x.unit(rows)).sum() / self.job.temperature
            if into is not None:
                into[rows] += x.reciprocal[rows, None] * pushed

    def finish(self, wanted: tuple[bool, ...]) -> Gradients:
        """Turn sums into gradients of raw embeddings."""
        matrices, gradients = [*self.parts.view_rows, self.parts.negatives], list[Tensor | None]()
        for x, into, need in zip(matrices, self.sums, wanted, strict=True):
            gradients.append(
                x.by_raw(into) if need and x is not None and into is not None else None
            )
        if wanted[2] and self.job.views.negatives is not None and gradients[2] is None:
            gradients[2] = torch.zeros_like(self.job.views.negatives)  # there are none of them
        return [*gradients, self.learnt]


def _first(nearest: Tensor, k: int) -> Tensor:
    """Return the k hardest negatives, like ``Pairs.nearest``."""
    return nearest[:, :k]

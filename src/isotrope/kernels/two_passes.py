"""Two passes over blocks of rows, where rows are coupled or both views are anchors.

The first pass sums e^{s/tau} or log(1 + e^{s/tau}) over the negatives of every row, the formula is
called and differentiated, and the second forms the blocks again to spread the derivatives.
8 n^2 d floating-point operations for similarities across the views; a view against itself is
symmetric, so only its upper triangle is formed, 4 n^2 d.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.kernels.asked import Key, Known, Unfused
from isotrope.kernels.rowblock import Layout, add_product
from isotrope.kernels.sweeps import LN2, Gradients, Job, Tiles, Vectors, blocks, total

__all__ = ["two_passes"]

_MOST = 37.5  # 1 / tau up to which sums of e^{s/tau} and their inverses are float32 numbers


def two_passes(job: Job, *, sides: int) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula of the whole batch.

    Args:
        job: of two views of one batch.
        sides: 2 if the value is the mean of both directions, 1 if only the anchors are anchors.
    """
    passes = _TwoPasses(job, sides)
    passes.collect()
    value = passes.evaluate()
    return value, passes.spread()


def check(job: Job) -> None:
    """Raise ``Unfused`` where two passes are not for this job."""
    views = job.views
    if job.asked.kinds not in ({"logsumexp"}, {"softplus"}):
        raise Unfused("two passes collect sums of one function")
    if len(views.anchors) != len(views.positives) or views.negatives is not None:
        raise Unfused("two passes compare two views of one batch")
    if 1 / job.temperature > _MOST:
        raise Unfused("so low a temperature needs a maximum for each row")


class _TwoPasses:
    """The sums of every row, the derivatives by them, and the gradients, one after the other.

    Attributes:
        both: anchors and positives; a side is one of them as anchors.
        across: whether a side meets the other.
        inside: whether a side meets itself.
        sums: over the negatives of each row, across and inside, by side.
        factors: derivatives of the value by s, as factors of the slope of what is summed.
        by_positive: derivatives by the similarities of the positives.
    """

    def __init__(self, job: Job, sides: int) -> None:
        self.job, self.sides, self.n = job, sides, len(job.views.anchors)
        self.dtype = job.views.anchors.dtype
        spans = {against for _, against in job.asked.temperatures}
        self.across = bool(spans & {"cross", "both"})
        self.inside = bool(spans & {"within", "both"})
        views = job.views
        self.both = (
            job.columns(views.anchors, views.positives)
            if self.inside
            else [Vectors(views.anchors), *job.columns(views.positives)]
        )
        self.tiles = Tiles(self.both[1].data, self.n)
        self.softplus = job.asked.kinds == {"softplus"}
        zero = job.views.anchors.new_zeros(self.n)
        self.sums = {where: [zero.clone(), zero.clone()] for where in ("cross", "within")}
        self.factors = {where: [zero.clone(), zero.clone()] for where in ("cross", "within")}
        self.by_positive = zero
        self.learnt = None if job.learnt is None else torch.zeros_like(job.learnt)

    def collect(self) -> None:
        """The first pass: sum over the negatives of every row."""
        for rows, _, tile in self._across():
            self._summands(tile)
            self.sums["cross"][0][rows] += total(tile, 1, self.dtype)
            if self.sides == 2:
                self.sums["cross"][1] += total(tile, 0, self.dtype)
        for side in range(self.sides):
            for rows, _, tile in self._triangle(side):
                self._summands(tile)
                sums = self.sums["within"][side]
                sums[rows] += total(tile, 1, self.dtype)
                sums[rows.stop :] += total(tile[:, len(tile) :], 0, self.dtype)

    def evaluate(self) -> Tensor:
        """Call the formula for each side and keep its derivatives; return the value."""
        anchors, positives = self.both
        positive = torch.empty_like(self.by_positive)
        for rows in blocks(0, self.n, 2048):
            positive[rows] = (anchors.rows(rows) * positives.rows(rows)).sum(dim=1)
        counts = self.job.counts()
        loss = positive.new_zeros((), dtype=torch.float64)
        for side in range(self.sides):
            cross, within = self.sums["cross"][side], self.sums["within"][side]
            sums: dict[Against, Tensor] = {"cross": cross, "within": within, "both": cross + within}
            values: dict[Key, Tensor] = {
                key: sums[key[1]].clone() if self.softplus else sums[key[1]].log()
                for key in self.job.asked.temperatures
            }
            known = Known(positive.clone(), values, counts)
            value, (by_positive, *by), by_temperature = self.job.evaluate(known, self.n)
            loss += value / self.sides
            self.by_positive += by_positive / self.sides
            if self.learnt is not None and by_temperature is not None:
                self.learnt += by_temperature / self.sides
            for (_, against), gradient in zip(values, by, strict=True):
                self._keep(side, against, gradient, sums[against])
        return loss.to(positive.dtype)

    def _keep(self, side: int, against: Against, gradient: Tensor, mass: Tensor) -> None:
        if not self.softplus:  # of a logarithm
            gradient = torch.where(mass > 0, gradient / mass.where(mass > 0, 1.0), 0.0)
        for where in ("cross", "within"):
            if against in (where, "both"):
                self.factors[where][side] += gradient / (self.job.temperature * self.sides)

    def spread(self) -> Gradients:
        """The second pass: what the derivatives do to all embeddings."""
        gradients = [torch.zeros_like(x.raw) for x in self.both]
        for rows, a, tile in self._across():
            own, other = self.factors["cross"]
            _scale(self._slope(tile), own[rows], other)
            add_product(gradients[1], tile, a)
            pushed = self.both[1].push(tile)
            gradients[0][rows] += pushed
            self._by_temperature(pushed, a)
        for side in range(self.sides):
            for rows, a, tile in self._triangle(side):
                factors = self.factors["within"][side]
                _scale(self._slope(tile), factors[rows], factors[rows.start :])
                # the square on the diagonal holds both orders of its pairs
                add_product(gradients[side][rows.stop :], tile[:, len(tile) :], a)
                if self.learnt is not None:
                    square = tile[:, : len(tile)].to(self.dtype)
                    self._by_temperature(square @ a / -2, a)
                pushed = self.both[side].push(tile, rows.start)
                gradients[side][rows] += pushed
                self._by_temperature(pushed, a)
        for rows in blocks(0, self.n, 2048):
            by = self.by_positive[rows, None]
            gradients[0][rows] += by * self.both[1].rows(rows)
            gradients[1][rows] += by * self.both[0].rows(rows)
        for x, gradient in zip(self.both, gradients, strict=True):
            x.by_raw(gradient)
        return [*gradients, None, self.learnt]

    def _summands(self, tile: Tensor) -> Tensor:
        return tile.div_(LN2).exp2_().log1p_() if self.softplus else tile.exp2_()

    def _slope(self, tile: Tensor) -> Tensor:
        return tile.sigmoid_() if self.softplus else tile.exp2_()

    def _by_temperature(self, pushed: Tensor, anchors: Tensor) -> None:
        """sum_ij W_ij s_ij is what the push has along the anchors."""
        if self.learnt is not None:
            self.learnt -= (pushed * anchors).sum() / self.job.temperature

    def _across(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield rows, unit anchors and the exponents of each block of anchors against positives."""
        layout = Layout(self.job.views, "cross")
        for rows in blocks(0, self.n if self.across else 0, self.tiles.height):
            a = self.both[0].rows(rows)
            tile = self.tiles.empty(len(a), self.n)
            self.both[1].against(self.job.exponents(a), tile)
            layout.exclude(tile, rows)
            yield rows, a, tile

    def _triangle(self, side: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the same of a view against itself, from the block's own first column on."""
        view, groups = self.both[side], self.job.views.groups
        for rows in blocks(0, self.n if self.inside else 0, self.tiles.height):
            a = view.rows(rows)
            tile = self.tiles.empty(len(a), self.n - rows.start)
            view.against(self.job.exponents(a), tile, rows.start)
            tile.fill_diagonal_(-torch.inf)
            if groups is not None:
                tile.masked_fill_(groups[rows, None] == groups[rows.start :], -torch.inf)
            yield rows, a, tile


def _scale(tile: Tensor, rows: Tensor, columns: Tensor) -> None:
    """Multiply a block by the sums of its rows' and its columns' factors, in place."""
    rows, columns = rows.to(tile.dtype), columns.to(tile.dtype)
    for part in blocks(0, len(tile), 64):  # no second block for the sums
        tile[part].mul_(torch.add(rows[part, None], columns))

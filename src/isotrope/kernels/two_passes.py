"""Computes value and gradients in two passes, for anchors that depend on each other.

The first pass sums e^{s/tau} or log(1 + e^{s/tau}) over the negatives of every row, for similarity
s and temperature tau. Then the formula is evaluated and differentiated. The second pass forms the
blocks again and multiplies them by the derivatives. For two views of n rows and d dimensions, both
passes together take 8 n^2 d operations. If the loss is linear in the sums, as for MIO, the
derivatives with respect to the sums are known, and one pass is enough (6 n^2 d operations).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from isotrope.core.rounding import exact
from isotrope.core.terms import Against
from isotrope.kernels.coupling import confirm
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pass_input import Evaluated, Gradients, PassInput
from isotrope.kernels.statistics import Key
from isotrope.kernels.tiles import Tiles, Vectors, add_product, blocks, strips

_COMPARED: tuple[Against, ...] = ("cross", "within")  # "both" is the sum of the two
_MOST = 37.5  # largest 1 / tau with which sums of e^{s/tau} and their inverses fit float32


def two_passes(inputs: PassInput, *, directions: int) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula of the whole batch.

    Args:
        inputs: Views, formula and statistics, for which :func:`takes` is true.
        directions: 2 if the positives are anchors too, else 1.

    Raises:
        WrongCoupling, Unfused: The value is not linear in the sums, as declared (``confirm``).
    """
    passes = _TwoPasses(inputs, directions)
    if inputs.coupling == "linear":
        passes.predict()
        gradients = passes.spread(adding=True)
        value = passes.evaluate()
        passes.check_predicted()
    else:
        passes.collect()
        value = passes.evaluate()
        gradients = passes.spread()
    return value, passes.finish(gradients)


def takes(inputs: PassInput) -> bool:
    """Return whether two passes can compute the loss: one statistic, two views of n rows."""
    views, temperatures = inputs.views, set(inputs.questions.temperatures.values())
    if inputs.questions.kinds not in ({"logsumexp"}, {"softplus"}) or len(temperatures) > 1:
        return False
    has_two_views = len(views.anchors) == len(views.positives) and views.negatives is None
    return has_two_views and 1 / inputs.temperature <= _MOST  # no overflow of the exponentials


class _TwoPasses:
    """Computes the sums of every row, the derivatives by these sums, and the gradients.

    Attributes:
        directions: 2 if the positives are anchors too, else 1.
        sides: Anchors and positives; each direction takes one of them as anchors.
        cross: Whether each view is compared with the other.
        within: Whether each view is compared with itself.
        softplus: Whether sums of log(1 + e^{s/tau}) are taken, not of e^{s/tau}.
        positive: Similarities of the positives.
        sums: Sums over the negatives of each row, cross and within, by direction.
        factors: Derivatives of the value by the sums, divided by tau; cross, within, by direction.
        predicted: The same factors, predicted before the sums are known.
        by_positive: Derivatives by the similarities of the positives.
        by_learnt: Derivative by the learnt number; None without one.
        along: Sum_ij W_ij s_ij, for the gradient of the temperature.
    """

    def __init__(self, inputs: PassInput, directions: int) -> None:
        self.inputs, self.directions, self.n = inputs, directions, len(inputs.views.anchors)
        self.dtype = inputs.views.anchors.dtype
        against = inputs.questions.against
        self.cross = bool(against & {"cross", "both"})
        self.within = bool(against & {"within", "both"})
        views = inputs.views
        self.sides = (
            inputs.columns(views.anchors, views.positives)
            if self.within
            else [Vectors(views.anchors), *inputs.columns(views.positives)]
        )
        self.tiles = Tiles()
        self.softplus = inputs.questions.kinds == {"softplus"}
        anchors, positives = self.sides
        self.positive = views.anchors.new_empty(self.n)
        for rows in blocks(0, self.n, 2048):
            self.positive[rows] = (anchors.rows(rows) * positives.rows(rows)).sum(dim=1)
        self.counts, self.by_positive = inputs.counts(), torch.zeros_like(self.positive)
        learnt = inputs.learnt
        self.by_learnt = None if learnt is None else self.positive.new_zeros(learnt.shape)
        self.along = self.positive.new_zeros(())
        self.sums, self.factors = self._filled(0.0), self._filled(0.0)
        self.predicted = self.factors

    def _filled(self, value: float) -> dict[Against, list[Tensor]]:
        """Return a number for each row, cross and within, by direction."""
        return {x: [torch.full_like(self.positive, value) for _ in range(2)] for x in _COMPARED}

    def predict(self) -> None:
        """Predict the derivatives for the row sums: evaluate the formula at sums of 1."""
        self.sums = self._filled(1.0)
        by = self._evaluate(0).by  # both directions have the same positives, counts and sums
        for direction in range(self.directions):
            self._add_factors(direction, by)
        self.predicted, self.sums = self.factors, self._filled(0.0)

    def check_predicted(self) -> None:
        """Compare the predicted derivatives with those at the computed sums."""
        for where, sums in self.sums.items():
            for direction in range(self.directions):
                some = sums[direction] > 0  # without negatives there is no sum to differentiate by
                predicted, true = (
                    x[where][direction].where(some, 0.0) for x in (self.predicted, self.factors)
                )
                confirm(predicted, true, "its value is not linear in the sums over the negatives")

    def collect(self) -> None:
        """Run the first pass: sum over the negatives of every row."""
        for rows, _, tile in self._cross_blocks():
            self._weigh(tile, self._summed(rows))
        for direction in range(self.directions):
            for rows, _, tile in self._within_blocks(direction):
                self._weigh(tile, self._summed(rows, direction))

    def evaluate(self) -> Tensor:
        """Call the formula for each direction and keep its derivatives; return the value."""
        self.factors = self._filled(0.0)
        loss = exact(self.positive.new_zeros(()))
        for direction in range(self.directions):
            result = self._evaluate(direction)
            loss += result.value.sum() / self.directions
            self.by_positive += result.by_positive / self.directions
            if self.by_learnt is not None and result.by_learnt is not None:
                self.by_learnt += result.by_learnt / self.directions
            self._add_factors(direction, result.by)
        return loss.to(self.dtype)

    def _evaluate(self, direction: int) -> Evaluated:
        values = {
            key: sums if self.softplus else sums.log()
            for key, sums in self._sums_used(direction).items()
        }
        return self.inputs.evaluate(self.positive, values, self.counts, self.n)

    def _sums_used(self, direction: int) -> dict[Key, Tensor]:
        """A dict from each question to the sums of which its statistic is a function."""
        cross, within = self.sums["cross"][direction], self.sums["within"][direction]
        sums: dict[Against, Tensor] = {"cross": cross, "within": within, "both": cross + within}
        return {key: sums[key[1]] for key in self.inputs.questions.temperatures}

    def _add_factors(self, direction: int, by: dict[Key, Tensor]) -> None:
        """Convert derivatives by statistics to derivatives by sums, and add them to ``factors``."""
        for (kind, against), mass in self._sums_used(direction).items():
            gradient = by[kind, against]
            if not self.softplus:  # derivative of a logarithm
                gradient = torch.where(mass > 0, gradient / mass.where(mass > 0, 1.0), 0.0)
            for where in _COMPARED:
                if against in (where, "both"):
                    self.factors[where][direction] += gradient / (
                        self.inputs.temperature * self.directions
                    )

    def spread(self, *, adding: bool = False) -> list[Tensor]:
        """Run the last pass and return the gradients of all unit vectors.

        Args:
            adding: Whether to add up the sums as well, with the predicted factors.
        """
        gradients = [torch.zeros_like(x.raw) for x in self.sides]
        for rows, a, tile in self._cross_blocks():
            own, other = self.factors["cross"]
            self._weigh(tile, self._summed(rows) if adding else None, (own[rows], other))
            add_product(gradients[1], tile, a)
            pushed = self.sides[1].combine(tile)
            gradients[0][rows] += pushed
            self._add_along(pushed, a)
        for direction in range(self.directions):
            factors = self.factors["within"][direction]
            for rows, a, tile in self._within_blocks(direction):
                summed = self._summed(rows, direction) if adding else None
                self._weigh(tile, summed, (factors[rows], factors[rows.start :]))
                # the square on the diagonal holds both orders of its pairs
                add_product(gradients[direction][rows.stop :], tile[:, len(tile) :], a)
                if self.inputs.learns_temperature:
                    square = tile[:, : len(tile)].to(self.dtype)
                    self._add_along(square @ a / -2, a)  # the square counts each pair twice
                pushed = self.sides[direction].combine(tile, rows.start)
                gradients[direction][rows] += pushed
                self._add_along(pushed, a)
        return gradients

    def finish(self, gradients: list[Tensor]) -> Gradients:
        """Add the positive pairs' gradients; convert each gradient to that of the raw vector."""
        for rows in blocks(0, self.n, 2048):
            by = self.by_positive[rows, None]
            gradients[0][rows] += by * self.sides[1].rows(rows)
            gradients[1][rows] += by * self.sides[0].rows(rows)
        for x, gradient in zip(self.sides, gradients, strict=True):
            x.to_raw(gradient)
        if self.by_learnt is not None and self.inputs.learns_temperature:
            self.by_learnt -= self.along / self.inputs.temperature
        return [*gradients, None, self.by_learnt]  # None: there are no additional negatives

    def _summed(self, rows: slice, direction: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the sums that a block adds to: those of its rows, and of its last columns.

        These are, within a view, the columns after the square on the diagonal, which has both
        orders of its pairs; across views, all columns or, with one direction, none.
        """
        if direction is not None:
            sums = self.sums["within"][direction]
            return sums[rows], sums[rows.stop :]
        own, other = self.sums["cross"]
        return own[rows], other if self.directions == 2 else other[:0]

    def _weigh(
        self,
        tile: Tensor,
        sums: tuple[Tensor, Tensor] | None,
        factors: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Apply e^x or log(1 + e^x) to exponents, add it to ``sums``, and form weights, in place.

        The first pass has only ``sums`` and the second only ``factors``; a single pass has both. A
        weight is a slope times the sum of the factors of row and column.
        """
        for part in strips(tile):
            x = tile[part].exp2_()
            if sums is not None:
                y = x.to(self.dtype).log1p() if self.softplus else x.to(self.dtype)
                sums[0][part] += y.sum(dim=1)
                sums[1].add_(y[:, y.shape[1] - len(sums[1]) :].sum(dim=0))
            if factors is not None:
                if self.softplus:
                    x.div_(x + 1)  # e^s / (1 + e^s), the sigmoid, is the slope of softplus
                own, other = (f.to(x.dtype) for f in factors)
                x.mul_(torch.add(own[part, None], other))

    def _add_along(self, pushed: Tensor, anchors: Tensor) -> None:
        if self.inputs.learns_temperature:
            self.along += (pushed * anchors).sum()

    def _cross_blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield rows, unit anchors and the exponents of each block of anchors against positives."""
        if not self.cross:
            return iter(())
        anchors, positives = self.sides
        mask = NegativeMask(self.inputs.views, "cross")
        return self.tiles.of(anchors, [positives], mask, self.inputs.exponents)

    def _within_blocks(self, direction: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Like ``_cross_blocks``, for a view and itself; columns begin at the block's first row."""
        if not self.within:
            return iter(())
        view, mask = self.sides[direction], NegativeMask(self.inputs.views, "within")
        return self.tiles.of(view, [view], mask, self.inputs.exponents, triangle=True)

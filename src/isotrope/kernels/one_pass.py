"""Computes value and gradients in one pass over blocks of rows.

A block of rows is compared with all columns and reduced to statistics. The formula is evaluated and
differentiated at these statistics. Two matrix products of the block with vectors give the
gradients. An objective declares a coupling: how the loss of a row depends on other rows. One pass
is enough for these couplings:

- ``none``: The loss of a row needs only the statistics of this row.
- ``positives``, ``linear``: The derivatives of a row's loss need only the statistics of this row
  and the similarities of all positive pairs, which are known beforehand.
- ``total``: The derivative with respect to sum e^{s/tau} is equal for all rows. At the end,
  the gradients are multiplied by this number.
- ``batch``: The loss may need the statistics of all rows, so one block must hold all rows.

At the end, all statistics are known. The derivatives that were used are then checked.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.views import Views
from isotrope.kernels.coupling import confirm
from isotrope.kernels.mixed_negatives import MixedNegatives
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pass_input import LN2, UNSHIFTED, Gradients, PassInput
from isotrope.kernels.statistics import Key
from isotrope.kernels.tiles import Tiles, Vectors, add_product, blocks, chunked_topk, height, total

_TOTAL: Key = ("logsumexp", "cross")


def takes(inputs: PassInput) -> bool:
    """Return whether one pass can compute the loss of these inputs.

    This depends on the coupling and the statistics, and on whether one block holds all rows.
    """
    questions, views = inputs.questions, inputs.views
    if questions.against != {"cross"} or {"logsumexp", "softplus"} <= questions.kinds:
        return False
    if inputs.coupling == "total":
        return set(questions.temperatures) == {_TOTAL} and 1 / inputs.temperature <= UNSHIFTED
    return inputs.coupling != "batch" or len(views.anchors) <= height(views.columns, views.anchors)


def one_pass(inputs: PassInput) -> tuple[Tensor, Gradients]:
    """Compute value and gradients of inputs that :func:`takes` accepts.

    The columns are the positives and the additional negatives.
    """
    sweep = _OnePass(inputs)
    mask = NegativeMask(inputs.views, "cross")
    for rows, unit, tile in Tiles().of(sweep.anchors, sweep.sources, mask, inputs.exponents):
        sweep.add_block(rows, unit, tile)
    return sweep.finish()


class _OnePass:
    """The pass and its running sums.

    Call :meth:`add_block` for each block of rows, then :meth:`finish`.

    Attributes:
        uncoupled: Whether each row is independent of the other rows.
        whole: Whether one block held all rows.
        sources: The columns by source: the positives and, if there are any, additional negatives.
        to_anchors: Gradient of the anchors; of unit vectors until :meth:`finish` converts it.
        to_sources: Gradient of each source, likewise.
        positive, values: Similarities of the positives, and statistics by question, n each.
        by_positive, by: The assumed derivatives with respect to both, n each.
        summands: The n summands of the value, or one number.
        by_learnt: Derivative with respect to the learnt number; None without one.
    """

    def __init__(self, inputs: PassInput) -> None:
        views = inputs.views
        self.inputs, self.n = inputs, len(views.anchors)
        self.uncoupled, self.whole = inputs.coupling == "none", False
        self.anchors = Vectors(views.anchors)
        others = (x for x in (views.positives, views.negatives) if x is not None)
        self.sources = inputs.columns(*others)
        self.to_anchors = torch.empty_like(views.anchors)
        self.to_sources = [torch.zeros_like(x.raw) for x in self.sources]
        self.counts = inputs.counts()
        none = torch.zeros_like(views.anchors[:, 0])
        self.by_learnt = None if inputs.learnt is None else none.new_zeros(inputs.learnt.shape)
        self.summands, self.positive, self.by_positive = (torch.zeros_like(none) for _ in range(3))
        self.values = {key: torch.zeros_like(none) for key in inputs.questions.temperatures}
        self.by = {key: torch.zeros_like(none) for key in self.values}
        for rows in () if self.uncoupled else blocks(0, self.n, 2048):
            positives = self.sources[0].rows(self._own(rows))
            self.positive[rows] = (self.anchors.rows(rows) * positives).sum(dim=1)

    def _own(self, rows: slice) -> slice:
        """The rows of the positives of some anchors."""
        return slice(self.inputs.views.offset + rows.start, self.inputs.views.offset + rows.stop)

    def add_block(self, rows: slice, a: Tensor, tile: Tensor) -> None:
        """Reduce and differentiate a block of exponents; add its part of all gradients."""
        tau, positives = self.inputs.temperature, self._own(rows)
        statistics = self._statistics(tile, a, rows)
        gradient = self.to_anchors[rows]
        if self.uncoupled:
            p = self.sources[0].rows(positives)
            self._differentiate_uncoupled(rows, statistics, (a * p).sum(dim=1))
            by_positive = self.by_positive[rows, None]
            torch.mul(by_positive, p, out=gradient)
            self.to_sources[0][positives].addcmul_(by_positive, a)
        else:
            self._differentiate(rows, statistics)
            gradient.zero_()
        for kind, against in self.values:
            g = self.by[kind, against][rows]
            if statistics.first is not None and kind == "hardest":
                self._add_hardest(statistics.first, g, a, gradient)
            elif statistics.mixture is not None and kind == "mixed":
                # the mixture is constant, so only the anchor has a gradient
                pushed = (g / tau)[:, None] * statistics.mixture.vectors
                gradient += pushed
                self._add_by_temperature(pushed, a)
            else:
                self._push(tile, a, statistics.over_mass(g)[:, None] / tau, gradient)
        if self.uncoupled:
            self.anchors.project(gradient, a, rows)

    def _differentiate_uncoupled(
        self, rows: slice, statistics: "_Statistics", positive: Tensor
    ) -> None:
        counts = {key: value[rows] for key, value in self.counts.items()}
        values = {key: statistics.values[key] for key in self.values}
        summands, by_positive, by, learnt = self.inputs.evaluate(positive, values, counts, self.n)
        self._add_by_learnt(learnt)
        if len(positive) == self.n:  # the block holds all rows
            self.whole = True
            self.summands, self.positive, self.values = summands, positive, values
            self.by_positive, self.by = by_positive, by
            return
        self.summands[rows], self.positive[rows] = summands, positive
        self.by_positive[rows] = by_positive
        for key, value in values.items():
            self.values[key][rows], self.by[key][rows] = value, by[key]

    def _differentiate(self, rows: slice, statistics: "_Statistics") -> None:
        for key, value in self.values.items():
            value[rows] = statistics.values[key]
        if self.inputs.coupling == "total":
            assert statistics.mass is not None  # the formula uses its logarithm
            self.by[_TOTAL][rows] = statistics.mass
            return
        # statistics of later blocks are still 0, which changes no derivative of these rows
        result = self.inputs.evaluate(self.positive, self.values, self.counts, self.n)
        for key, g in result.by.items():
            self.by[key][rows] = g[rows]

    def _statistics(self, tile: Tensor, a: Tensor, rows: slice) -> "_Statistics":
        """Compute statistics of a block of exponents; replace the block by their derivatives."""
        questions, tau = self.inputs.questions, self.inputs.temperature
        statistics = _Statistics({})
        if "hardest" in questions.kinds:
            top, first = chunked_topk(tile, 1)
            statistics.first = first.squeeze(1)
            statistics.values["hardest", "cross"] = top.squeeze(1) * tau * self.inputs.base
        if (mixing := questions.mixing) is not None:
            views = self.inputs.views
            chosen = mixing.columns(views, rows, lambda k: chunked_topk(tile, k)[1])
            parts = _gathered(views, self.sources, chosen.clamp_min(0))
            statistics.mixture = mixing.mixture(chosen, parts)
            statistics.values["mixed", "cross"] = statistics.mixture.logits(a, tau)
        if "logsumexp" in questions.kinds:
            statistics.mass, statistics.values["logsumexp", "cross"] = _exponentials(
                tile, tau, a.dtype
            )
        elif "softplus" in questions.kinds:
            statistics.values["softplus", "cross"] = total(softplus(tile.mul_(LN2)), 1, a.dtype)
            tile.sigmoid_()
        return statistics

    def _push(self, tile: Tensor, a: Tensor, scaled: Tensor, gradient: Tensor) -> None:
        """Add the gradients of columns and anchors from a block of derivatives times ``scaled``."""
        at = 0
        for x, into in zip(self.sources, self.to_sources, strict=True):
            part = tile[:, at : at + len(x)]
            at += len(x)
            add_product(into, part, scaled * a)
            pushed = x.combine(part)
            gradient.addcmul_(scaled, pushed)
            if self.inputs.learns_temperature:
                self._add_by_temperature(scaled * pushed, a)

    def _add_hardest(self, column: Tensor, by: Tensor, a: Tensor, gradient: Tensor) -> None:
        """Add the gradients of the hardest similarities: one column for each row."""
        at = 0
        for x, into in zip(self.sources, self.to_sources, strict=True):
            (rows,) = ((column >= at) & (column < at + len(x))).nonzero(as_tuple=True)
            which, g = column[rows] - at, by[rows, None]
            at += len(x)
            gradient.index_add_(0, rows, g * x.rows(which))
            into.index_add_(0, which, g * a[rows])

    def _add_by_temperature(self, pushed: Tensor, a: Tensor) -> None:
        """Add sum_j W_ij s_ij, the push along the anchor, to the gradient of the temperature."""
        if self.inputs.learns_temperature:
            self._add_by_learnt(-(pushed * a).sum() / self.inputs.temperature)

    def _add_by_learnt(self, gradient: Tensor | None) -> None:
        if self.by_learnt is not None and gradient is not None:
            self.by_learnt += gradient

    def finish(self) -> tuple[Tensor, Gradients]:
        """Check the assumptions; convert gradients from unit vectors to given embeddings."""
        if self.uncoupled:
            self._check_uncoupled()
        else:
            self._complete()
            self.anchors.to_raw(self.to_anchors)
        for x, gradient in zip(self.sources, self.to_sources, strict=True):
            x.to_raw(gradient)
        to_positives, *others = self.to_sources
        to_negatives = others[0] if others else None
        return self.summands.sum(), [self.to_anchors, to_positives, to_negatives, self.by_learnt]

    def _check_uncoupled(self) -> None:
        """Differentiate all rows at once: the rows of other blocks must make no difference.

        If the anchors are only one process's part of the batch, invented rows with larger and
        smaller values replace those of the other processes. They must make no difference either.
        """
        others = len(self.inputs.views.positives) - self.n
        if not others and self.whole:
            return
        positive, *values = (_among(x, others) for x in (self.positive, *self.values.values()))
        counts = {key: _among(x, others, apart=0.0) for key, x in self.counts.items()}
        statistics = dict(zip(self.values, values, strict=True))
        summands, by_positive, by, _ = self.inputs.evaluate(positive, statistics, counts, self.n)
        computed = (self.summands, self.by_positive, *self.by.values())
        for assumed, true in zip(computed, (summands, by_positive, *by.values()), strict=True):
            confirm(assumed, true[: self.n], "the loss of an anchor changes with other anchors")

    def _complete(self) -> None:
        """Call the formula on all rows, apply the common factor, and add the positives."""
        self.summands, by_positive, by, by_learnt = self.inputs.evaluate(
            self.positive, self.values, self.counts, self.n
        )
        if self.inputs.coupling == "total":
            mass = self.by[_TOTAL].sum()
            factor = torch.where(mass > 0, by[_TOTAL].sum() / mass.where(mass > 0, 1.0), 0.0)
            for x in (self.to_anchors, *self.to_sources, self.by[_TOTAL]):
                x.mul_(factor)
            if self.by_learnt is not None:
                self.by_learnt.mul_(factor)
        self._add_by_learnt(by_learnt)
        for key, assumed in self.by.items():
            confirm(assumed, by[key], _REASONS.get(self.inputs.coupling, ""))
        for rows in blocks(0, self.n, 2048):
            positives, weight = self._own(rows), by_positive[rows, None]
            self.to_anchors[rows].addcmul_(weight, self.sources[0].rows(positives))
            self.to_sources[0][positives].addcmul_(weight, self.anchors.rows(rows))


_REASONS = {
    "positives": "an anchor's derivatives change with the negatives of other anchors",
    "linear": "its value is not linear in the sums over the negatives",
    "total": "its value is not a function of the sum of all exponentials",
}


def _among(values: Tensor, others: int, *, apart: float = 1.0) -> Tensor:
    """Append invented numbers to ``values``, alternately larger and smaller."""
    if not others:
        return values
    number = torch.arange(others, device=values.device)
    steps = torch.tensor([2.0, -1.0], device=values.device).to(values)[number % 2]
    return torch.cat([values, values[number % len(values)] + apart * steps])


@dataclass
class _Statistics:
    """The statistics of a block for a formula and for its derivatives."""

    values: dict[Key, Tensor]  # those that the formula uses
    first: Tensor | None = None  # column of the hardest negative, B integers
    mixture: MixedNegatives | None = None
    mass: Tensor | None = None  # sums of the exponentials, B values

    def over_mass(self, gradient: Tensor) -> Tensor:
        """Convert a derivative by a log-sum-exp to one by the sum; 0 without negatives."""
        if self.mass is None:
            return gradient
        return (gradient / self.mass).masked_fill_(self.mass == 0, 0.0)


def _gathered(views: Views, sources: list[Vectors], columns: Tensor) -> Tensor:
    """The unit vectors of B x 2 columns, two for each row of a block."""
    wanted, m = columns.flatten(), len(views.positives)
    first = wanted if views.negatives is None else wanted.clamp_max(m - 1)
    # index_select is several times as fast as indexing
    vectors = views.positives.index_select(0, first).div_(sources[0].norm.index_select(0, first))
    if views.negatives is not None:
        beyond = wanted >= m
        vectors[beyond] = sources[1].rows(wanted[beyond] - m)
    return vectors.view(*columns.shape, -1)


def _exponentials(tile: Tensor, tau: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Turn exponents of 2, in place, into e^{s/tau - shift}; return sums and log-sum-exps."""
    if 1 / tau <= UNSHIFTED:
        mass = total(tile.exp2_(), 1, dtype)
        return mass, mass.log()
    top = tile.amax(dim=1, keepdim=True)
    top = top.where(top > -torch.inf, 0.0)
    mass = total(tile.sub_(top).exp2_(), 1, dtype)
    return mass, mass.log() + top.squeeze(1).to(dtype) * LN2

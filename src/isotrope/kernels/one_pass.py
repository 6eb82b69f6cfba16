"""One pass over blocks of rows, where the loss of a row needs nothing but its own statistics.

A block of rows meets all columns and is reduced; the formula is called and differentiated there;
two matrix products turn the block into gradients. 6 n c d floating-point operations.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.softplus import softplus
from isotrope.core.views import Views
from isotrope.kernels.asked import Key, Known
from isotrope.kernels.largest import largest
from isotrope.kernels.mixtures import Mixture
from isotrope.kernels.rowblock import Layout, add_product
from isotrope.kernels.sweeps import LN2, UNSHIFTED, Gradients, Job, Tiles, Vectors, blocks, total

__all__ = ["one_pass"]


def one_pass(job: Job) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula whose rows need their own statistics only.

    The columns are the positives and the further negatives.
    """
    sweep = _OnePass(job)
    for rows in blocks(0, sweep.n, sweep.tiles.height):
        sweep.meet(rows)
    return sweep.finish()


class _OnePass:
    """The pass and what it adds up.

    Attributes:
        sources: where the columns come from: positives, further negatives.
        gradients: of the anchors, then of the sources.
        loss: the value, None before the first block.
        learnt: the derivative by the temperature, None where it is not wanted.
    """

    def __init__(self, job: Job) -> None:
        views = job.views
        self.job, self.n = job, len(views.anchors)
        self.anchors = Vectors(views.anchors)
        given = (x for x in (views.positives, views.negatives) if x is not None)
        self.sources = job.columns(*given)
        self.gradients = [torch.empty_like(views.anchors)]
        self.gradients += [torch.zeros_like(x.raw) for x in self.sources]
        self.layout, self.counts = Layout(views, "cross"), job.counts()
        self.tiles = Tiles(self.sources[0].data, sum(len(x) for x in self.sources))
        self.loss: Tensor | None = None
        self.learnt = None if job.learnt is None else torch.zeros_like(job.learnt)

    def meet(self, rows: slice) -> None:
        """Let a block of rows meet all columns; afterwards the gradient of its anchors is there."""
        job, tau = self.job, self.job.temperature
        a = self.anchors.rows(rows)
        own = slice(job.views.offset + rows.start, job.views.offset + rows.stop)
        p = self.sources[0].rows(own)
        tile = self.tiles.across(job.exponents(a), self.sources)
        self.layout.exclude(tile, rows)
        found = self._statistics(tile, a, rows)
        values = {key: found.values[key] for key in job.asked.temperatures}
        counts = {key: value[rows] for key, value in self.counts.items()}
        known = Known((a * p).sum(dim=1), values, counts)
        value, (by_positive, *by), last = job.evaluate(known, self.n)
        self.loss = value if self.loss is None else self.loss.double() + value
        self._by_temperature(last)
        mine = torch.mul(by_positive[:, None], p, out=self.gradients[0][rows])
        self.gradients[1][own].addcmul_(by_positive[:, None], a)
        for (kind, _), g in zip(values, by, strict=True):
            if found.first is not None and kind == "hardest":
                _one_column(found.first, g, a, self.sources, mine, self.gradients[1:])
            elif found.mixture is not None and kind == "mixed":  # constant: only the anchor moves
                pushed = (g / tau)[:, None] * found.mixture.vectors
                mine += pushed
                self._by_similarity(pushed, a)
            else:
                self._push(tile, a, found.over_mass(g)[:, None] / tau, mine)
        self.anchors.project(mine, a, rows)

    def _statistics(self, tile: Tensor, a: Tensor, rows: slice) -> "_Statistics":
        """Find what the formula asks of a block of exponents, which becomes its slopes."""
        asked, tau = self.job.asked, self.job.temperature
        found = _Statistics({})
        if "hardest" in asked.kinds:
            top, first = largest(tile, 1)
            found.first = first.squeeze(1)
            found.values["hardest", "cross"] = top.squeeze(1) * tau * self.job.base
        if (mixing := asked.mixing) is not None:
            views = self.job.views
            chosen = mixing.columns(views, rows, functools.partial(_nearest, tile))
            parts = _gathered(views, self.sources, chosen.clamp_min(0))
            found.mixture = mixing.mixture(chosen, parts)
            found.values["mixed", "cross"] = found.mixture.logits(a, tau)
        if "logsumexp" in asked.kinds:
            found.mass, found.values["logsumexp", "cross"] = _exponentials(tile, tau, a.dtype)
        elif "softplus" in asked.kinds:
            found.values["softplus", "cross"] = total(softplus(tile.mul_(LN2)), 1, a.dtype)
            tile.sigmoid_()
        return found

    def _push(self, tile: Tensor, a: Tensor, scaled: Tensor, mine: Tensor) -> None:
        """Add what a block of slopes, each row times a number, does to columns and anchors."""
        at = 0
        for x, into in zip(self.sources, self.gradients[1:], strict=True):
            part = tile[:, at : at + len(x)]
            at += len(x)
            add_product(into, part, scaled * a)
            pushed = x.push(part)
            mine.addcmul_(scaled, pushed)
            if self.learnt is not None:
                self._by_similarity(scaled * pushed, a)

    def _by_similarity(self, pushed: Tensor, a: Tensor) -> None:
        """sum_j W_ij s_ij, of the temperature, is what the push has along the anchor."""
        if self.learnt is not None:
            self._by_temperature(-(pushed * a).sum() / self.job.temperature)

    def _by_temperature(self, found: Tensor | None) -> None:
        if self.learnt is not None and found is not None:
            self.learnt += found

    def finish(self) -> tuple[Tensor, Gradients]:
        """Turn what the columns received into gradients of raw embeddings."""
        for x, gradient in zip(self.sources, self.gradients[1:], strict=True):
            x.by_raw(gradient)
        anchors, positives, *others = self.gradients
        assert self.loss is not None  # views have at least one row
        negatives = others[0] if others else None
        return self.loss.to(anchors.dtype), [anchors, positives, negatives, self.learnt]


@dataclass
class _Statistics:
    """What a formula asks of a block, and what its derivatives need.

    Attributes:
        values: the answers.
        first: which column is the hardest, B.
        mixture: the mixed negatives.
        mass: sums of the exponentials, B.
    """

    values: dict[Key, Tensor]
    first: Tensor | None = None
    mixture: Mixture | None = None
    mass: Tensor | None = None

    def over_mass(self, gradient: Tensor) -> Tensor:
        """The derivative by a log-sum-exp as that by the sum; a row without negatives has 0."""
        if self.mass is None:
            return gradient
        return (gradient / self.mass).masked_fill_(self.mass == 0, 0.0)


def _nearest(tile: Tensor, k: int) -> Tensor:
    """As ``Pairs.nearest``, from the similarities of a block."""
    return largest(tile, k)[1]


def _gathered(views: Views, sources: list[Vectors], columns: Tensor) -> Tensor:
    """The unit vectors of some columns, B x 2, for each row of a block."""
    wanted, m = columns.flatten(), len(views.positives)
    first = wanted if views.negatives is None else wanted.clamp_max(m - 1)
    # several times as quick as indexing
    found = views.positives.index_select(0, first).div_(sources[0].norm.index_select(0, first))
    if views.negatives is not None:
        beyond = wanted >= m
        found[beyond] = sources[1].rows(wanted[beyond] - m)
    return found.view(*columns.shape, -1)


def _exponentials(tile: Tensor, tau: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Turn exponents of 2, in place, into e^{s/tau - shift}; return sums and log-sum-exps."""
    if 1 / tau <= UNSHIFTED:
        mass = total(tile.exp2_(), 1, dtype)
        return mass, mass.log()
    top = tile.amax(dim=1, keepdim=True)
    top = top.where(top > -torch.inf, 0.0)
    mass = total(tile.sub_(top).exp2_(), 1, dtype)
    return mass, mass.log() + top.squeeze(1) * LN2


def _one_column(
    chosen: Tensor,
    by: Tensor,
    anchors: Tensor,
    sources: list[Vectors],
    mine: Tensor,
    others: list[Tensor],
) -> None:
    """Add the gradient of the hardest similarity: each row meets one column."""
    at = 0
    for x, into in zip(sources, others, strict=True):
        (rows,) = ((chosen >= at) & (chosen < at + len(x))).nonzero(as_tuple=True)
        which, g = chosen[rows] - at, by[rows, None]
        at += len(x)
        mine.index_add_(0, rows, g * x.rows(which))
        into.index_add_(0, which, g * anchors[rows])

"""One pass where rows are coupled, but not by what the pass finds out.

A loss that adds the log-sum-exps up (DCLW, whose weights are of the positives) has derivatives by
them that are known beforehand. One that is a function of the sum of all exponentials (uniformity)
has one unknown factor, by which everything is multiplied in the end. Neither needs a block twice:
6 n c d floating-point operations, as where rows are independent.
"""

import torch
from torch import Tensor

from isotrope.kernels.asked import Key, Known
from isotrope.kernels.rowblock import Layout, add_product
from isotrope.kernels.sweeps import UNSHIFTED, Gradients, Job, Tiles, Vectors, blocks, total

__all__ = ["coupled_pass", "takes"]

_KEY: Key = ("logsumexp", "cross")


def takes(job: Job) -> bool:
    """Tell whether the job can be done so."""
    asked = job.asked
    known = asked.slope is not None and set(asked.temperatures) == {_KEY}
    return known and 1 / job.temperature <= UNSHIFTED


def coupled_pass(job: Job) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula whose slope (see ``Asking``) is known enough."""
    sweep = _Coupled(job)
    sweep.run()
    return sweep.finish()


class _Coupled:
    """The pass and what it collects.

    Attributes:
        slope: derivatives of the value by the log-sum-exps, n, or by the sums of exponentials if
            those are what is known; 1 where they are all one number that is not known yet.
        mass: sums of exponentials, n.
        along: what the push of each anchor has along it, n; sum_j W_ij s_ij of the temperature.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.n = job, len(job.views.anchors)
        views = job.views
        self.anchors = Vectors(views.anchors)
        self.sources = job.columns(
            *(x for x in (views.positives, views.negatives) if x is not None)
        )
        self.gradients = [torch.empty_like(views.anchors)]
        self.gradients += [torch.zeros_like(x.raw) for x in self.sources]
        self.counts = job.counts()
        self.positive = torch.empty_like(views.anchors[:, 0])
        for rows in blocks(0, self.n, 2048):
            own = slice(views.offset + rows.start, views.offset + rows.stop)
            self.positive[rows] = (self.anchors.rows(rows) * self.sources[0].rows(own)).sum(dim=1)
        self.mass, self.along = (torch.empty_like(self.positive) for _ in range(2))
        self.slope = torch.ones_like(self.positive)
        if job.asked.slope != "common":
            _, (_, self.slope), _ = self._evaluate(torch.zeros_like(self.positive))

    def _evaluate(self, level: Tensor) -> tuple[Tensor, list[Tensor], Tensor | None]:
        known = Known(self.positive.clone(), {_KEY: level}, self.counts)
        return self.job.evaluate(known, self.n)

    def run(self) -> None:
        """Meet all columns with each block of rows once."""
        tau, layout = self.job.temperature, Layout(self.job.views, "cross")
        tiles = Tiles(self.sources[0].data, sum(len(x) for x in self.sources))
        for rows in blocks(0, self.n, tiles.height):
            a = self.anchors.rows(rows)
            tile = tiles.across(self.job.exponents(a), self.sources)
            layout.exclude(tile, rows)
            mass = total(tile.exp2_(), 1, a.dtype)
            self.mass[rows] = mass
            scaled = self._factors(self.slope[rows], mass)[:, None] / tau
            mine, at = torch.zeros_like(a), 0
            for x, into in zip(self.sources, self.gradients[1:], strict=True):
                part = tile[:, at : at + len(x)]
                at += len(x)
                add_product(into, part, scaled * a)
                mine.addcmul_(scaled, x.push(part))
            self.along[rows] = (mine * a).sum(dim=1)
            self.gradients[0][rows] = mine

    def _factors(self, slope: Tensor, mass: Tensor) -> Tensor:
        """Derivatives by the log-sum-exps as those by the sums; a row without negatives has 0."""
        if self.job.asked.slope != "constant":
            return slope
        return torch.where(mass > 0, slope / mass.where(mass > 0, 1.0), 0.0)

    def finish(self) -> tuple[Tensor, Gradients]:
        """Call the formula on what was found, scale what was put off, add the positives."""
        job, views = self.job, self.job.views
        value, (by_positive, by), learnt = self._evaluate(self.mass.log())
        if job.asked.slope == "common":
            factor = by.sum() / self.mass.sum()
            for gradient in (*self.gradients, self.along):
                gradient.mul_(factor)
        for rows in blocks(0, self.n, 2048):
            own = slice(views.offset + rows.start, views.offset + rows.stop)
            weight = by_positive[rows, None]
            self.gradients[0][rows].addcmul_(weight, self.sources[0].rows(own))
            self.gradients[1][own].addcmul_(weight, self.anchors.rows(rows))
        for x, gradient in zip((self.anchors, *self.sources), self.gradients, strict=True):
            x.by_raw(gradient)
        if learnt is not None:
            learnt = learnt - self.along.sum() / job.temperature
        negatives = self.gradients[2] if len(self.sources) > 1 else None
        return value.to(self.positive.dtype), [*self.gradients[:2], negatives, learnt]

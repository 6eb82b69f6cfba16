"""One pass over blocks of rows, where the loss of a row needs nothing but its own statistics.

A block of rows meets all columns and is reduced; the formula is called and differentiated there;
two matrix products turn the block into gradients. 6 n c d floating-point operations.
"""

import functools

import torch
from torch import Tensor

from isotrope.core.softplus import softplus
from isotrope.core.views import Views
from isotrope.kernels.asked import Key, Known
from isotrope.kernels.largest import largest
from isotrope.kernels.rowblock import Layout, add_product
from isotrope.kernels.sweeps import UNSHIFTED, Gradients, Job, Tiles, Vectors, blocks, total

__all__ = ["one_pass"]


def one_pass(job: Job) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula whose rows need their own statistics only.

    The columns are the positives and the further negatives.
    """
    views, tau = job.views, job.temperature
    anchors, n = Vectors(views.anchors), len(views.anchors)
    sources = job.columns(*(x for x in (views.positives, views.negatives) if x is not None))
    columns = sum(len(x) for x in sources)
    gradients = [torch.empty_like(views.anchors), *(torch.zeros_like(x.raw) for x in sources)]
    layout = Layout(views, "cross")
    tiles = Tiles(sources[0].data, columns)
    loss = torch.zeros((), dtype=torch.float64, device=views.anchors.device)
    learnt = None if job.learnt is None else torch.zeros_like(job.learnt)
    counts = job.counts()
    for rows in blocks(0, n, tiles.height):
        a = anchors.rows(rows)
        own = slice(views.offset + rows.start, views.offset + rows.stop)
        p = sources[0].rows(own)
        tile, at = tiles.empty(len(a), columns), 0
        for x in sources:
            x.against(a / tau, tile[:, at : at + len(x)])
            at += len(x)
        layout.exclude(tile, rows)
        values: dict[Key, Tensor] = {}
        if "hardest" in job.asked.kinds:
            top, first = largest(tile, 1)
            values["hardest", "cross"] = top.squeeze(1) * tau
        if (mixing := job.asked.mixing) is not None:
            chosen = mixing.columns(views, rows, functools.partial(_nearest, tile))
            mixture = mixing.mixture(chosen, _gathered(views, sources, chosen.clamp_min(0)))
            values["mixed", "cross"] = mixture.logits(a, tau)
        mass = a.new_ones(len(a))
        if "logsumexp" in job.asked.kinds:
            mass, values["logsumexp", "cross"] = _exponentials(tile, tau, a.dtype)
        elif "softplus" in job.asked.kinds:
            values["softplus", "cross"] = total(softplus(tile), 1, a.dtype)
            tile.sigmoid_()
        values = {key: values[key] for key in job.asked.temperatures}
        known = Known(
            (a * p).sum(dim=1), values, {key: value[rows] for key, value in counts.items()}
        )
        value, (by_positive, *by), last = job.evaluate(known, n)
        loss += value
        if learnt is not None and last is not None:
            learnt += last
        mine = by_positive[:, None] * p
        gradients[1][own].addcmul_(by_positive[:, None], a)
        for (kind, _), g in zip(values, by, strict=True):
            if kind == "hardest":
                _one_column(first.squeeze(1), g, a, sources, mine, gradients[1:])
                continue
            if kind == "mixed":  # constant: only the anchor moves
                pushed = (g / tau)[:, None] * mixture.vectors
                mine += pushed
                if learnt is not None:
                    learnt -= (pushed * a).sum() / tau
                continue
            g = torch.where(mass > 0, g / mass.where(mass > 0, 1.0), 0.0)
            scaled, at = g[:, None] / tau, 0
            for x, into in zip(sources, gradients[1:], strict=True):
                part = tile[:, at : at + len(x)]
                at += len(x)
                add_product(into, part, scaled * a)
                pushed = x.push(part)
                mine.addcmul_(scaled, pushed)
                if learnt is not None:  # sum_j W_ij s_ij is what the push has along the anchor
                    learnt -= (scaled * pushed * a).sum() / tau
        gradients[0][rows] = anchors.by_raw(mine, rows)
    for x, gradient in zip(sources, gradients[1:], strict=True):
        x.by_raw(gradient)
    found: Gradients = [gradients[0], gradients[1], gradients[2] if len(sources) > 1 else None]
    return loss.to(views.anchors.dtype), [*found, learnt]


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
    """Turn s / tau into e^{s/tau - shift}, in place; return the rows' sums and log-sum-exps."""
    if 1 / tau <= UNSHIFTED:
        mass = total(tile.exp_(), 1, dtype)
        return mass, mass.log()
    top = tile.amax(dim=1, keepdim=True)
    top = top.where(top > -torch.inf, 0.0)
    mass = total(tile.sub_(top).exp_(), 1, dtype)
    return mass, mass.log() + top.squeeze(1)


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

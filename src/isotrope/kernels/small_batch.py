"""Computes the log-sum-exps of a small batch as one node of autograd.

On batches of up to some hundred rows the calls cost more than the numbers: normalising, the matrix,
its mask and the log-sum-exp of both directions are sixty operations for autograd. Here they are
one, from raw embeddings to the similarity of each pair and its log-sum-exps, with a gradient of
three matrix products. What a formula makes of these vectors is left to autograd. The exponentials
are held (n x n), so memory is quadratic, as in the eager backend.

It serves formulas that use one log-sum-exp, across the views or over both of them, where every row
but the own one is a negative; others take another way.
Second derivatives go through the eager backend.
"""

import torch
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.terms import Against
from isotrope.core.views import Views, across_unit, lengths
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.job import LN2
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Known, Questions, StatisticsOnly, Unfused

__all__ = ["SMALL_BYTES", "directions", "takes"]

SMALL_BYTES = 1 << 22  # of similarities: above, blocks are as quick (benchmarks/peers.py)
# 1 / tau up to which e^{s/tau}, summed over the rows of a small batch, needs no shift
_UNSHIFTED = {torch.float32: 60.0, torch.float64: 500.0}


def takes(views: Views) -> bool:
    """Return whether these views are a small batch in which only the own row is no negative."""
    n = views.anchors.shape[0]  # len(tensor) takes four times as long
    return (
        n == views.positives.shape[0]
        and n > 1
        and n * n * views.anchors.element_size() <= SMALL_BYTES
        and views.negatives is None
        and views.groups is None
        and views.in_batch
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
    )


def directions(views: Views, questions: Questions, *, both: bool) -> list[Pairs]:
    """Return what a formula may use of raw ``views``, one entry for each direction.

    Args:
        views: raw embeddings that :func:`takes` takes.
        questions: the statistics that the formula uses.
        both: whether there is a second direction, positives as anchors.

    Raises:
        Unfused: the formula uses other statistics, or at too low a temperature.
    """
    if len(questions.temperatures) != 1 or not questions.lasting:
        raise Unfused("not one temperature that stays")
    (((kind, against), tau),) = questions.temperatures.items()
    if kind != "logsumexp" or against == "within" or (against == "both" and not both):
        raise Unfused("not a log-sum-exp of rows and columns")
    if tau * _UNSHIFTED.get(views.anchors.dtype, 0.0) < 1:
        raise Unfused("exponentials may not be finite")
    n = views.anchors.shape[0]
    if against == "both" and 4 * n * n * views.anchors.element_size() > SMALL_BYTES:
        raise Unfused("the matrix over both views is not small")
    positive, *sums = apply(
        _LogSumExps, tuple[Tensor, ...], views.anchors, views.positives, tau, against, both
    )
    negatives = n - 1 if against == "cross" else 2 * n - 2
    counts = {x: torch.full_like(positive, negatives) for x in questions.counts}
    return [
        StatisticsOnly(positive, Known(questions, {(kind, against): lse}, counts)) for lse in sums
    ]


class _LogSumExps(torch.autograd.Function):
    """N similarities of the pairs, and for each direction n log-sum-exps over the negatives.

    Across the views S = u v^T of unit rows, whose rows are one direction and whose columns are the
    other; over both, S = z z^T of all 2n rows z, whose halves are. With E = e^{S/tau}, and zero
    where there is no negative, the gradient by S is
    E_ij (g_i / sum_k E_ik + g'_j / sum_k E_kj) / tau.
    """

    @staticmethod
    def forward(
        ctx: Context, anchors: Tensor, positives: Tensor, tau: float, against: Against, both: bool
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(anchors, positives)
        norms = lengths(anchors), lengths(positives)
        u, v = anchors / norms[0], positives / norms[1]
        n, across = u.shape[0], against == "cross"
        z = None if across else torch.cat([u, v])
        e = u @ v.T if z is None else z @ z.T
        positive = e.diagonal(0 if across else n).clone()
        e.mul_(1 / (tau * LN2)).exp2_().fill_diagonal_(0)
        if not across:
            e.diagonal(n).zero_()
            e.diagonal(-n).zero_()
        rows = e.sum(dim=1)
        columns = e.sum(dim=0) if across and both else None
        ctx.of = against, both, tau
        ctx.held = u, v, z, norms, e, rows, columns
        if columns is not None:
            return positive, rows.log(), columns.log()
        return (positive, rows.log()) if across else (positive, *rows.log().split(n))

    @staticmethod
    def backward(
        ctx: Context, by_positive: Tensor | None, *by_sums: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # this will be differentiated again
            return *_again(ctx, by_positive, *by_sums), None, None, None
        _, _, tau = ctx.of
        u, v, z, norms, e, rows, columns = ctx.held
        n = u.shape[0]
        given = [rows.new_zeros(n) if g is None else g for g in by_sums]
        weights = (given[0] if z is None else torch.cat(given)).div(rows * tau)[:, None]
        if columns is not None:
            weights = weights + given[1] / (columns * tau)
        by_s = e * weights
        if by_positive is not None:
            by_s.diagonal(0 if z is None else n).copy_(by_positive)
        if z is None:
            wanted = ctx.needs_input_grad
            by_u = by_s @ v if wanted[0] else None
            by_v = by_s.T @ u if wanted[1] else None
        else:
            by_u, by_v = ((by_s + by_s.T) @ z).split(n)
        units = (by_u, u, norms[0]), (by_v, v, norms[1])
        found = [None if g is None else across_unit(g, x, norm) for g, x, norm in units]
        return *found, None, None, None


def _again(ctx: Context, *by: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients by the embeddings, with a history."""
    against, both, tau = ctx.of
    # aliases: one matrix may be both views
    views = Views(*ctx.saved_tensors).map(lambda x: x.view_as(x))
    pairs = EagerPairs(views.unit())
    outputs = [pairs.positive, pairs.logsumexp(tau, against)]
    if both:
        outputs.append(pairs.swapped().logsumexp(tau, against))
    used = [(x, g) for x, g in zip(outputs, by, strict=True) if g is not None]
    wanted = [x for x in (views.anchors, views.positives) if x.requires_grad]
    values, gradients = zip(*used, strict=True)
    found = iter(torch.autograd.grad(values, wanted, gradients, create_graph=True))
    return tuple(next(found) if x else None for x in ctx.needs_input_grad[:2])

"""Computes the log-sum-exps of a small batch in one operation of autograd.

In batches of up to a few hundred rows, about sixty single operations would take more time than the
arithmetic. The one operation takes embeddings that are not normalised. It returns the similarity
and the log-sum-exps of each positive pair, or only their differences (the gaps). Autograd handles
the rest of the formula. The n x n exponentials are stored, so memory is quadratic. A formula must
have one log-sum-exp, over the other view or over both views, and all other rows must be negatives.
The eager backend computes second derivatives.
"""

import torch
from torch import Tensor

from isotrope.core.autograd import Context, InputGradients, apply
from isotrope.core.views import Views, across_unit, lengths
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Gaps, Known, Questions, StatisticsOnly, Unfused

SMALL_BYTES = 1 << 22  # bytes of similarities; with more, blocks are as fast (benchmarks/peers.py)
# largest 1 / tau with which the sum of e^{s/tau} over a small batch cannot overflow
_UNSHIFTED = {torch.float32: 60.0, torch.float64: 500.0}


def takes(views: Views) -> bool:
    """Return whether the batch is small and all other rows are negatives of every anchor."""
    n = views.anchors.shape[0]  # len(tensor) takes four times as long
    return (
        n == views.positives.shape[0]
        and n > 1
        and n * n * views.anchors.element_size() <= SMALL_BYTES
        and views.negatives is None
        and views.groups is None
        and views.in_batch
        and not torch._C._are_functorch_transforms_active()
        and not torch.compiler.is_compiling()
        and torch.autograd.forward_ad._current_level < 0
    )


def directions(views: Views, questions: Questions, *, both: bool) -> list[Pairs]:
    """Return the statistics with the first view as anchors and, if ``both``, with the second.

    Args:
        views: Unnormalised embeddings that :func:`takes` accepts.
        questions: Statistics that the formula uses.
        both: Whether to add the second direction, in which the positives are the anchors.

    Raises:
        Unfused: The formula does not have one log-sum-exp, or exponentials could overflow.
    """
    if len(questions.temperatures) != 1 or not questions.lasting:
        raise Unfused("the formula has several temperatures, or one that is not constant")
    (((kind, against), tau),) = questions.temperatures.items()
    if kind != "logsumexp" or against == "within" or (against == "both" and not both):
        raise Unfused("the statistic is not a log-sum-exp over the other view or over both views")
    if tau * _UNSHIFTED.get(views.anchors.dtype, 0.0) < 1:
        raise Unfused("exponentials could overflow at so low a temperature")
    n = views.anchors.shape[0]
    if against == "both" and 4 * n * n * views.anchors.element_size() > SMALL_BYTES:
        raise Unfused(f"the matrix of both views takes more than {SMALL_BYTES >> 20} MB")
    function, gaps = _AcrossViews if against == "cross" else _OverBothViews, questions.gaps
    outputs: tuple[Tensor | None, *tuple[Tensor, ...]] = apply(
        function, tuple, views.anchors, views.positives, tau, both, gaps
    )
    positive, *sums = outputs
    counts = {
        x: torch.full_like(sums[0], 2 * n - 2 if x == "both" else n - 1) for x in questions.counts
    }
    known = [Known(questions, {(kind, against): x}, counts) for x in sums]
    return [Gaps(x) if positive is None else StatisticsOnly(positive, x) for x in known]


class _AcrossViews(torch.autograd.Function):
    """Similarities of the n pairs and, for each direction, n log-sum-exps over the other view.

    With ``gaps`` it returns only log-sum-exp - s_ii' / tau. The rows of X = u v^T / tau, with unit
    rows u and v, are one direction; the columns of X are the other direction. Let E = e^X, with
    zeros for pairs that are not negatives, and g, g' the gradients by the log-sum-exps of both
    directions. Then the gradient with respect to X is E_ij (g_i / sum_k E_ik + g'_j / sum_k E_kj).
    """

    @staticmethod
    def forward(
        ctx: Context, anchors: Tensor, positives: Tensor, tau: float, both: bool, gaps: bool
    ) -> tuple[Tensor | None, ...]:
        a, b = lengths(anchors), lengths(positives)
        u, v = anchors / a, positives / b
        e = torch.addmm(a, u, v.T, beta=0, alpha=1 / tau)  # beta=0: a is not read
        diagonal = e.diagonal()
        own = diagonal.clone()
        e.exp_()
        diagonal.zero_()
        sums = (e.sum(dim=1), e.sum(dim=0)) if both else (e.sum(dim=1),)
        ctx.of = "cross", tau, both, gaps
        ctx.save_for_backward(anchors, positives, u, v, a, b, e, *sums)
        if gaps:
            return None, *[x.log().sub_(own) for x in sums]
        return own.mul_(tau), *[x.log() for x in sums]

    @staticmethod
    def backward(ctx: Context, by_positive: Tensor | None, *by_sums: Tensor) -> InputGradients:
        if torch.is_grad_enabled():  # a second derivative will be taken
            return *_again(ctx, by_positive, *by_sums), None, None, None
        _, _, u, v, a, b, e, *sums = ctx.saved_tensors
        tau = ctx.of[1]
        weights = (by_sums[0] / sums[0])[:, None]
        if len(sums) == 2:
            weights = weights + by_sums[1] / sums[1]
        by_x = e * weights
        by_x.diagonal().copy_(_by_own(by_positive, by_sums, tau))
        found: list[Tensor | None] = [None, None, None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = across_unit(torch.addmm(a, by_x, v, beta=0, alpha=1 / tau), u, a)
        if ctx.needs_input_grad[1]:
            found[1] = across_unit(torch.addmm(b, by_x.T, u, beta=0, alpha=1 / tau), v, b)
        return tuple(found)


class _OverBothViews(torch.autograd.Function):
    """As :class:`_AcrossViews`, but over both views: X = z z^T / tau, z all 2n unit rows."""

    @staticmethod
    def forward(
        ctx: Context, anchors: Tensor, positives: Tensor, tau: float, _: bool, gaps: bool
    ) -> tuple[Tensor | None, ...]:
        n = anchors.shape[0]
        z = torch.cat([anchors, positives])
        norm = lengths(z)
        z.div_(norm)
        e = torch.addmm(norm, z, z.T, beta=0, alpha=1 / tau)
        own = e.diagonal(n).clone()
        e.exp_().view(2, n, 2, n).diagonal(dim1=1, dim2=3).zero_()
        sums = e.sum(dim=1)
        ctx.of = "both", tau, True, gaps
        ctx.save_for_backward(anchors, positives, z, norm, e, sums)
        logarithms = sums.log().view(2, n)
        if gaps:
            return None, *logarithms.sub_(own).unbind()
        return own.mul_(tau), *logarithms.unbind()

    @staticmethod
    def backward(ctx: Context, by_positive: Tensor | None, *by_sums: Tensor) -> InputGradients:
        if torch.is_grad_enabled():
            return *_again(ctx, by_positive, *by_sums), None, None, None
        _, _, z, norm, e, sums = ctx.saved_tensors
        tau, n = ctx.of[1], by_sums[0].shape[0]
        weights = torch.cat(by_sums) / sums
        by_x = torch.add(weights[:, None], weights).mul_(e)
        by_own = _by_own(by_positive, by_sums, tau)
        by_x.diagonal(n).copy_(by_own)
        by_x.diagonal(-n).copy_(by_own)
        by_z = across_unit(torch.addmm(norm, by_x, z, beta=0, alpha=1 / tau), z, norm)
        return by_z[:n], by_z[n:], None, None, None


def _by_own(by_positive: Tensor | None, by_sums: tuple[Tensor, ...], tau: float) -> Tensor:
    """The derivative by s_ii' / tau, n values; ``by_positive`` is None for gaps."""
    if by_positive is not None:
        return by_positive * tau
    return -by_sums[0] if len(by_sums) == 1 else (by_sums[0] + by_sums[1]).neg_()


def _again(ctx: Context, by_positive: Tensor | None, *by_sums: Tensor) -> InputGradients:
    """The gradients of the embeddings, with an autograd history."""
    against, tau, both, gaps = ctx.of
    # aliases, because one matrix may be both views
    views = Views(*ctx.saved_tensors[:2]).map(lambda x: x.view_as(x))
    pairs = EagerPairs(views.unit())
    directions = [pairs, pairs.swapped()] if both else [pairs]
    values = [x.gap(tau, against) if gaps else x.logsumexp(tau, against) for x in directions]
    by = list(by_sums)
    if by_positive is not None:
        values, by = [*values, pairs.positive], [*by, by_positive]
    wanted = [x for x in (views.anchors, views.positives) if x.requires_grad]
    found = iter(torch.autograd.grad(values, wanted, by, create_graph=True))
    return tuple(next(found) if x else None for x in ctx.needs_input_grad[:2])

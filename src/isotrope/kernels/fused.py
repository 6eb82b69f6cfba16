"""Computes an objective's value and gradients in one or two passes over blocks of similarities.

A formula uses only vectors of length n. Autograd differentiates the formula as soon as a block's
statistics are known; the derivative with respect to the log-sum-exp is the gradient dissipation.
The rest of the gradient is two matrix products with the block:

- *one pass* (for n rows, c columns and d dimensions, 6 n c d floating-point operations, the
  minimum), if the objective declares that rows are not coupled (InfoNCE, DCL, triplets, mixed
  negatives), or coupled only by numbers known beforehand (DCLW) or by one common factor (uniformity
  across the views);
- *two passes*, if rows may be coupled in any way, or if both views are anchors (the mean of both
  directions, NT-Xent, uniformity within a view); ``kernels.two_passes`` states the cost;
- *one pass for each direction*, for means of both directions that two passes cannot compute: with
  triplets, mixed or additional negatives, or so low a temperature that each row needs its maximum.

A pass checks the declaration at its end. Embeddings are not normalised beforehand. If the compared
vectors take at most 32 MB, they are copied once with unit length; otherwise each block of
similarities is divided by the norms. The gradients are computed with the value; the backward pass
only scales them in place. There are no second derivatives (``NeedsEager``).
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.errors import NeedsEager, WrongCoupling
from isotrope.core.views import Views
from isotrope.kernels import one_pass
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.job import Gradients, Job
from isotrope.kernels.statistics import Formula, Unfused, record
from isotrope.kernels.two_passes import check, two_passes

Sweep = Callable[[], tuple[Tensor, Gradients]]


def fused(
    views: Views,
    formula: Formula,
    *,
    both_directions: bool,
    mean: bool,
    coupling: Coupling = "batch",
    learnt: Tensor | None = None,
    backend: str = "rowblock",
) -> Tensor:
    """Return the loss of an objective of unit vectors, with its gradients already computed.

    Args:
        views: Embeddings that are not normalised.
        formula: Function from row statistics to the loss of one direction: n values, or one value.
        both_directions: Whether the value is the mean of both directions.
        mean: Whether the values of the rows are averaged instead of summed.
        coupling: Dependence of the anchors on each other, as in ``paradigm.objective.Objective``.
        learnt: Tensor of one number in the formula that requires a gradient, such as tau.
        backend: ``rowblock``, or ``bfloat16`` with rounded products.

    Raises:
        Unfused: This function cannot compute this formula or these views.
        WrongCoupling: The formula contradicts the declaration.
    """
    dtype = torch.promote_types(views.anchors.dtype, torch.float32)
    questions = record(formula, dtype, lambda: learnt)
    if not questions.against:
        raise Unfused("no row is compared with another")  # forming blocks would be wasted
    if coupling == "none" and not questions.several:
        raise WrongCoupling("its formula returns one number for the batch")
    if coupling == "none" and not questions.against <= {"cross"}:
        raise WrongCoupling("its formula compares the anchors with each other")
    half = backend == "bfloat16"
    job = Job(views, formula, questions, coupling, mean=mean, learnt=learnt, half=half)
    inputs = (views.anchors, views.positives, views.negatives, learnt)
    return apply(_Ready, Tensor, _sweep(job, both_directions), backend, *inputs)


def _sweep(job: Job, both_directions: bool) -> Sweep:
    """Choose the passes for the job, or raise Unfused."""
    single_pass = one_pass.takes(job)
    if single_pass and not both_directions:
        return functools.partial(one_pass.one_pass, job)
    try:
        check(job)
    except Unfused:
        if not single_pass:
            raise
        return functools.partial(_each_way, job)
    return functools.partial(two_passes, job, directions=2 if both_directions else 1)


def _each_way(job: Job) -> tuple[Tensor, Gradients]:
    """Compute the mean of both directions, one after the other."""
    value, (anchors, positives, *others) = one_pass.one_pass(job)
    other, (swapped, back, *also) = one_pass.one_pass(replace(job, views=job.views.swapped()))
    pairs = zip((anchors, positives, *others), (back, swapped, *also), strict=True)
    means = [x if x is None or y is None else x.add_(y).div_(2) for x, y in pairs]
    return (value + other) / 2, means


class _Ready(torch.autograd.Function):
    """A scalar whose gradients are computed together with it."""

    @staticmethod
    def forward(ctx: Context, run: Sweep, backend: str, *inputs: Tensor | None) -> Tensor:
        ctx.run, ctx.backend = run, backend
        value, ctx.gradients = run()
        return value

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: a second derivative will be taken
            raise NeedsEager(
                f"use backend='eager': the {ctx.backend} backend has no second derivatives"
            )
        if ctx.gradients is None:  # a second backward pass: the first has used the gradients up
            _, ctx.gradients = ctx.run()
        gradients, ctx.gradients = ctx.gradients, None
        if gradient.device.type != "cpu" or float(gradient) != 1:  # reading it on a GPU would wait
            gradients = [None if g is None else g.mul_(gradient) for g in gradients]
        wanted = ctx.needs_input_grad[2:]
        return None, None, *(g if w else None for g, w in zip(gradients, wanted, strict=True))

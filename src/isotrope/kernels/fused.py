"""Computes an objective's value and gradients in one or two passes over blocks of similarities.

A formula computes the loss from a few statistics of each row. Autograd differentiates the formula
as soon as the statistics of a block are known. Two matrix products with the block then give the
gradients. There are three ways:

- *One pass* takes 6 n c d operations, the minimum, for n rows, c columns and d dimensions. Rows may
  depend on each other only as ``one_pass`` explains (InfoNCE, triplets, DCLW, uniformity across
  the views).
- *Two passes* are used if rows may depend on each other in any way, or if both views are anchors
  (mean of both directions, NT-Xent, uniformity within a view).
- *One pass for each direction* computes a mean of both directions that two passes cannot compute:
  with triplets, with mixed or additional negatives, or at a very low temperature.

The backward pass only scales the gradients. A second derivative raises ``NeedsEager``.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from isotrope.core.autograd import Context, InputGradients, apply
from isotrope.core.errors import NeedsEager, WrongCoupling
from isotrope.core.views import Views
from isotrope.kernels import one_pass
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pass_input import Gradients, PassInput
from isotrope.kernels.statistics import Formula, Unfused, record
from isotrope.kernels.two_passes import takes, two_passes

Swept = tuple[Tensor, Gradients]


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
        formula: Function that returns the loss of one direction, n values or one number.
        both_directions: Whether the value is the mean of both directions.
        mean: Whether the values of the rows are averaged instead of summed.
        coupling: How anchors depend on each other, as in ``paradigm.objective.Objective``.
        learnt: Number in the formula that requires a gradient, such as the temperature, or None.
        backend: ``rowblock``, or ``bfloat16`` for rounded products.

    Raises:
        Unfused: The formula or the views need another way to compute the loss.
        WrongCoupling: The formula contradicts ``coupling``.
    """
    dtype = torch.promote_types(views.anchors.dtype, torch.float32)
    questions = record(formula, dtype, lambda: learnt, device=views.anchors.device)
    if not questions.against:
        raise Unfused("no row is compared with another")  # forming blocks would be wasted
    if coupling == "none" and not questions.several:
        raise WrongCoupling("its formula returns one number for the batch")
    if coupling == "none" and not questions.against <= {"cross"}:
        raise WrongCoupling("its formula compares the anchors with each other")
    half, offset, in_batch = backend == "bfloat16", views.offset, views.in_batch

    def sweep(a: Tensor, p: Tensor, q: Tensor | None, groups: Tensor | None) -> Swept:
        again = Views(a, p, q, offset, groups, in_batch)
        inputs = PassInput(again, formula, questions, coupling, mean=mean, learnt=learnt, half=half)
        return _sweep(inputs, both_directions)

    # the gradient of a temperature on another device goes back through this copy
    moved = None if learnt is None else learnt.to(views.anchors)
    tensors = (views.anchors, views.positives, views.negatives, views.groups, moved)
    return apply(_Ready, Tensor, sweep, backend, *tensors)


def _sweep(inputs: PassInput, both_directions: bool) -> Swept:
    """Run the passes that the formula and the views allow; if no pass does, raise Unfused."""
    single_pass = one_pass.takes(inputs)
    if single_pass and not both_directions:
        return one_pass.one_pass(inputs)
    if takes(inputs):
        return two_passes(inputs, directions=2 if both_directions else 1)
    if single_pass:
        return _each_way(inputs)
    raise Unfused("neither one pass nor two passes compute the statistics of these views")


def _each_way(inputs: PassInput) -> Swept:
    """Compute the mean of both directions, one after the other."""
    value, (anchors, positives, *others) = one_pass.one_pass(inputs)
    other, (swapped, back, *also) = one_pass.one_pass(replace(inputs, views=inputs.views.swapped()))
    pairs = zip((anchors, positives, *others), (back, swapped, *also), strict=True)
    means = [x if x is None or y is None else x.add_(y).div_(2) for x, y in pairs]
    return (value + other) / 2, means


class _Ready(torch.autograd.Function):
    """A scalar whose gradients are computed together with it."""

    @staticmethod
    def forward(
        ctx: Context, sweep: Callable[..., Swept], backend: str, *tensors: Tensor | None
    ) -> Tensor:
        ctx.sweep, ctx.backend = sweep, backend
        ctx.save_for_backward(*tensors)
        value, ctx.gradients = sweep(*tensors[:4])
        return value

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> InputGradients:
        if torch.is_grad_enabled():  # create_graph: a second derivative will be taken
            raise NeedsEager(
                f"use backend='eager': the {ctx.backend} backend has no second derivatives"
            )
        if ctx.gradients is None:  # a second backward pass: the first has used the gradients up
            _, ctx.gradients = ctx.sweep(*ctx.saved_tensors[:4])
        (*vectors, learnt), ctx.gradients = ctx.gradients, None
        gradients = [*vectors, None, learnt]  # none for groups
        if gradient.device.type != "cpu" or float(gradient) != 1:  # reading it on a GPU would wait
            gradients = [None if g is None else g.mul_(gradient) for g in gradients]
        wanted = ctx.needs_input_grad[2:]
        return None, None, *(g if w else None for g, w in zip(gradients, wanted, strict=True))

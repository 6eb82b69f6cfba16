"""Value and gradients of a whole objective in one or two passes over blocks of similarities.

A formula sees vectors of length n only. So it can be called on the statistics of a block as soon
as they are known, differentiated there by autograd (d value / d log-sum-exp is the gradient
dissipation), and what is left of the gradient is two matrix products with the block:

- *one pass*, where the loss of a row needs nothing but its own statistics (InfoNCE, DCL, triplets):
  a block of rows against all columns is reduced, differentiated and multiplied before the next
  one; 6 n c d floating-point operations, the least there can be;
- *two passes*, where rows are coupled or both views are anchors (the mean of both directions,
  NT-Xent, uniformity): the first pass collects every log-sum-exp, the second forms the blocks
  again; 8 n^2 d for similarities across the views, and a view against itself is symmetric, so only
  its upper triangle is formed, 4 n^2 d.

Embeddings come in raw. Short ones (d < 256) are copied once with unit length; of long ones no copy
is made: their norms are folded into the block. The gradients are ready when the value is; the
backward pass scales them in place. There are no second derivatives (see ``NeedsEager``).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isotrope.core.errors import NeedsEager
from isotrope.core.views import Views
from isotrope.kernels.asked import Formula, ask
from isotrope.kernels.one_pass import one_pass
from isotrope.kernels.sweeps import Gradients, Job
from isotrope.kernels.two_passes import check, two_passes

__all__ = ["fused"]

Sweep = Callable[[], tuple[Tensor, Gradients]]


def fused(
    views: Views,
    formula: Formula,
    *,
    both_directions: bool,
    mean: bool,
    learnt: Tensor | None = None,
) -> Tensor:
    """Return the scalar of an objective on the sphere, its gradients already computed.

    Args:
        views: raw embeddings, not normalised.
        formula: of one direction; n values, or one for the batch.
        both_directions: the value is the mean of both.
        mean: the values of the rows are averaged, not summed.
        learnt: a temperature of the formula that wants a gradient.

    Raises:
        Unfused: this formula, or this input, has to take another way.
    """
    asked = ask(formula, views.anchors.dtype)
    job = Job(views, formula, asked, mean=mean, learnt=learnt)
    one = asked.rowwise and not both_directions and asked.against <= {"cross"}
    sweep: Sweep
    if one:
        sweep = functools.partial(one_pass, job)
    else:
        sweep = functools.partial(two_passes, job, sides=2 if both_directions else 1)
        check(job)
    inputs = (views.anchors, views.positives, views.negatives, learnt)
    found: Tensor = _Ready.apply(sweep, *inputs)  # type: ignore[no-untyped-call]
    return found


class _Ready(torch.autograd.Function):
    """A scalar whose gradients are computed with it."""

    @staticmethod
    def forward(ctx: Any, run: Sweep, *inputs: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.run = run
        value, ctx.gradients = run()
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if torch.is_grad_enabled():  # create_graph: somebody will differentiate this again
            raise NeedsEager(
                "the rowblock backend has no second derivatives; ask for backend='eager'"
            )
        if ctx.gradients is None:  # a second backward: the first one gave the gradients away
            _, ctx.gradients = ctx.run()
        gradients, ctx.gradients = ctx.gradients, None
        wanted = ctx.needs_input_grad[1:]
        return (
            None,
            *(
                g.mul_(gradient) if w and g is not None else None
                for g, w in zip(gradients, wanted, strict=True)
            ),
        )

"""Which objectives can be computed a few anchors at a time, against all keys: found by trying.

The loss of such an objective is a sum over anchors, each of which needs the whole other view but no
other anchor (InfoNCE, triplets, and the mean of both directions of one). Others need the whole
batch at once: statistics of a view (MHE, Barlow Twins, VICReg), negatives within a view (NT-Xent),
weights over the batch (DCLW). No objective says which it is: :func:`separable` computes it both
ways on small batches and compares values and gradients.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective, Space

__all__ = ["of_rows", "separable"]


def of_rows(objective: Objective, views: Views, rows: slice, *, backend: str = "auto") -> Tensor:
    """Return what some anchors add to ``objective.loss(views)``, where it is separable.

    Where both views are anchors, these are the same rows of either.

    Args:
        objective: a separable one; over slices that cover the batch the results add up to its loss.
        views: square, raw embeddings.
        rows: consecutive anchors.
        backend: as for ``objective.loss``.
    """
    one_way = _OneWay(objective=objective) if objective.two_directions else objective
    directions = [views, views.swapped()] if objective.two_directions else [views]
    blocks = [replace(d, anchors=d.anchors[rows], offset=rows.start) for d in directions]
    value = torch.stack([one_way.loss(block, backend=backend) for block in blocks]).mean()
    if objective.reduction == "sum":
        return value
    return value * (len(blocks[0].anchors) / len(views.anchors))


@functools.lru_cache(maxsize=256)
def separable(objective: Objective) -> bool:
    """Return whether the loss is the sum of :func:`of_rows` over any division of the anchors.

    It is tried on random float64 batches (groups and, where there is a place, negatives among
    them) that are cut in three; values and all gradients must agree to 1e-9.
    """
    return all(_adds_up(objective, views) for views in _batches(objective))


def _batches(objective: Objective) -> Iterator[Views]:
    """A loose batch, one of close views, and one with groups."""
    generator = torch.Generator().manual_seed(0)
    for spread, grouped in ((1.0, False), (0.1, False), (0.5, True)):
        x = torch.randn(3, 12, 6, dtype=torch.float64, generator=generator)
        yield Views(
            x[0],
            spread * x[1] + (1 - spread) * x[0],
            x[2, :3] if objective.takes_negatives else None,
            groups=torch.arange(12) % 9 if grouped else None,
        )


def _adds_up(objective: Objective, views: Views) -> bool:
    try:
        whole = _value_and_gradients(objective, views, [])
        parts = _value_and_gradients(objective, views, [slice(0, 3), slice(3, 8), slice(8, 12)])
    # what a formula written for square views makes of others is its own: it needs them square
    except Exception:
        return False
    return all(
        torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(whole, parts, strict=True)
    )


@torch.enable_grad()
def _value_and_gradients(
    objective: Objective, views: Views, cuts: list[slice]
) -> tuple[Tensor, ...]:
    live = views.map(lambda x: x.detach().clone().requires_grad_())
    loss = objective.loss(live)
    if cuts:
        loss = torch.stack([of_rows(objective, live, rows) for rows in cuts]).sum()
    inputs = [x for x in (live.anchors, live.positives, live.negatives) if x is not None]
    return loss.detach(), *torch.autograd.grad(loss, inputs, materialize_grads=True)


class _OneWay(Objective, register=False):
    """The first direction of an objective that averages both."""

    objective: Objective

    def __post_init__(self) -> None:
        """Take over what the objective declares."""
        for name in ("name", "paper", "batch_level", "takes_negatives", "least_rows", "holds"):
            object.__setattr__(self, name, getattr(self.objective, name))

    @property
    def space(self) -> Space:
        return self.objective.space

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return self.objective.reduction

    def compare(self, views: Views, backend: str = "auto") -> Pairs:
        return self.objective.compare(views, backend)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.objective.formula(pairs)

"""Fits the softmax losses of both directions: CLIP's (InfoNCE of both) and NT-Xent.

Each embedding is an anchor there and a column of the others, so that the losses of others move it,
too, and its gradient is not that of a softmax of its own alone. But with the temperature all of
that is known: with the probabilities P of the one direction and Q of the other,

    dL/dh_i = c / (2 n tau) (sum_j P_ij x_j + sum_k Q_ki h'_k + sum_k P_ki h_k
                             - (2 - P_ii' - Q_i'i) h'_i)

in the tangent plane at h_i, where the third sum is NT-Xent's, whose anchors are columns as well.
So tau and the factor c, two numbers for a whole batch, must give all of its gradient.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.rounding import rounding
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.softmax_fit import ANCHORS, STEP, best_temperature, prepared, share_left

_COARSE = [0.005 * 4e4 ** (k / 25) for k in range(26)]  # 0.005 to 200, in steps of 1.53
_HOPELESS = 0.5  # share of the gradient that the best of these leaves out
_MOST = 1024  # anchors, whose matrices take 70 MB each in float64, and seconds a look
_ENOUGH = 1e-5  # where a temperature leaves out no more, it is known to a thousandth


@dataclass(frozen=True)
class TwoDirectionsFit:
    """A gradient as that of a softmax over the batch in both directions.

    Attributes:
        terms: Components of the anchors' own losses, in float64 on the CPU: GD with the factor and
            the 1/tau, W with rows that sum to 1. The effect of other losses is in the residual.
        temperature: tau.
        factor: The factor of the mean over the rows of both directions.
        misfit: share of the gradient that is left out: 0 all fits, 1 nothing does.
    """

    terms: Terms
    temperature: float
    factor: float
    misfit: float


def fit_two_directions(
    gradient: Tensor,
    views: Views,
    against: Literal["cross", "both"],
    *,
    near: float | None = None,
) -> TwoDirectionsFit | None:
    """Return the loss of both directions that a gradient is nearest to.

    Args:
        gradient: n x d, n times that of the loss by the raw anchors.
        views: the raw embeddings.
        against: ``cross`` is CLIP's loss, ``both`` is NT-Xent.
        near: a temperature to begin with, say that of the last look.

    Returns:
        None where no temperature comes near, or several do as well; where positives come from
        other processes, whose own direction is not seen; and of more than 1,024 anchors, where
        matrices of both directions take gigabytes, and a softmax of one direction is near.
    """
    if views.offset or not len(views.anchors) == len(views.positives) <= _MOST:
        return None
    unit, target = prepared(gradient, views)
    pairs = choose_pairs(unit)
    if not bool(pairs.negative(against).any()) or not bool(target.any()):
        return None
    directions = _Directions(pairs, against)
    rows = torch.linalg.vector_norm(target, dim=1).topk(min(ANCHORS, len(target))).indices

    def misfit(temperature: float) -> float:
        return _fitted(directions.gradient(temperature, rows), target[rows])[1]

    if near is None or misfit(near) > _HOPELESS:
        near = min(_COARSE, key=misfit)
        if misfit(near) > _HOPELESS:
            return None
    tau = best_temperature(misfit, near, enough=_ENOUGH)
    noise = rounding(target.dtype, max(target.shape))
    if min(map(misfit, (STEP * tau, tau / STEP))) <= 2 * misfit(tau) + noise:
        return None
    own = directions.gradient(tau, torch.arange(len(target)))
    factor, left = _fitted(own, target)
    push = directions.push(tau)
    live = push.sum(dim=1)
    weight, size = push / live.where(live > 0, 1.0)[:, None], factor * live / tau
    pushed = tangent(weight @ directions.columns - unit.own, unit.anchors)
    terms = Terms(
        size,
        weight,
        torch.ones_like(size),
        against,
        scale=1 / (2 * len(target)),
        residual=2 * target - size[:, None] * pushed,
    )
    return TwoDirectionsFit(terms, tau, factor, left)


def _fitted(shape: Tensor, target: Tensor) -> tuple[float, float]:
    """The factor of the least squares, not below 0, and the share that it leaves out."""
    square = float(shape.square().sum())
    factor = max(0.0, float((shape * target).sum()) / square) if square else 0.0
    return factor, share_left(target - factor * shape, target)


class _Directions:
    """The softmax of either direction, and the gradient on the anchors."""

    def __init__(self, pairs: Pairs, against: Literal["cross", "both"]) -> None:
        self.views, self.against, self.columns = pairs.views, against, pairs.columns(against)
        self.scores, self.scores_back = map(self._scores, (pairs, pairs.swapped()))

    def _scores(self, pairs: Pairs) -> Tensor:
        """The cosine with the positive, then those with the columns, -inf where no negative."""
        negative = pairs.negative(self.against)
        others = pairs.similarity(self.against).masked_fill(~negative, -torch.inf)
        return torch.cat([pairs.positive[:, None], others], dim=1)

    def push(self, temperature: float) -> Tensor:
        """The probabilities of the columns, n x c."""
        return (self.scores / temperature).softmax(dim=1)[:, 1:]

    def gradient(self, temperature: float, rows: Tensor) -> Tensor:
        """The gradient of the mean over both directions, times n, of some anchors."""
        forth = (self.scores / temperature).softmax(dim=1)
        back = (self.scores_back / temperature).softmax(dim=1)
        total = forth[rows, 1:] @ self.columns
        total += back[:, 1 + rows].T @ self.views.positives
        if self.against == "both":
            total += forth[:, 1 + len(self.views.positives) + rows].T @ self.views.anchors
        total -= (2 - forth[rows, :1] - back[rows, :1]) * self.views.positives[rows]
        return tangent(total, self.views.anchors[rows]) / (2 * temperature)

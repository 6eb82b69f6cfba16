"""Finds the components of a loss of scores, from any model that scores pairs of texts.

Of a matrix of scores S (row i: anchor i against all candidates) and the loss's gradient on it,

    GD_i = -n dL/dS_ii    and    W_ij = (n dL/dS_ij) / GD_i,

whatever the scores are: dot products of sparse vectors, sums over tokens, outputs of a
cross-encoder. A softmax over the scores has log W_ij = S_ij / tau + c_i, which gives tau.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ScoreTerms", "of_scores"]

_SURE = 0.01  # a softmax that leaves out more of the push is none
_ROUNDING = 1e-6  # of the largest weight: what is smaller is rounding of float32


@dataclass(frozen=True)
class ScoreTerms:
    """The components of a batch, by its scores.

    Attributes:
        dissipation: GD, n; it has the 1/tau of a softmax in it where the temperature is None.
        weight: W, n x m, 0 on the positive; rows of anchors without gradient are 0.
        hardest: share of an anchor's push on its highest negative, mean over those with a push.
        temperature: of a softmax; None where the weights are not those of one, or where anchors
            have a single negative.
        misfit: share of the push that a softmax leaves out; 1 without a push.
    """

    dissipation: Tensor
    weight: Tensor
    hardest: float | None
    temperature: float | None
    misfit: float


def of_scores(scores: Tensor, gradient: Tensor) -> ScoreTerms:
    """Return the components. The positive is where the gradient is negative.

    Args:
        scores: n x m, row i of anchor i.
        gradient: n x m, of the mean over the anchors.
    """
    s, g = scores.detach().cpu().double(), len(scores) * gradient.detach().cpu().double()
    positive = torch.zeros_like(s, dtype=torch.bool).scatter_(
        1, g.argmin(dim=1, keepdim=True), True
    )
    force = -g[positive]
    push = g.masked_fill(positive, 0.0)
    live = (force > 0) & (push.sum(dim=1) > 0)
    weight = torch.where(live[:, None], push / force.where(live, 1.0)[:, None], 0.0)
    few = weight.clamp_min(0)
    few = few.masked_fill(few < _ROUNDING * few.max(), 0.0)
    tau = _temperature(s, few)
    misfit = 1.0
    if tau is not None:
        soft = (s / tau).masked_fill(positive, -torch.inf).softmax(dim=1) * push.sum(dim=1)[:, None]
        misfit = float((push - soft).norm() / push.norm())
    softmax = tau is not None and misfit <= _SURE
    highest = s.masked_fill(positive, -torch.inf).argmax(dim=1, keepdim=True)
    shares = (few.gather(1, highest)[:, 0] / few.sum(dim=1).where(live, 1.0))[live]
    unit = tau if softmax and tau is not None else 1.0
    return ScoreTerms(
        force.clamp_min(0) * unit,
        weight,
        float(shares.mean()) if len(shares) else None,
        tau if softmax else None,
        misfit,
    )


def _temperature(scores: Tensor, weight: Tensor) -> float | None:
    """1 over the slope of log W on S within the rows, each pair counted by its weight."""
    weighted = weight > 0
    total = weight.sum(dim=1, keepdim=True)
    part = weight / total.where(total > 0, 1.0)
    log = torch.where(weighted, weight, 1.0).log()
    x = scores - (part * scores).sum(dim=1, keepdim=True)
    y = log - (part * log).sum(dim=1, keepdim=True)
    spread = float((part * x.square())[weighted].sum())
    slope = float((part * x * y)[weighted].sum()) / spread if spread > 0 else 0.0
    return 1 / slope if slope > 0 else None

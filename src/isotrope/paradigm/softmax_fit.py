"""Fits a softmax over the batch, with its temperature, to the gradient of an unknown loss.

The gradient of anchor i of any softmax family (InfoNCE, DCL, NT-Xent, sentence-transformers'
``MultipleNegativesRankingLoss``) lies, in the tangent plane at h_i, in the span of two vectors:

    g_i = a_i sum_j softmax_j(s_ij / tau) x_j - b_i h'_i.

With one tau for the batch, each anchor has two unknowns and d - 1 equations, whatever the number of
columns. The chosen tau leaves out the least of the gradient. A loss that gives hard negatives more
weight is recognised with the lower temperature that has the same weights.

A loss of pairs (CoSENT, cosine similarity, contrastive) has a_i = 0: it has no in-batch negatives.
It differs from a softmax whose anchors have been learned, for which a_i and b_i go to 0 together.
"""

import math
from collections.abc import Callable
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

_COARSE = [0.002 * 1e5 ** (k / 48) for k in range(49)]  # 0.002 to 200
ANCHORS = 32  # the temperature is fitted to the anchors with the largest gradients
_DIMENSIONS = 6  # with fewer, two vectors span too much of the tangent plane to be evidence
_GOLDEN = (math.sqrt(5) - 1) / 2
_ROUNDS = 24  # of the golden section, which give the temperature to 1e-5
_CLOSE = 1e-4  # a known temperature that leaves out less is kept
_VARIED = 0.1  # a factor shows only if GD varies by this much (root mean square)
EQUAL = 0.02  # largest difference between equal factors, and of a factor of 1 from 1, unrounded
_FAR = 1.5  # times; NT-Xent's GD looks 0.8 times as large, because its anchors are negatives too
STEP = 1.25  # a temperature further away than this factor must fit clearly worse


@dataclass(frozen=True)
class SoftmaxFit:
    """A gradient described as that of a softmax over the batch.

    Attributes:
        terms: GD, W and pull, where each row of W sums to 1; float64 on the CPU. GD includes the
            1/tau of the loss.
        temperature: Tau; None if several fit equally well, as with a single negative, or if the
            best is at the end of the range from 0.002 to 200.
        misfit: Share of the gradient that is left out: 0 if all fits, 1 if nothing does.
        even: Whether the weights are as even as at the highest of these temperatures, so that GD
            may include any 1/tau smaller than that of this temperature.
    """

    terms: Terms
    temperature: float | None
    misfit: float
    even: bool = False


@dataclass(frozen=True)
class PairFit:
    """A gradient described as that of the pairs (anchor, its own positive) alone.

    Attributes:
        pull: n pulls towards the own positive; below 0 where the pair is pushed apart.
        misfit: Share of the gradient that is left out.
    """

    pull: Tensor
    misfit: float


def normalised(embeddings: Tensor) -> bool:
    """Return whether all rows have norm 1 to within 1%, so that any loss compares cosines."""
    norms = torch.linalg.vector_norm(embeddings.detach().cpu().double(), dim=1)
    return bool(((norms - 1).abs() < 0.01).all())


def radial(gradient: Tensor, anchors: Tensor) -> float:
    """Return the share of a gradient that changes norms: 0 for a loss of cosines.

    Args:
        gradient: n x d, gradient of a loss with respect to the raw anchors.
        anchors: n x d raw anchors.
    """
    x, g = (value.detach().cpu().double() for value in (anchors, gradient))
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return share_left((x * g).sum(dim=1, keepdim=True) / norm.where(norm > 0, 1.0), g)


def fit_pairs(gradient: Tensor, views: Views) -> PairFit:
    """Return the pull of each anchor's own positive, and the unexplained remainder.

    Args:
        gradient: n x d, gradient of the loss with respect to the raw anchors.
        views: Raw embeddings.
    """
    unit, target = prepared(gradient, views)
    positive = tangent(unit.own, unit.anchors)
    square = positive.square().sum(dim=1)
    pull = -(positive * target).sum(dim=1) / square.where(square > 0, 1.0)
    return PairFit(pull, share_left(target + pull[:, None] * positive, target))


def fit_softmax(
    gradient: Tensor,
    views: Views,
    against: Literal["cross", "both"] = "cross",
    *,
    near: float | None = None,
) -> SoftmaxFit | None:
    """Return the softmax closest to a gradient.

    Args:
        gradient: n x d. Row i is the gradient of anchor i's own loss with respect to the raw
            anchor: n times the gradient of a mean over n anchors. ``terms.scale`` is 1/n, that of
            the mean.
        views: Raw embeddings; rows of one group are not negatives of each other.
        against: View of the negatives: the other, or both (NT-Xent).
        near: Temperature to start from, such as that of the previous reading. It is chosen if
            several fit equally well.

    Returns:
        The fit; None with fewer than 6 dimensions, without negatives, or without a gradient.
    """
    unit, target = prepared(gradient, views)
    pairs = choose_pairs(unit)
    negative = pairs.negative(against)
    few = target.shape[1] < _DIMENSIONS or not bool(negative.any(dim=1).all())
    if few or not bool(target.any()):
        return None
    rows = torch.linalg.vector_norm(target, dim=1).topk(min(ANCHORS, len(target))).indices
    noise = rounding(gradient.dtype, max(target.shape))
    part = _PairRows(pairs, target, against, rows, noise)
    temperature_ = best_temperature(part.misfit, near)
    determined = bool((negative.sum(dim=1) > 1).any()) and _COARSE[1] < temperature_ < _COARSE[-2]
    # every misfit includes the gradient's rounding; the solution in float64 adds its own
    alike = 2 * part.misfit(temperature_) + rounding(target.dtype, max(target.shape))
    if determined:
        determined = min(map(part.misfit, (STEP * temperature_, temperature_ / STEP))) > alike
    if not determined and near is not None and part.misfit(near) <= alike:
        temperature_, determined = near, True
    all_rows = _PairRows(pairs, target, against, torch.arange(len(target)), noise)
    weight, push, pull = all_rows.solved(temperature_)
    divisor = push.where(push != 0, 1.0)
    residual = all_rows.residual(weight, push, pull)
    terms = Terms(push, weight, pull / divisor, against, scale=1 / len(target), residual=residual)
    left = share_left(residual, target)
    if determined:
        return SoftmaxFit(terms, temperature_, left)
    even = part.misfit(_COARSE[-1]) <= max(_CLOSE, 2 * part.misfit(temperature_))
    return SoftmaxFit(terms, None, left, even=even)


def factor(terms: Terms, views: Views, temperature: float) -> float | None:
    """Return the factor of an InfoNCE loss; 1 for another loss, None if it is unknown.

    InfoNCE has GD = 1 / (1 + e^{s_ii'/tau} / sum_k e^{s_ik'/tau}), which needs no gradient. If GD
    varies between anchors and is the same multiple of this value for each, the loss has a factor: a
    weight, or 1 over the number of accumulated batches. If GD is the same for all anchors, it may
    be that of InfoNCE where that is constant too, or that of DCL, which is 1. If it is far from
    both, the loss has a factor or is of another kind; the gradient does not show which.

    Args:
        terms: Recognised components, with the 1/tau in GD.
        views: Raw embeddings.
        temperature: Tau.
    """
    pairs = choose_pairs(views.map(lambda x: x.detach().cpu().double()).unit())
    candidates = pairs.logsumexp(temperature, terms.against)
    expected = torch.sigmoid(candidates - pairs.positive / temperature)
    shown = temperature * terms.dissipation.to(expected)
    multiple = float((shown * expected).mean() / expected.square().mean())
    apart = torch.linalg.vector_norm(shown - multiple * expected)
    # the exponent is a rounded cosine divided by tau
    equal = EQUAL + torch.finfo(views.anchors.dtype).eps / temperature
    fits = float(apart) < equal * float(torch.linalg.vector_norm(shown))
    if fits and _varied(expected):
        return multiple if abs(multiple - 1) > equal else 1.0
    of_dcl = float(shown.mean())
    near = any(1 / _FAR < x < _FAR for x in ((multiple, of_dcl) if fits else (of_dcl,)))
    return 1.0 if near or _varied(shown) else None


def _varied(dissipation: Tensor) -> bool:
    mean_square = float(dissipation.square().mean())
    return float(dissipation.var(unbiased=False)) >= _VARIED**2 * mean_square


def prepared(gradient: Tensor, views: Views) -> tuple[Views, Tensor]:
    """Return unit rows and their gradient in the tangent planes; float64 on the CPU."""
    raw = views.map(lambda x: x.detach().cpu().double())
    norm = torch.linalg.vector_norm(raw.anchors, dim=1, keepdim=True)
    unit = raw.unit()
    return unit, tangent(gradient.detach().cpu().double() * norm, unit.anchors)


def share_left(part: Tensor, total: Tensor) -> float:
    """Return the norm of a part divided by that of the total; 0 if the total is 0."""
    size = float(torch.linalg.vector_norm(total))
    return float(torch.linalg.vector_norm(part)) / size if size else 0.0


class _PairRows:
    """Some anchors of a batch; measures how well a temperature fits their gradients."""

    def __init__(
        self,
        pairs: Pairs,
        target: Tensor,
        against: Literal["cross", "both"],
        rows: Tensor,
        noise: float,
    ) -> None:
        self.noise = noise
        self.target, self.anchors = target[rows], pairs.views.anchors[rows]
        self.own = tangent(pairs.views.own[rows], self.anchors)
        self.columns = pairs.columns(against)
        similarity = pairs.similarity(against)[rows]
        self.similarity = similarity.masked_fill(~pairs.negative(against)[rows], -torch.inf)

    def solved(self, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (n x c), and the push and pull (n each) from least squares."""
        weight = (self.similarity / temperature).softmax(dim=1)
        sides = torch.stack([tangent(weight @ self.columns, self.anchors), -self.own], dim=1)
        length = torch.linalg.vector_norm(sides, dim=2, keepdim=True)
        length = length.where(length > self.noise, torch.inf)
        sides = sides / length
        inverse = torch.linalg.pinv(sides @ sides.mT, hermitian=True, rtol=self.noise)
        solution = inverse @ (sides @ self.target[:, :, None]) / length
        return weight, solution[:, 0, 0], solution[:, 1, 0]

    def residual(self, weight: Tensor, push: Tensor, pull: Tensor) -> Tensor:
        """The unexplained rest of the gradient, n x d."""
        pushed = tangent(weight @ self.columns, self.anchors)
        return self.target - push[:, None] * pushed + pull[:, None] * self.own

    def misfit(self, temperature: float) -> float:
        """The unexplained share."""
        return share_left(self.residual(*self.solved(temperature)), self.target)


def best_temperature(
    misfit: Callable[[float], float], near: float | None, *, enough: float = _CLOSE
) -> float:
    """Return the temperature of least misfit: a grid or ``near``, then golden section."""
    if near is not None and misfit(near) <= enough:
        return near
    grid = _COARSE if near is None else [near * STEP**k for k in (-2, -1, 0, 1, 2)]
    middle = min(grid, key=misfit)
    if near is not None and middle in (grid[0], grid[-1]):
        return best_temperature(misfit, None, enough=enough)
    step = math.log(grid[1] / grid[0])
    low, high = math.log(middle) - step, math.log(middle) + step
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    left, right = misfit(math.exp(inner)), misfit(math.exp(outer))
    for _ in range(_ROUNDS):
        if left < right:
            high, outer, right = outer, inner, left
            inner = high - _GOLDEN * (high - low)
            left = misfit(math.exp(inner))
        else:
            low, inner, left = inner, outer, right
            outer = low + _GOLDEN * (high - low)
            right = misfit(math.exp(outer))
    return math.exp((low + high) / 2)

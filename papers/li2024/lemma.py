"""Lemma 1 of Li et al. 2024: the ratios at which a step brings an anchor closer to its positive.

In the tangent plane at h_i the positive lies at p, of length sin theta_ii', a negative at q, of
length sin theta_ij', and alpha is the angle between them. A step lambda (r p - q) from the origin
ends closer to p than it began, |lambda (r p - q) - p| < |p|, if and only if lower < r < upper:

    1/lambda + sin theta_ij' cos alpha / sin theta_ii'
        -/+ sqrt( 1/lambda^2 - sin^2 theta_ij' sin^2 alpha / sin^2 theta_ii' )

and the root exists. The paper prints the lower bound; a ratio above the upper one overshoots, and
without a root no ratio helps. The statement is about the plane, not about the sphere.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrope import Views
from isotrope.core import unit
from isotrope.paradigm import build, tangent


class Range(NamedTuple):
    """The ratios that bring an anchor closer to its positive.

    Attributes:
        lower: bound, excluded; NaN where the discriminant is negative.
        upper: bound, excluded; infinite at step 0, NaN where the discriminant is negative.
        discriminant: step^2 times what stands under the printed root, so that it is 1 at step 0.
    """

    lower: Tensor
    upper: Tensor
    discriminant: Tensor


class AnchorAngles(NamedTuple):
    """The angles of an anchor that Lemma 1 compares, in radians.

    Attributes:
        positive: theta_ii', between the anchor and its positive.
        negative: theta_in', between the anchor and its hardest negative.
        dihedral: alpha, between the planes that the anchor spans with either.
    """

    positive: Tensor
    negative: Tensor
    dihedral: Tensor


def lemma1(
    theta_pos: Tensor | float,
    theta_neg: Tensor | float,
    alpha: Tensor | float,
    step: Tensor | float,
) -> Range:
    """Return the bounds of the ratio (Li et al. 2024, Lemma 1 and appendix C).

    The arguments broadcast; numbers are taken as float64. Step 0 is the limit of small steps:
    the lower bound is sin theta_ij' cos alpha / sin theta_ii'.

    Example:
        >>> import math
        >>> lower, upper, _ = lemma1(math.pi / 6, math.pi / 3, 0.5, step=1.0)
        >>> round(float(lower), 4), round(float(upper), 4)
        (1.9628, 3.0772)
    """
    theta_pos, theta_neg, alpha, step = (
        x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64)
        for x in (theta_pos, theta_neg, alpha, step)
    )
    if bool((step < 0).any()):
        raise ValueError(f"step must be 0 or more; found {float(step.min()):g}")
    quotient = theta_neg.sin() / theta_pos.sin()
    along = quotient * alpha.cos()
    across = (quotient * alpha.sin()).square()
    discriminant = 1 - step.square() * across
    root = discriminant.sqrt()  # NaN where there is none
    # 1/step - sqrt(1/step^2 - across) without the difference of two large numbers
    return Range(along + step * across / (1 + root), along + (1 + root) / step, discriminant)


def angles(anchors: Tensor, positives: Tensor) -> AnchorAngles:
    """Return n of each angle, for the hardest negative of the other view (first at ties).

    alpha is the angle of the tangent parts of h'_i and h'_n at h_i; where one of them vanishes it
    is pi/2.
    """
    return angles_of(Views(anchors, positives))


def angles_of(views: Views) -> AnchorAngles:
    """Return n of each angle, as :func:`angles`, of raw views with whatever negatives they have."""
    statistics = build("infonce").compare(views)
    views, negative = statistics.views, statistics.negative()
    if not bool(negative.any(dim=1).all()):
        raise ValueError("Lemma 1 needs a negative for each anchor; found one without")
    masked = statistics.similarity().masked_fill(~negative, -torch.inf)
    hardest = statistics.columns()[masked.argmax(dim=1)]
    positive, other = tangent(views.own, views.anchors), tangent(hardest, views.anchors)
    # by two arguments: arccos loses half the digits of a small angle
    u, v = unit(positive), unit(other)
    return AnchorAngles(
        torch.atan2(positive.norm(dim=1), (views.own * views.anchors).sum(dim=1)),
        torch.atan2(other.norm(dim=1), (hardest * views.anchors).sum(dim=1)),
        2 * torch.atan2((u - v).norm(dim=1), (u + v).norm(dim=1)),
    )

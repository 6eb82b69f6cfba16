"""What Draganov et al. (2024) say of random directions, and of push and pull, checked on draws."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.measures.opposite_halves import opposite_halves
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.objective import Objective
from papers.theorems.cosine import cosine_tail

__all__ = ["FAR", "OppositeHalves", "push_over_pull", "random_halves"]

FAR = 7 * math.pi / 8  # from here on, says appendix C.1, the effect could matter


@dataclass(frozen=True)
class OppositeHalves:
    """How often two random directions are further apart than an angle.

    Attributes:
        dimension: d.
        angle: radians.
        share: the share of the pairs drawn.
        exact: the probability.
        bound: the paper's (Prop. C.1), None where it says nothing: at pi/2, or where it exceeds 1.
    """

    dimension: int
    angle: float
    share: float
    exact: float
    bound: float | None


def random_halves(
    dimension: int,
    angles: Sequence[float] = (math.pi / 2, FAR),
    *,
    pairs: int = 100_000,
    seed: int = 0,
) -> list[OppositeHalves]:
    """Draw pairs of normal vectors and count those far apart (Draganov et al., 2024, appendix C.1).

    Args:
        dimension: d, 2 or more.
        angles: angles from pi/2 on, below pi.
        pairs: drawn; the same for every angle.
        seed: the seed of the draw.

    Raises:
        InputError: an angle or a dimension out of range.
        MissingExtra: scipy is not installed.
    """
    if dimension < 2 or not all(math.pi / 2 <= angle < math.pi for angle in angles):
        raise InputError(
            "opposite halves need 2 or more dimensions and angles from pi/2 on, below pi; found "
            f"{dimension} and {', '.join(f'{angle:g}' for angle in angles)}"
        )
    random = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, pairs, dimension, generator=random, dtype=torch.float64)
    shares = []
    for angle in angles:
        share = float(opposite_halves(x, y, angle))
        if angle == math.pi / 2:
            shares.append(OppositeHalves(dimension, angle, share, 0.5, None))
            continue
        tail = cosine_tail(dimension, 1 + math.cos(angle))  # P(cos <= -c) = P(cos >= c)
        bound = float(tail.right) if tail.right < 1 else None
        shares.append(OppositeHalves(dimension, angle, share, float(tail.left), bound))
    return shares


@torch.no_grad()
def push_over_pull(objective: Objective, views: Views) -> Tensor:
    """Return n lengths of what pushes an anchor over that of what pulls it, in its tangent plane.

    Draganov et al. (2024, footnote 4) take the repulsion to be the smaller, as a mean of unit
    vectors: their mean is shorter than each, but so may be the tangent part of the positive. It is
    a number to look at, below 1 or above.

    Args:
        objective: any with components.
        views: raw embeddings, n x d.

    Returns:
        n, infinite where nothing pulls, NaN where nothing pushes either.

    Raises:
        NoTerms: the objective has no components.
    """
    pairs = objective.compare(views)
    terms, seen = objective.components(pairs), pairs.views
    pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
    pushed = tangent(terms.weight @ pairs.columns(terms.against), seen.anchors)
    pulled = tangent(pull * seen.own, seen.anchors)
    quotient: Tensor = pushed.norm(dim=1) / pulled.norm(dim=1)
    return quotient

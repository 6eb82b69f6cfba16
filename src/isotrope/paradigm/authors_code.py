"""Gradient components of the released code of Li et al. 2024, where it differs from the paper.

The code sums two losses: each view serves once as anchors. Both losses pull h_i, as an anchor and
as the positive of h'_i, so the effective ratio is about twice the chosen ratio. By default,
objectives follow the paper's equations; ``variant="released"`` selects the components of this
module.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from torch import Tensor

from isotrope.core.hyper import Hyper
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.parts import Dissipation, active

Variant = Annotated[
    Literal["paper", "released"],
    Hyper("", "whether to follow the equation in the paper or the authors' released code"),
]


@dataclass(frozen=True)
class WithinViewMargin(Dissipation):
    """GD = 1 if the anchor's cosine with another row of its own view is above 1 - m, else 0.

    The released code of the modified objectives has GD = 1[1 - max_k h_i.h_k < m]. ``Margin`` has
    the similarity of the positive in place of 1. With the 1, the gradient stops earlier.
    """

    margin: Annotated[float, Hyper("m", "GD is 0 if all cosines are <= 1 - m", at_least=0)] = 0.3

    def __call__(self, pairs: Pairs) -> Tensor:
        return active(1 - pairs.hardest("within"), self.margin)


def rows_masked(first: Terms, other: Terms, views: Views) -> Terms:
    """Return the components of the empirical baseline (eq. 5), as in the released code.

    The loss of each direction is a mean over the similarity matrix without the rows with GD = 0. If
    no row is left, the loss is 0.

    Args:
        first: Components of the direction in which the first view serves as anchors.
        other: Components of the other direction, in which the second view serves as anchors.
        views: The views of ``first``.
    """
    active, others = (int((t.dissipation > 0).sum().clamp_min(1)) for t in (first, other))
    received = active / others * other.dissipation * other.pull
    moves = first.dissipation > 0
    share = received / first.dissipation.where(moves, 1.0)
    return replace(
        first,
        pull=first.pull + share * moves,
        scale=1 / (active * first.weight.shape[1]),
        residual=-(received * ~moves)[:, None] * views.own,
    )


def vectors_masked(first: Terms, other: Terms) -> Terms:
    """Return the components of the modified objectives, as in the released code.

    An anchor with dissipation GD = 0 is replaced by a constant, so it receives no gradient, neither
    as an anchor nor as a positive or negative. An anchor with GD = 1 is pulled by both directions,
    also if its positive has GD = 0.
    """
    return replace(first, pull=first.pull + other.pull, scale=2 * first.scale)

"""Gradient components of the released code of Li et al. 2024, where it differs from the paper.

The code sums two losses: each view serves once as anchors. One loss pulls h_i as an anchor, and the
other as the positive of h'_i, so the effective ratio is about twice the chosen ratio. By default,
objectives follow the paper's equations. ``variant="released"`` selects the components of this
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

    The released code of the modified objectives uses this: GD = 1[1 - max_k h_i.h_k < m].
    ``Margin`` has GD = 1[s_ii' - max_k s_ik' < m], so the gradient stops later.
    """

    margin: Annotated[float, Hyper("m", "GD is 0 if cosines of anchors <= 1 - m", at_least=0)] = 0.3

    def __call__(self, pairs: Pairs) -> Tensor:
        return active(1 - pairs.hardest("within"), self.margin)


def rows_masked(first: Terms, other: Terms, views: Views) -> Terms:
    """Return GD, W and R of the empirical baseline of Li et al. 2024 (eq. 5), as in their code.

    Each direction has a loss: the mean over those rows of the similarity matrix whose GD is 1, and
    0 if there are no such rows.

    Args:
        first: Components of the direction in which the anchors are the first view.
        other: Components of the direction in which the anchors are the second view.
        views: The views of ``first``.
    """
    rows, other_rows = (int((t.dissipation > 0).sum().clamp_min(1)) for t in (first, other))
    # the pull that h_i gets as the positive of h'_i, in units of this direction's mean over rows
    received = rows / other_rows * other.dissipation * other.pull
    # GD multiplies the pull, so ``received`` is divided by GD; if GD is 0, it is a residual
    moves = first.dissipation > 0
    share = received / first.dissipation.where(moves, 1.0)
    return replace(
        first,
        pull=first.pull + share * moves,
        scale=1 / (rows * first.weight.shape[1]),
        residual=-(received * ~moves)[:, None] * views.own,
    )


def vectors_masked(first: Terms, other: Terms) -> Terms:
    """Return GD, W and R of the modified objectives of Li et al. 2024, as in their released code.

    An anchor with dissipation GD = 0 is replaced by a constant, so the anchor receives no gradient,
    also not as a positive or negative. An anchor with GD = 1 is pulled in both directions, even if
    its positive has GD = 0.

    Args:
        first: Components of the direction in which the anchors are the first view.
        other: Components of the direction in which the anchors are the second view.
    """
    return replace(first, pull=first.pull + other.pull, scale=2 * first.scale)

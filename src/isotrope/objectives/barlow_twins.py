"""Barlow Twins: make the cross-correlation of the two views the identity."""

from typing import Annotated

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper
from isotrope.core.moments import cross_moment
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective, Paper


class BarlowTwins(
    Objective,
    paper=Paper(
        "Barlow Twins: Self-Supervised Learning via Redundancy Reduction",
        "Zbontar et al., 2021",
        "paper 000, section 4.1, eq. 10, table 2",
    ),
):
    r"""Decorrelate the coordinates of l2-normalised embeddings, as paper 000 does for sentences.

    Loss: L = sum_k (C_kk - 1)^2 + nu sum_{k != l} C_kl^2, C = sum_i h_i h'_i^T / N.

    Gradient: GD = 1; W_ij = 2 nu h'_i.h'_j / N^2; the positive is pulled by the matrix
    (2/N) (I - (1 - nu) diag C), one value for each coordinate; the residual (2 nu / N^2)
    |h'_i|^2 h_i is radial.

    Shapes: anchors n x d, positives n x d -> scalar (a batch statistic; no loss per anchor).

    Reference: paper 000, eq. 10 and table 2, upper half; gradient after Tao et al., 2022.

    Example:
        >>> import torch
        >>> float(BarlowTwins(weight=1.0)(torch.eye(2), torch.eye(2)))
        0.5
    """

    weight: Annotated[float, Hyper("nu", "weight of the off-diagonal entries", at_least=0)] = 30.0

    batch_level = True
    takes_negatives = False
    invariances = frozenset({"permutation", "scale", "view swap"})

    def formula(self, pairs: Pairs) -> Tensor:
        c = cross_moment(pairs.views)
        diagonal = c.diagonal()
        off_diagonal = c.square().sum() - diagonal.square().sum()
        return (diagonal - 1).square().sum() + self.weight * off_diagonal

    def components(self, pairs: Pairs) -> Terms:
        views, n = pairs.views, len(pairs.views.anchors)
        nu = self.weight
        gram = views.own @ views.own.T
        weight = 2 * nu / n**2 * gram
        own = weight.diagonal().clone()
        weight.fill_diagonal_(0)
        coordinate = 1 - (1 - nu) * cross_moment(views).diagonal()
        return Terms(
            dissipation=torch.ones_like(own),
            weight=weight,
            pull=(2 / n * coordinate).expand(n, -1),
            against="within",
            residual=own[:, None] * views.anchors,
        )

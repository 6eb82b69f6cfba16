"""Barlow Twins: make the cross-correlation of the two views the identity."""

from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset
from isotrope.core.moments import moments_across
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import products

_SCRIPTS = "Li et al., 2024, table 3, released scripts"


class BarlowTwins(
    Objective,
    paper=Paper(
        "Barlow Twins: Self-Supervised Learning via Redundancy Reduction",
        "Zbontar et al., 2021",
        "Li et al., 2024, appendix D.2, eq. 10, table 2",
    ),
):
    r"""Pull positives together and decorrelate the coordinates of l2-normalised embeddings.

    Loss: L = sum_k (C_kk - 1)^2 + nu sum_{k != l} C_kl^2, C = sum_i h_i h'_i^T / N, where h_i and
    h'_i are row i of the two views, and nu is ``weight``. With space="batchnorm", rows keep their
    lengths; each column of each view is standardised over the batch. L is then the loss of Zbontar
    et al., who use nu = 0.0051.

    Gradient: dissipation GD = 1; weight W_ij = 2 nu h'_i.h'_j / N^2; the pull on h_i is the vector
    (2/N) A h'_i, with the diagonal matrix A = I - (1 - nu) diag C; the rest of the gradient, (2 nu
    / N^2) |h'_i|^2 h_i, has no effect, because it is parallel to h_i and embeddings are normalised.
    There is no single R, because A scales each coordinate differently. GD, W and R are not defined
    for space="batchnorm".

    Shapes: anchors n x d, positives n x d -> scalar (a batch statistic; no loss per anchor).

    Reference: Li et al., 2024, eq. 10 and table 2, upper half; the gradient follows Tao et al.,
    2022. The default nu is the value in the scripts that Li et al. (2024) released.

    Example:
        >>> import torch
        >>> float(BarlowTwins(weight=1.0)(torch.eye(2), torch.eye(2)))
        0.5
    """

    weight: Annotated[
        float, Hyper("nu", "weight of the squared off-diagonal elements of C", at_least=0)
    ] = 30.0
    space: Annotated[
        Literal["sphere", "batchnorm"],
        Hyper("", "sphere: rows get length 1; batchnorm: columns are standardised over the batch"),
    ] = "sphere"

    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"weight": 30.0}, 1e-5, 128, _SCRIPTS),
        "roberta-base": Preset({"weight": 30.0}, 1e-6, 512, _SCRIPTS),
    }
    batch_level = True
    pairwise = False
    takes_negatives = False

    @property
    def invariances(self) -> frozenset[str]:
        if self.space != "sphere":
            return frozenset({"permutation", "view swap"})
        axes = {"rotation"} if self.weight == 1 else set()
        return frozenset({"permutation", "view swap", "scale"} | axes)

    def formula(self, pairs: Pairs) -> Tensor:
        invariance, redundancy = _terms(pairs.views)
        return invariance + self.weight * redundancy

    def attraction(self, pairs: Pairs) -> Tensor:
        return _terms(pairs.views)[0]

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.weight * _terms(pairs.views)[1]

    def components(self, pairs: Pairs) -> Terms:
        if self.space != "sphere":
            return super().components(pairs)
        views, n = pairs.views, len(pairs.views.anchors)
        nu = self.weight
        radial = 2 * nu / n**2 * views.own.square().sum(dim=1)
        coordinate = 1 - (1 - nu) * (views.anchors * views.own).mean(dim=0)
        return Terms(
            dissipation=torch.ones_like(radial),
            weight=2 * nu / n**2 * products(pairs, views.own, views.own, against="within"),
            pull=(2 / n * coordinate).expand(n, -1),
            against="within",
            residual=radial[:, None] * views.anchors,
        )


def _terms(views: Views) -> tuple[Tensor, Tensor]:
    """Return sum_k (C_kk - 1)^2 and sum_{k != l} C_kl^2."""
    diagonal, squares = moments_across(views.anchors, views.own, 1 / views.anchors.shape[0])
    short = diagonal - 1
    return short.dot(short), squares - diagonal.dot(diagonal)

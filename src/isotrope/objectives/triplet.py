"""MPT, MET and MAT: triplet losses on the hardest negative, with a margin on three distances."""

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.dissipation import Margin
from isotrope.paradigm.metric import Metric, dissimilarity, slope
from isotrope.paradigm.objective import Objective, Paper, Preset
from isotrope.paradigm.weight import Hardest

_TITLE = (
    "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of "
    "Sentence Representations"
)
_TABLE = "Nie et al., 2023, table 2"


def _loss(pairs: Pairs, margin: float, metric: Metric) -> Tensor:
    gap = dissimilarity(pairs.hardest(), metric) - dissimilarity(pairs.positive, metric)
    return torch.relu(margin - gap)


def _terms(pairs: Pairs, margin: float, metric: Metric) -> Terms:
    return Terms(
        dissipation=Margin(margin=margin, metric=metric)(pairs),
        weight=Hardest(metric=metric)(pairs),
        # not the ratio times the weight: beside a clamped negative the positive still pulls
        pull=slope(pairs.positive, metric),
        scale=1 / len(pairs.views.anchors),
    )


class MPT(
    Objective,
    paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 13; Li et al., 2024, table 1"),
):
    r"""Minimum dot Product Triplet loss: a margin between two similarities.

    Loss: L_i = max(0, m - s_ii' + max_{k != i} s_ik').

    Gradient: GD_i = 1[s_ii' - s_in' < m], n the hardest negative (first index at ties);
    W_in = 1, all other W_ij = 0; R = 1.

    Li et al. (2024) print the triplet form with - max d(h_i, h'_j); right is - min, the hardest
    negative being the nearest. Nie et al. (2023, eq. 20) print the condition s_ii' + max s_ik' < m;
    right is the difference. The mean is over all anchors, active or not.

    The authors' released code takes the hardest of each column: h'_i is the anchor, and the h_k are
    its negatives. That is this loss with the two views exchanged.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 13; Li et al., 2024, eq. 3 and table 1. It is the upper bound
    of InfoNCE (Nie et al., 2023, eq. 12) with tau log(N - 1) replaced by the margin.

    Example:
        >>> import torch
        >>> round(float(MPT()(torch.eye(2), torch.eye(2).flip(0))), 6)
        1.23
    """

    margin: Annotated[
        float, Hyper("m", "gap of similarity at which the gradient stops", at_least=0)
    ] = 0.23

    coupling = "none"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.23}, 1e-5, 64, _TABLE),
        "bert-large": Preset({"margin": 0.24}, 1e-5, 64, _TABLE),
        "roberta-base": Preset({"margin": 0.29}, 7e-6, 64, _TABLE),
        "roberta-large": Preset({"margin": 0.31}, 7e-6, 64, _TABLE),
    }

    def formula(self, pairs: Pairs) -> Tensor:
        return _loss(pairs, self.margin, "dot")

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.margin, "dot")


class MET(
    Objective,
    paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 14; Li et al., 2024, table 1"),
):
    r"""Minimum Euclidean distance Triplet loss: a margin between two distances.

    Loss: L_i = max(0, m + d_ii' - min_{k != i} d_ik'), d = sqrt(2 - 2 s).

    Gradient: GD_i = 1[d_in' - d_ii' < m], n the hardest negative (first index at ties);
    W_in = 1 / d_in', all other W_ij = 0; R = d_in' / d_ii'. Exact in the ambient space for
    sqrt(2 - 2 s); the derivative of |h_i - h'_j| itself has a further part along h_i.

    A pair closer than 0.01 is held at 0.01 and neither pulls nor pushes. Li et al. (2024, appendix
    D) print the condition d_ii' - d_in' < m, as Nie et al. (2023, eq. 21) do; right is d_in' -
    d_ii' < m.

    The authors' released code takes the hardest of each column: h'_i is the anchor, and the h_k are
    its negatives. That is this loss with the two views exchanged.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 14; Li et al., 2024, eq. 3 and table 1.

    Example:
        >>> import torch
        >>> round(float(MET()(torch.eye(2), torch.eye(2).flip(0))), 6)
        1.854213
    """

    margin: Annotated[
        float, Hyper("m", "gap of distance at which the gradient stops", at_least=0)
    ] = 0.45

    coupling = "none"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.45}, 1e-5, 128, _TABLE),
        "bert-large": Preset({"margin": 0.50}, 1e-5, 128, _TABLE),
        "roberta-base": Preset({"margin": 0.43}, 7e-6, 128, _TABLE),
        "roberta-large": Preset({"margin": 0.45}, 7e-6, 128, _TABLE),
    }

    def formula(self, pairs: Pairs) -> Tensor:
        return _loss(pairs, self.margin, "distance")

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.margin, "distance")


class MAT(Objective, paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 15")):
    r"""Minimum Angle Triplet loss: a margin between two angles.

    Loss: L_i = max(0, m + theta_ii' - min_{k != i} theta_ik'), in radians.

    Gradient: GD_i = 1[theta_in' - theta_ii' < m], n the hardest negative (first index at ties);
    W_in = 1 / sin theta_in', all other W_ij = 0; R = sin theta_in' / sin theta_ii'.

    A pair closer than 0.01, or as close to antipodal, is held there and neither pulls nor pushes.
    Nie et al. (2023, eq. 22) print the condition with the difference reversed.

    The authors' released code takes the hardest of each column: h'_i is the anchor, and the h_k are
    its negatives. That is this loss with the two views exchanged.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 15.

    Example:
        >>> import torch
        >>> round(float(MAT(margin=0.5)(torch.eye(2), torch.eye(2).flip(0))), 6)
        2.060796
    """

    margin: Annotated[
        float, Hyper("m", "gap of angle, in radians, at which the gradient stops", at_least=0)
    ] = 0.15 * math.pi

    coupling = "none"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.15 * math.pi}, 1e-5, 128, _TABLE),
        "bert-large": Preset({"margin": 0.17 * math.pi}, 3e-5, 128, _TABLE),
        "roberta-base": Preset({"margin": 0.14 * math.pi}, 7e-6, 128, _TABLE),
        "roberta-large": Preset({"margin": 0.13 * math.pi}, 7e-6, 128, _TABLE),
    }

    def formula(self, pairs: Pairs) -> Tensor:
        return _loss(pairs, self.margin, "angle")

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.margin, "angle")

"""Triplet losses with the hardest negative: MPT (dot product), MET (distance), MAT (angle)."""

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.metric import Metric, dissimilarity, slope
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Hardest, Margin, active

_TITLE = (
    "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of "
    "Sentence Representations"
)
_TABLE = "Nie et al., 2023, table 2 (with variant=released)"

# the released code replaces positives by this cosine before it takes the hardest negative
_COVER: dict[Metric, float] = {"dot": 0.0, "distance": -1.0, "angle": 0.0}


class _Triplet:
    """Base class of the triplet losses, to inherit before ``Objective``; their metrics differ."""

    metric: ClassVar[Metric]
    margin: float
    variant: str

    @property
    def coupling(self) -> Coupling:
        """An anchor's loss needs no other anchor; in the authors' code, anchors are negatives."""
        return "none" if self.variant == "paper" else "batch"

    @property
    def takes_negatives(self) -> bool:
        """Only the paper's variant takes negatives; the released code has them in InfoNCE."""
        return self.variant == "paper"

    def formula(self, pairs: Pairs) -> Tensor:
        if self.variant == "paper":
            negative = pairs.hardest()
        else:
            negative = pairs.swapped().hardest().clamp_min(_COVER[self.metric])
        gap = dissimilarity(negative, self.metric) - dissimilarity(pairs.positive, self.metric)
        return torch.relu(self.margin - gap)

    def components(self, pairs: Pairs) -> Terms:
        if self.variant == "released":
            return self._by_column(pairs)
        return Terms(
            dissipation=Margin(margin=self.margin, metric=self.metric)(pairs),
            weight=Hardest(metric=self.metric)(pairs),
            # not ratio times weight: the positive pulls even if the negative is clamped
            pull=slope(pairs.positive, self.metric),
            scale=1 / len(pairs.views.anchors),
        )

    def _by_column(self, pairs: Pairs) -> Terms:
        """Return the gradient on h_i as the positive of h'_i and as a negative of others."""
        columns, least = pairs.swapped(), _COVER[self.metric]
        hardest = columns.hardest()
        far = dissimilarity(hardest.clamp_min(least), self.metric)
        live = active(far - dissimilarity(pairs.positive, self.metric), self.margin)
        pushed = live * (hardest >= least)
        weight = (Hardest(metric=self.metric)(columns) * pushed[:, None]).T
        pull = live * slope(pairs.positive, self.metric)
        return Terms(
            dissipation=active(-weight.sum(dim=1) - pull, 0.0),
            weight=weight,
            pull=pull,
            scale=1 / len(pull),
        )


class MPT(
    _Triplet,
    Objective,
    paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 13; Li et al., 2024, table 1"),
):
    r"""Minimum dot Product Triplet loss: a margin on the difference of two similarities.

    Loss: L_i = max(0, m - s_ii' + max_{k != i} s_ik'), where s_ik' is the cosine of anchor i and
    positive k, and m is the margin.

    Gradient: dissipation GD_i = 1[s_ii' - max_k s_ik' < m]; weight W_ij = 1 for the hardest
    negative j (the first if several are equal), 0 for all others; ratio R = 1.

    The loss is the mean over all anchors, including those with GD_i = 0. Li et al. (2024) write MPT
    as a triplet loss with max d(h_i, h'_j), but the hardest negative is the nearest, so min is
    correct. Eq. 20 of Nie et al. (2023, errata E16) has a plus where a minus is correct.

    With variant="released", as in the authors' code, h'_i is the anchor and the h_k are its
    negatives. A maximum below 0 counts as 0: L_i = max(0, m - s_ii' + max(0, max_{k != i} s_ki')).
    If no maximum is below 0, this equals the loss above with the two views exchanged. GD, W and R
    still describe the gradient on h_i, which is not an anchor here, but the positive of h'_i and a
    negative of every other h'_j. As the positive, h_i is pulled with strength 1 if L_i > 0. As a
    negative, h_i is pushed by h'_j if L_j > 0, s_ij' >= 0, and h_i is the hardest negative of h'_j;
    then W_ij = 1. Otherwise W_ij = 0. GD_i is 1 if h_i is pulled or pushed, and 0 if not.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 13; Li et al., 2024, eq. 3 and table 1. In MPT, m replaces the
    term tau log(N - 1) of an upper bound of InfoNCE with temperature tau (eq. 12).

    Example:
        >>> import torch
        >>> round(float(MPT()(torch.eye(2), torch.eye(2).flip(0))), 6)
        1.23
    """

    margin: Annotated[
        float,
        Hyper("m", "no loss if the positive is more similar than all negatives by m", at_least=0),
    ] = 0.23
    variant: Variant = "paper"

    metric = "dot"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.23}, 1e-5, 64, _TABLE),
        "bert-large": Preset({"margin": 0.24}, 1e-5, 64, _TABLE),
        "roberta-base": Preset({"margin": 0.29}, 7e-6, 64, _TABLE),
        "roberta-large": Preset({"margin": 0.31}, 7e-6, 64, _TABLE),
    }


class MET(
    _Triplet,
    Objective,
    paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 14; Li et al., 2024, table 1"),
):
    r"""Minimum Euclidean distance Triplet loss: a margin on the difference of two distances.

    Loss: L_i = max(0, m + d_ii' - min_{k != i} d_ik'), where d = sqrt(2 - 2 s) is the distance of
    anchor and positive with the cosine s, and m is the margin.

    Gradient: dissipation GD_i = 1[min_k d_ik' - d_ii' < m]; weight W_ij = 1 / d_ij' for the hardest
    negative j (the first if several are equal), 0 for all others; ratio R = min_k d_ik' / d_ii'. W
    and R follow from the gradient of d = sqrt(2 - 2 s) on h_i. The derivative of |h_i - h'_j| has
    an additional part along h_i, which the normalisation removes.

    A distance below 0.01 is clamped at 0.01, and its pair has no gradient. Li et al. (2024,
    appendix D) and Nie et al. (2023, eq. 21, errata E16) print GD_i with the wrong sign.

    With variant="released", as in the authors' code, h'_i is the anchor and the h_k are its
    negatives: L_i = max(0, m + d_ii' - min_{k != i} d_ki'). This equals the loss above with the two
    views exchanged. GD, W and R still describe the gradient on h_i, which is not an anchor here,
    but the positive of h'_i and a negative of every other h'_j. As the positive, h_i is pulled with
    strength 1 / d_ii' if L_i > 0. As a negative, h_i is pushed by h'_j if L_j > 0 and h_i is the
    hardest negative of h'_j; then W_ij = 1 / d_ij'. Otherwise W_ij = 0. GD_i is 1 if h_i is pulled
    or pushed, and 0 if not.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 14; Li et al., 2024, eq. 3 and table 1.

    Example:
        >>> import torch
        >>> round(float(MET()(torch.eye(2), torch.eye(2).flip(0))), 6)
        1.854213
    """

    margin: Annotated[
        float, Hyper("m", "no loss if the positive is nearer than all negatives by m", at_least=0)
    ] = 0.45
    variant: Variant = "paper"

    metric = "distance"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.45}, 1e-5, 128, _TABLE),
        "bert-large": Preset({"margin": 0.50}, 1e-5, 128, _TABLE),
        "roberta-base": Preset({"margin": 0.43}, 7e-6, 128, _TABLE),
        "roberta-large": Preset({"margin": 0.45}, 7e-6, 128, _TABLE),
    }


class MAT(_Triplet, Objective, paper=Paper(_TITLE, "Nie et al., 2023", "Nie et al., 2023, eq. 15")):
    r"""Minimum Angle Triplet loss: a margin on the difference of two angles.

    Loss: L_i = max(0, m + theta_ii' - min_{k != i} theta_ik'), where theta_ik' is the angle between
    anchor i and positive k in radians, and m is the margin.

    Gradient: dissipation GD_i = 1[min_k theta_ik' - theta_ii' < m]; weight W_ij = 1 / sin theta_ij'
    for the hardest negative j (the first if several are equal), 0 for all others; ratio R_i = sin
    theta_ij' / sin theta_ii' for this j.

    An angle within 0.01 of 0 or pi is clamped; its pair neither pulls nor pushes. Eq. 22 of
    Nie et al. (2023, errata E16) has GD_i with the wrong sign.

    With variant="released", as in the authors' code, h'_i is the anchor and the h_k are its
    negatives. A minimum above pi/2 counts as pi/2: L_i = max(0, m + theta_ii' - min(pi/2, min_{k !=
    i} theta_ki')). If no minimum is above pi/2, this equals the loss above with the two views
    exchanged. GD, W and R still describe the gradient on h_i, which is not an anchor here, but the
    positive of h'_i and a negative of every other h'_j. As the positive, h_i is pulled with
    strength 1 / sin theta_ii' if L_i > 0. As a negative, h_i is pushed by h'_j if L_j > 0,
    theta_ij' <= pi/2, and h_i is the hardest negative of h'_j; then W_ij = 1 / sin theta_ij'.
    Otherwise W_ij = 0. GD_i is 1 if h_i is pulled or pushed, and 0 if not.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 15.

    Example:
        >>> import torch
        >>> round(float(MAT(margin=0.5)(torch.eye(2), torch.eye(2).flip(0))), 6)
        2.060796
    """

    margin: Annotated[
        float,
        Hyper("m", "no loss if the positive is nearer than all negatives by m radians", at_least=0),
    ] = 0.15 * math.pi
    variant: Variant = "paper"

    metric = "angle"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"margin": 0.15 * math.pi}, 1e-5, 128, _TABLE),
        "bert-large": Preset({"margin": 0.17 * math.pi}, 3e-5, 128, _TABLE),
        "roberta-base": Preset({"margin": 0.14 * math.pi}, 7e-6, 128, _TABLE),
        "roberta-large": Preset({"margin": 0.13 * math.pi}, 7e-6, 128, _TABLE),
    }

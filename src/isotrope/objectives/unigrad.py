"""Losses that are defined by their gradient (Tao et al., 2022); only the anchor gets a gradient."""

from typing import Annotated

import torch

from isotrope.core.hyper import Hyper, Paper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.barlow_twins import BarlowTwins
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax, products
from isotrope.paradigm.surrogate import Surrogate

_TITLE = (
    "Exploring the Equivalence of Siamese Self-Supervised Learning via A Unified Gradient Framework"
)

Weight = Annotated[float, Hyper("nu", "weight of the push of the negatives", at_least=0)]


class BarlowTwinsGrad(
    Surrogate,
    Objective,
    paper=Paper(_TITLE, "Tao et al., 2022", "Li et al., 2024, section 4 (named L^eB)"),
):
    r"""A loss for each anchor whose gradient is that of Barlow Twins on the unit sphere.

    Loss: L_i = -(2/N) h_i.(A h'_i) + nu sum_{j != i} (2 h'_i.h'_j / N^2) h_i.h_j, summed over the
    anchors h_i of both views. h'_i is the positive of h_i, nu is ``weight``, and A is given under
    Gradient. The loss is a surrogate: everything except h_i is held constant, also A.

    Gradient: dissipation GD = 1; weight W_ij = 2 nu h'_i.h'_j / N^2; the pull on h_i is the vector
    (2/N) A h'_i, with A = I - (1 - nu) diag C and C = sum_i h_i h'_i^T / N. Summed over all
    anchors, the gradient with respect to the embeddings before they are scaled to length 1 equals
    that of ``BarlowTwins`` with the same nu. Tao et al. use A = I (``diagonal=False``) and nu = 50.

    Shapes: anchors n x d, positives n x d -> scalar (sum over anchors).

    Reference: Li et al., 2024, appendix D.2, eq. 10. Their code calls this loss Barlow Twins.

    Example:
        >>> import torch
        >>> float(BarlowTwinsGrad(weight=1.0)(torch.eye(2), torch.eye(2)))
        -4.0
    """

    weight: Weight = 30.0
    diagonal: Annotated[
        bool, Hyper("A", "true: A is I - (1 - nu) diag C, as in Barlow Twins; false: A is I")
    ] = True

    presets = BarlowTwins.presets
    pairwise = False
    takes_negatives = False
    reduction = "sum"

    @property
    def invariances(self) -> frozenset[str]:
        return super().invariances - ({"rotation"} if self.diagonal else frozenset())

    def components(self, pairs: Pairs) -> Terms:
        views, n = pairs.views, len(pairs.views.anchors)
        pull = pairs.positive.new_full((n,), 2 / n)
        if self.diagonal:
            coordinate = 1 - (1 - self.weight) * (views.anchors * views.own).mean(dim=0)
            pull = pull[:, None] * coordinate
        return Terms(
            dissipation=torch.ones_like(pairs.positive),
            weight=2 * self.weight / n**2 * products(pairs, views.own, views.own, against="within"),
            pull=pull,
            against="within",
        )


class VICRegGrad(
    Surrogate,
    Objective,
    paper=Paper(_TITLE, "Tao et al., 2022", "Li et al., 2024, eq. 11, appendix E (named L^eV)"),
):
    r"""A loss with the gradient that Li et al. (2024) print for VICReg: no centring, and no hinge.

    Loss: L_i = -(2/N) h_i.h'_i + nu sum_{j != i} (2 h_i.h_j / N^2) h_i.h_j, summed over the anchors
    h_i of both views. h'_i is the positive of h_i, and nu is ``weight``. The loss is a surrogate:
    everything except h_i is held constant, also the factors 2 h_i.h_j / N^2.

    Gradient: dissipation GD = 1; weight W_ij = 2 nu h_i.h_j / N^2; the pull of the positive is 2/N.
    VICReg without centring and hinge, with covariance weight nu1, has the loss sum_i ||h_i -
    h'_i||^2 / N + (nu1/D) sum_kl (C_kl^2 + C'_kl^2), where C = sum_i h_i h_i^T / (N - 1), and C' is
    the same for the other view. With nu = 2 nu1 N^2 / (D (N-1)^2), its gradient with respect to the
    embeddings before scaling is the same. ``VICReg`` itself centres the rows and leaves out k = l.

    Shapes: anchors n x d, positives n x d -> scalar (sum over anchors).

    Reference: Li et al., 2024, eq. 11, table 2, appendix E. Their code calls this loss VICReg.

    Example:
        >>> import torch
        >>> float(VICRegGrad()(torch.eye(2), torch.eye(2)))
        -4.0
    """

    weight: Weight = 30.0

    presets = BarlowTwins.presets
    pairwise = False
    takes_negatives = False
    reduction = "sum"

    def components(self, pairs: Pairs) -> Terms:
        h, n = pairs.views.anchors, len(pairs.views.anchors)
        return Terms(
            dissipation=torch.ones_like(pairs.positive),
            weight=2 * self.weight / n**2 * products(pairs, h, h, against="within"),
            pull=torch.full_like(pairs.positive, 2 / n),
            against="within",
        )


class SimCLRGrad(
    Surrogate,
    Objective,
    paper=Paper(_TITLE, "Tao et al., 2022", "Tao et al., 2022; cited in Li et al., 2024, app. D.2"),
):
    r"""NT-Xent in which an anchor gets no gradient from the losses of other anchors.

    Loss: L_i = (sum_j p_ij h_i.x_j - (1 - p_i) h_i.h'_i) / tau for anchor h_i and positive h'_i.
    The x_j are the other rows of both views, and the additional negatives. The loss is a surrogate:
    everything except h_i is held constant, also p_ij and p_i, which are given under Gradient.

    Gradient: dissipation GD_i = 1 - p_i; weight W_ij = p_ij / (tau (1 - p_i)); ratio R = 1. Here p
    is the softmax of s / tau over h'_i and all x_j; p_ij is its value for x_j, p_i for h'_i.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Tao et al., 2022. They take the targets h'_i from a momentum encoder. A loss in
    isotrope has no encoder; a method such as MoCo v2 adds one. Tao et al. also count the anchor's
    own view, embedded with that encoder, as a negative; this class does not. Without a momentum
    encoder, this negative would be h_i itself, so it would not push h_i.

    Example:
        >>> import torch
        >>> round(float(SimCLRGrad(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        -0.423883
    """

    temperature: Temperature = 0.2

    def components(self, pairs: Pairs) -> Terms:
        weight = Softmax(temperature=self.temperature, by="both")(pairs) / self.temperature
        total = pairs.logsumexp(self.temperature, "both")
        return Terms(
            dissipation=torch.sigmoid(total - pairs.positive / self.temperature),
            weight=weight,
            pull=weight.sum(dim=1),
            against="both",
            scale=0.5 / len(weight),
        )


class UniGrad(
    Surrogate,
    Objective,
    paper=Paper(_TITLE, "Tao et al., 2022", "Tao et al., 2022; cited in Li et al., 2024, app. D.2"),
):
    r"""A loss with the gradient that many siamese losses share: a matrix of second moments pushes.

    Loss: L_i = -h_i.h'_i + nu h_i.F h_i, F = sum_j (h_j h_j^T + h'_j h'_j^T) / 2N, for anchor h_i
    and positive h'_i; nu is ``weight``. The loss is a surrogate: F h_i and h'_i are held constant.

    Gradient: dissipation GD = 1; weight W_ij = nu h_i.x_j / 2N, which may be negative, for each
    row x_j of both views but h_i and h'_i; the pull of the positive is 1 - nu s_ii' / 2N, because
    F contains h'_i too; the rest of the gradient, (nu / 2N) h_i, has no effect, because embeddings
    are normalised. If the pull is negative, the positive is pushed away.

    Shapes: anchors n x d, positives n x d -> scalar (mean over anchors).

    Reference: Tao et al., 2022; the default nu is that of their released configuration. Here F is
    computed from one batch. Tao et al. average F over steps (decay 0.99) and take the targets from
    a momentum encoder. ``UniGrad`` does neither, because an objective has no state.

    Example:
        >>> import torch
        >>> float(UniGrad(weight=2.0)(torch.eye(2), torch.eye(2)))
        0.0
    """

    weight: Weight = 100.0

    pairwise = False
    takes_negatives = False

    def components(self, pairs: Pairs) -> Terms:
        views, n = pairs.views, len(pairs.views.anchors)
        factor = self.weight / (2 * n)
        weight = products(pairs, views.anchors, views.own, views.anchors, against="both")
        radial = views.anchors.square().sum(dim=1, keepdim=True)
        return Terms(
            dissipation=torch.ones_like(pairs.positive),
            weight=factor * weight,
            pull=1 - factor * pairs.positive,
            against="both",
            scale=0.5 / n,
            residual=factor * radial * views.anchors,
        )

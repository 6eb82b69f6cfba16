"""ArcCon: InfoNCE with an angle added between the anchor and its positive."""

import math
from typing import Annotated

from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.hyper import Hyper, Paper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.metric import shifted
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import ArcRatio, Fraction, Softmax


class ArcCon(
    Objective,
    paper=Paper(
        "A Contrastive Framework for Learning Sentence Representations from Pairwise and "
        "Triple-wise Perspective in Angular Space",
        "Zhang et al., 2022",
        "Li et al., 2024, eq. 2, table 1",
    ),
):
    r"""InfoNCE with an angle u added to the angle between an anchor and its positive.

    Loss: L_i = -log( e^{cos(theta_ii' + u)/tau} / (e^{cos(theta_ii' + u)/tau} + sum_{j != i}
    e^{s_ij'/tau}) ). theta_ij' is the angle between anchor i and positive j, and s_ij' is the
    cosine of this angle. tau is the temperature.

    Gradient: dissipation GD_i = 1 / (1 + e^{cos(theta_ii' + u)/tau} / sum_{k != i} e^{s_ik'/tau});
    weight W_ij = e^{s_ij'/tau} / (tau sum_{k != i} e^{s_ik'/tau}); ratio R_i = sin(theta_ii' + u) /
    sin theta_ii'.

    theta_ii' is clamped to [0.01, pi - 0.01], because R is infinite at 0 and pi. theta_ii' + u is
    clamped at pi, because beyond pi the cosine would rise again. A clamped positive does not pull.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Li et al., 2024, eq. 2 and table 1. Only the rows of the first view are anchors.

    Example:
        >>> import math, torch
        >>> h = torch.eye(2)
        >>> round(float(ArcCon(margin=math.pi / 2, temperature=1.0)(h, h.flip(0))), 6)
        2.126928
    """

    margin: Annotated[
        float, Hyper("u", "angle (radians) added to the positive's angle", above=0, at_most=math.pi)
    ] = math.pi / 18
    temperature: Temperature = 0.05

    coupling = "none"

    def formula(self, pairs: Pairs) -> Tensor:
        positive = shifted(pairs.positive, self.margin)
        return softplus(pairs.logsumexp(self.temperature) - positive / self.temperature)

    def components(self, pairs: Pairs) -> Terms:
        weight = Softmax(temperature=self.temperature)(pairs) / self.temperature
        return Terms(
            dissipation=Fraction(temperature=self.temperature, margin=self.margin)(pairs),
            weight=weight,
            pull=ArcRatio(margin=self.margin)(pairs) * weight.sum(dim=1),
            scale=1 / len(pairs.views.anchors),
        )

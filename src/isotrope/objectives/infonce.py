"""InfoNCE: pull the positive, push the negatives by a softmax; the contrastive baseline."""

import torch
from torch import Tensor

from isotrope.core.hyper import Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.dissipation import Fraction
from isotrope.paradigm.objective import Objective, Paper
from isotrope.paradigm.weight import Softmax


class InfoNCE(
    Objective,
    paper=Paper(
        "Representation Learning with Contrastive Predictive Coding",
        "van den Oord et al., 2018; SimCSE: Gao et al., 2021",
        "paper 000, eq. 1, table 1",
    ),
):
    r"""Cross-entropy of the positive among all candidates of the batch, one direction.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau}) ).

    Gradient: GD_i = 1 / (1 + e^{s_ii'/tau} / sum_{k != i} e^{s_ik'/tau});
    W_ij = e^{s_ij'/tau} / (tau sum_{k != i} e^{s_ik'/tau}); R = 1.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: paper 000, eq. 1 and table 1; one direction as in SimCSE.

    Example:
        >>> import torch
        >>> round(float(InfoNCE(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        0.313262
    """

    temperature: Temperature = 0.05

    def formula(self, pairs: Pairs) -> Tensor:
        margin = pairs.logsumexp(self.temperature) - pairs.positive / self.temperature
        # log(1 + e^margin); softplus would round it to the margin from 20 on, derivatives too
        return torch.logaddexp(margin, torch.zeros_like(margin))

    def components(self, pairs: Pairs) -> Terms:
        weight = Softmax(temperature=self.temperature)(pairs) / self.temperature
        return Terms(
            dissipation=Fraction(temperature=self.temperature)(pairs),
            weight=weight,
            pull=weight.sum(dim=1),
            scale=1 / len(pairs.views.anchors),
        )

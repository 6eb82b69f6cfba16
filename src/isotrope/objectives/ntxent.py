"""NTXent: the cross-entropy of SimCLR, in which both views of every row serve as anchors."""

from dataclasses import replace

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.hyper import Paper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import averaged, received
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax


class NTXent(
    Objective,
    paper=Paper(
        "A Simple Framework for Contrastive Learning of Visual Representations",
        "Chen et al., 2020",
        "Manna et al., 2023, supplement, eq. 52, table 2",
    ),
):
    r"""InfoNCE with the rows of both views as anchors; all other rows of both views are negatives.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} (e^{s_ij'/tau} + e^{s_ij/tau}))
    ) for anchor h_i of the first view, with s_ij = h_i.h_j and s_ij' = h_i.h'_j. For anchors of the
    second view, the views are exchanged. The loss is the mean over all 2N anchors.

    Gradient: let S_i = sum_{k != i} (e^{s_ik'/tau} + e^{s_ik/tau}); dissipation GD_i = 1 / (1 +
    e^{s_ii'/tau} / S_i); weight W_ij = e^{s_ij/tau} / (tau S_i) for h_j, and the same with s_ij'
    for h'_j; ratio R = 1. All sums over j or k include additional negatives. h_i also gets a
    gradient as the positive of h'_i and as a negative of the other anchors. GD, W and R do not
    include this gradient.

    The default temperature is the one that Manna et al. (2023) use for SimCLR.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over 2n).

    Reference: Manna et al., 2023, supplement, eq. 52 and table 2.

    Example:
        >>> import torch
        >>> round(float(NTXent(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        0.551445
    """

    temperature: Temperature = 0.1

    two_directions = True

    def formula(self, pairs: Pairs) -> Tensor:
        return softplus(pairs.gap(self.temperature, "both"))

    def components(self, pairs: Pairs) -> Terms:
        swapped = pairs.swapped()
        return averaged(self._one_way(pairs), self._one_way(swapped), swapped.views)

    def _one_way(self, pairs: Pairs) -> Terms:
        lse = pairs.logsumexp(self.temperature, "both")
        weight = Softmax(temperature=self.temperature, by="both")(pairs) / self.temperature
        terms = Terms(
            dissipation=torch.sigmoid(lse - pairs.positive / self.temperature),
            weight=weight,
            pull=weight.sum(dim=1),
            against="both",
            scale=1 / len(pairs.views.anchors),
        )
        return replace(terms, residual=received(terms, pairs.views, "anchors"))

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        lse = pairs.logsumexp(self.temperature, "both")
        return torch.logaddexp(lse, pairs.positive / self.temperature)

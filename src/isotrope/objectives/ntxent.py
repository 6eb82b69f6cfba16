"""NTXent: SimCLR's cross-entropy; every view of the batch is an anchor against all others."""

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
    r"""InfoNCE over all 2N views: each is an anchor with both views of the others as negatives.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} (e^{s_ij'/tau} +
    e^{s_ij/tau})) ); the same with the views exchanged; mean over all 2N.

    Gradient: let S_i = sum_{k != i} (e^{s_ik'/tau} + e^{s_ik/tau}),
    GD_i = 1 / (1 + e^{s_ii'/tau} / S_i); W_ij = e^{s_ij/tau} / (tau S_i) over the 2N - 2 columns
    of both views; R = 1. The residual is the gradient that h_i receives as a negative of the
    others and as a positive, because the other N anchors are views too.

    The default temperature is the value that Manna et al. (2023) use for SimCLR; Draganov et al.
    (2024) use 0.5.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over 2n).

    Reference: Manna et al., 2023, supplement, eq. 52 and table 2, which prints the repelling part
    with e^{-s/tau}; e^{+s/tau} is correct.

    Example:
        >>> import torch
        >>> round(float(NTXent(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        0.551445
    """

    temperature: Temperature = 0.1

    two_directions = True
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

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

"""Appendix E of Nie et al. 2023 as a loss: M mixed negatives for each anchor, of random partners.

    isotrope train FILE --plugin papers/nie2023/mixtures.py --objective mixtures
    python -m papers bench papers/nie2023/mixtures.py

``mixedinfonce`` of the library has the hardest partners, M = 1, and components; this loss has none,
as what it mixes is drawn anew in every step.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from isotrope import Hyper, Objective, Pairs, Paper, Temperature, softplus


class Mixtures(
    Objective,
    paper=Paper(
        "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of "
        "Sentence Representations",
        "Nie et al., 2023",
        "appendix E, eq. 47 to 49",
    ),
):
    r"""InfoNCE with M mixtures of random partners as further negatives of each anchor.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau} +
    sum_k e^{h_i.x_ik/tau}) ), x_ik = lambda a + (1 - lambda) h'_n with n a random negative, and a
    another one (``mix="negatives"``, eq. 47) or the positive (``mix="positive"``, eq. 48). Mixtures
    are constant and, as printed, not put back on the sphere.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).
    """

    temperature: Temperature = 0.05
    mixtures: Annotated[float, Hyper("M", "mixtures for each anchor", at_least=1)] = 4
    mix: Annotated[
        Literal["negatives", "positive"],
        Hyper("", "what a random negative is mixed with: another one, or the positive"),
    ] = "negatives"
    share: Annotated[float, Hyper("lambda", "share of the other", at_least=0, at_most=0.5)] = 0.2

    def formula(self, pairs: Pairs) -> Tensor:
        """Return the loss of each anchor."""
        tau, mask = self.temperature, pairs.negative()
        total = pairs.logsumexp(tau)
        if bool(mask.any(dim=1).all()):  # else an anchor has nothing to mix
            total = torch.logaddexp(total, (self._mixed(pairs, mask) / tau).logsumexp(dim=1))
        return softplus(total - pairs.positive / tau)

    def _mixed(self, pairs: Pairs, mask: Tensor) -> Tensor:
        """Return the similarities with the mixtures, n x M."""
        columns = pairs.columns().detach()
        drawn = torch.multinomial(mask.float(), 2 * int(self.mixtures), replacement=True)
        first, second = columns[drawn].chunk(2, dim=1)  # n x M x d each
        if self.mix == "positive":
            first = pairs.views.own.detach()[:, None]
        return torch.einsum(
            "nd,nmd->nm", pairs.views.anchors, self.share * first + (1 - self.share) * second
        )

"""InfoNCE: pulls the positive and pushes the negatives with the weights of a softmax."""

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.hyper import Hyper, Paper, Preset, Temperature
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Fraction, Softmax

_TABLE = "Nie et al., 2023, table 2"


class InfoNCE(
    Objective,
    paper=Paper(
        "Representation Learning with Contrastive Predictive Coding",
        "van den Oord et al., 2018; SimCSE: Gao et al., 2021",
        "Li et al., 2024, eq. 1, table 1",
    ),
):
    r"""Cross-entropy of finding an anchor's positive among all positives of the batch.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau}) ), where s_ij' is
    the cosine of anchor i and positive j, and tau is the temperature.

    Gradient: dissipation GD_i = 1 / (1 + e^{s_ii'/tau} / sum_{k != i} e^{s_ik'/tau}); weight W_ij =
    e^{s_ij'/tau} / (tau sum_{k != i} e^{s_ik'/tau}); ratio R = 1.

    Additional negatives (hard negatives, a queue) are included in every sum over j or k. With
    ``in_batch=False`` they are the only negatives, as in MoCo, whose negatives are a queue.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Li et al., 2024, eq. 1 and table 1. Only the rows of the first view are anchors, as
    in SimCSE.

    Example:
        >>> import torch
        >>> round(float(InfoNCE(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        0.313262
    """

    temperature: Temperature = 0.05
    in_batch: Annotated[bool, Hyper("", "also use the other rows of the batch as negatives")] = True

    coupling = "none"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"temperature": 0.05}, 1e-5, 64, _TABLE),
        "bert-large": Preset({"temperature": 0.05}, 1e-5, 64, _TABLE),
        "roberta-base": Preset({"temperature": 0.05}, 1e-5, 128, _TABLE),
        "roberta-large": Preset({"temperature": 0.05}, 1e-5, 128, _TABLE),
    }

    def prepare(self, views: Views) -> Views:
        """Check ``views`` and return them, without in-batch negatives if ``in_batch`` is False.

        Raises:
            ValueError: ``in_batch`` is False and there are no additional negatives.
        """
        if not self.in_batch:
            if views.negatives is None:
                raise ValueError(
                    "pass a queue or hard negatives, or set in_batch=True: InfoNCE with "
                    "in_batch=False needs additional negatives"
                )
            views = replace(views, in_batch=False)
        return super().prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        return softplus(pairs.gap(self.temperature))  # -log of the positive's softmax share

    def components(self, pairs: Pairs) -> Terms:
        weight = Softmax(temperature=self.temperature)(pairs) / self.temperature
        return Terms(
            dissipation=Fraction(temperature=self.temperature)(pairs),
            weight=weight,
            pull=weight.sum(dim=1),
            scale=1 / len(pairs.views.anchors),
        )

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return torch.logaddexp(pairs.logsumexp(self.temperature), pairs.positive / self.temperature)

"""Modified Barlow Twins: the same objective with components that work for sentences."""

from typing import Annotated, Literal

from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.barlow_twins import BarlowTwins
from isotrope.paradigm.compose import Paradigm, modify
from isotrope.paradigm.dissipation import Margin
from isotrope.paradigm.objective import Objective, Paper
from isotrope.paradigm.weight import Softmax


class ModifiedBarlowTwins(
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "paper 000, section 4.2, eq. 18, table 2",
    ),
):
    r"""Barlow Twins with a margin dissipation, a softmax weight and a static ratio.

    Loss (a surrogate, everything but h_i constant):
    L_i = d_i ( sum_{j != i} w_ij h_i.h_j - r sum_{j != i} w_ij h_i.h'_i ), summed over the anchors
    and averaged over both directions.

    Gradient: GD_i = d_i = 1[s_ii' - max_k s_ik' < m];
    W_ij = w_ij = e^{h'_i.h'_j/tau} / sum_{k != l} e^{h'_k.h'_l/tau}; R = r.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: paper 000, section 4.2, eq. 18 and table 2, lower half; defaults are the tuned
    values for BERT-base (table 6).

    Example:
        >>> import torch
        >>> float(ModifiedBarlowTwins()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Annotated[
        float, Hyper("m", "similarity gap at which the gradient stops", at_least=0)
    ] = 0.3
    temperature: Temperature = 0.05
    ratio: Annotated[
        float, Hyper("r", "pull of the positive per push of the negatives", at_least=0)
    ] = 1.5

    two_directions = True
    takes_negatives = False
    holds = "everything"
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return "sum"

    @property
    def paradigm(self) -> Paradigm:
        """The parent with its three terms exchanged."""
        return modify(
            BarlowTwins(),
            dissipation=Margin(margin=self.margin),
            weight=Softmax(temperature=self.temperature, by="positives", normaliser="batch"),
            ratio=self.ratio,
        )

    def formula(self, pairs: Pairs) -> Tensor:
        return self.paradigm.formula(pairs)

    def components(self, pairs: Pairs) -> Terms:
        return self.paradigm.components(pairs)

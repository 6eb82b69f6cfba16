"""Modified MHS: alignment and separation with components that work for sentences."""

from functools import cached_property
from typing import ClassVar

from torch import Tensor

from isotrope.core.hyper import Paper, Preset
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.mhs import MHS
from isotrope.paradigm.ablation import (
    DirectVariant,
    Gap,
    ModifiedOrDirect,
    Pull,
    Step,
    exchange_components,
    tuned,
)
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.surrogate import constant_components


class ModifiedMHS(
    ModifiedOrDirect,
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "Li et al., 2024, appendix E, eq. 15, 17, table 2",
    ),
):
    r"""Alignment and hyperspherical separation with a margin dissipation and a static ratio.

    Loss (a surrogate, everything but h_i constant):
    L_i = d_i W_ij (h_i.h_j - r h_i.h'_i), averaged over the anchors and both directions. With
    variant="direct" it is the printed loss, which has the same gradient, averaged in the same way:
    L_i = d_i (c_i ||h_i - h'_i||^2 - min_{j != i} ||h_i - h_j||), with c_i = r W_ij / 2, h'_i and
    h_j constant.

    Gradient: GD_i = d_i = 1[s_ii' - max_k s_ik' < m]; W_ij = 1 / ||h_i - h_j|| for the nearest j
    of the same view (0 closer than 0.01), else 0: the weight of MHS, unchanged; R = r. Appendix E
    prints r / (2 max_j ||h_i - h_j||) before the alignment, but the gradient needs the minimum.

    With variant="released" both directions are summed, and the nearest j is in the other view, at
    the distance (||h_i - h'_j||^2 + 1e-4)^{1/2}. Then GD_i = 1[1 - max_k h_i.h_k < m] and R_i =
    r (1 + W'_i / W_i), with W' the weight of the positive, which has a gradient in both directions.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 15, 17 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` stops at a column of table 5: "GD" and "GD+W" are
    equal and keep the pull of ``MHS``, 2.

    Example:
        >>> import torch
        >>> float(ModifiedMHS()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    ratio: Pull = 1.75
    step: Step = "GD+W+R"
    variant: DirectVariant = "paper"

    presets: ClassVar[dict[str, Preset]] = tuned(
        {"margin": 0.30, "ratio": 1.75},
        {"margin": 0.27, "ratio": 1.00},
    )

    @cached_property
    def paradigm(self) -> Paradigm:
        variant: Variant = "released" if self.variant == "released" else "paper"
        parent = MHS(variant=variant)
        return exchange_components(
            self.step,
            original=parent,
            balanced=parent,
            margin=self.margin,
            weight=None,
            ratio=self.ratio if self.step == "GD+W+R" else None,
            variant=variant,
        )

    def direct_repulsion(self, pairs: Pairs) -> Tensor:
        return constant_components(self, pairs).dissipation * MHS().repulsion(pairs)

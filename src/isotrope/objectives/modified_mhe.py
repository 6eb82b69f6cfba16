"""Modified MHE: alignment and energy with components that work for sentences."""

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Paper, Preset, Temperature
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.align_uniform import log_mean_energy
from isotrope.objectives.mhe import MHE
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
from isotrope.paradigm.parts import Energy
from isotrope.paradigm.surrogate import constant_components

_ORIGINAL = 10.0  # the nu that MHE was trained with


class ModifiedMHE(
    ModifiedOrDirect,
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "Li et al., 2024, appendix E, eq. 14, 16, table 2",
    ),
):
    r"""Alignment and hyperspherical energy with a margin dissipation and a static ratio.

    Loss (a surrogate, everything but h_i constant):
    L_i = d_i sum_{j != i} W_ij (h_i.h_j - r h_i.h'_i), summed over the anchors and averaged over
    both directions. With variant="direct" it is the printed loss, which has the same gradient,
    also averaged over both directions: L = sum_i d_i c_i ||h_i - h'_i||^2 + U, with c_i and h'_i
    constant, c_i = r sum_{j != i} W_ij / 2, and
    U = log( 2/(N(N-1)) sum_{k<l} e^{-||h_k - h_l||^2 / (2 tau)} ).

    Eq. 14 prints d_i (L_i^a + L^u). Here L^u, which belongs to the batch, counts once instead of
    once per anchor, and the vectors of anchors with d_i = 0 are held constant in it. ``per_anchor``
    gives each anchor an N-th of L^u.

    Gradient: GD_i = d_i = 1[s_ii' - max_k s_ik' < m];
    W_ij = e^{h_i.h_j/tau} / (tau sum_{k<l} e^{h_k.h_l/tau}), which counts h_i as anchor and as
    negative; R = r.

    With variant="released" the directions are summed, GD_i = 1[1 - max_k h_i.h_k < m], and the
    positive has a gradient in both: R_i = r sum_j (W_ij + W'_ij) / sum_j W_ij, with W' the weights
    of the other view.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 14, 16 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` stops at a column of table 5: "GD" keeps the
    weight and the pull of ``MHE`` at nu = 10; "GD+W" keeps only its pull, 2/N (the released code
    has r = 1 there).

    Example:
        >>> import torch
        >>> float(ModifiedMHE()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    temperature: Temperature = 0.05
    ratio: Pull = 1.75
    step: Step = "GD+W+R"
    variant: DirectVariant = "paper"

    presets: ClassVar[dict[str, Preset]] = tuned(
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.75},
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.25},
    )

    @cached_property
    def paradigm(self) -> Paradigm:
        ratio = {"GD": None, "GD+W": None, "GD+W+R": self.ratio}
        if self.variant == "released":
            ratio["GD+W"] = 1.0  # its weight scales the alignment too
        variant: Variant = "released" if self.variant == "released" else "paper"
        return exchange_components(
            self.step,
            original=MHE(weight=_ORIGINAL, variant=variant),
            balanced=MHE(variant=variant),
            margin=self.margin,
            weight=Energy(temperature=self.temperature),
            ratio=ratio[self.step],
            variant=variant,
        )

    def direct_repulsion(self, pairs: Pairs) -> Tensor:
        views = pairs.views
        live = constant_components(self, pairs).dissipation[:, None] > 0
        anchors = torch.where(live, views.anchors, views.anchors.detach())
        weight, t = (_ORIGINAL, 1.0) if self.step == "GD" else (1.0, 0.5 / self.temperature)
        energy = weight * log_mean_energy(pairs.of(replace(views, anchors=anchors)), t, "within")
        return energy.expand(len(anchors)) / len(anchors)

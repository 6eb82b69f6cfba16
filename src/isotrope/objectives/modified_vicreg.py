"""Modified VICReg: the gradient of VICReg with components that work for sentences."""

from functools import cached_property
from typing import Annotated, Literal

from isotrope.core.hyper import Hyper, Paper, Temperature
from isotrope.objectives.modified_barlow_twins import ModifiedBarlowTwins
from isotrope.objectives.unigrad import VICRegGrad
from isotrope.paradigm.ablation import Gap, Modified, Pull, Step, exchange_components
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax
from isotrope.paradigm.surrogate import Surrogate


class ModifiedVICReg(
    Modified,
    Surrogate,
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "Li et al., 2024, appendix E, eq. 19, table 2",
    ),
):
    r"""VICReg's gradient with a margin dissipation, a softmax weight and a static ratio.

    Loss (a surrogate, everything but h_i constant):
    L_i = d_i ( sum_{j != i} w_ij h_i.h_j - r sum_{j != i} w_ij h_i.h'_i ), summed over the anchors
    and averaged over both directions.

    Gradient: GD_i = d_i = 1[s_ii' - max_k s_ik' < m];
    W_ij = w_ij = e^{h_i.h_j/tau} / sum_{k != l} e^{h_k.h_l/tau}; R = r. With normaliser="row" the
    sum is over k != i, as an earlier version of Li et al. (2024) prints it.

    With variant="released" the directions are summed, GD_i = 1[1 - max_k h_i.h_k < m], and the
    positive has a gradient in both: R_i = r sum_j (w_ij + w'_ij) / sum_j w_ij, with w' the weights
    of the other view.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 19 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` stops at a column of table 5: "GD" keeps the
    weight and the pull of ``VICRegGrad`` at nu = 30; "GD+W" keeps only its pull, 2/N.

    Example:
        >>> import torch
        >>> float(ModifiedVICReg()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    temperature: Temperature = 0.05
    ratio: Pull = 1.5
    normaliser: Annotated[
        Literal["batch", "row"], Hyper("", "the weights of the batch sum to 1, or each anchor's")
    ] = "batch"
    step: Step = "GD+W+R"
    variant: Variant = "paper"

    presets = ModifiedBarlowTwins.presets  # tables 6 and 7 have equal rows for both

    @cached_property
    def paradigm(self) -> Paradigm:
        return exchange_components(
            self.step,
            original=VICRegGrad(),
            balanced=VICRegGrad(weight=1.0),
            margin=self.margin,
            weight=Softmax(temperature=self.temperature, by="anchors", normaliser=self.normaliser),
            ratio=self.ratio if self.step == "GD+W+R" else None,
            variant=self.variant,
        )

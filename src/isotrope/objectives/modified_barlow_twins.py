"""Modified Barlow Twins: the same objective with components that work for sentences."""

from functools import cached_property
from typing import Annotated, ClassVar, Literal

from isotrope.core.hyper import Hyper, Paper, Preset, Temperature
from isotrope.objectives.barlow_twins import BarlowTwins
from isotrope.paradigm.ablation import Gap, Modified, Pull, Step, exchange_components, tuned
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax
from isotrope.paradigm.surrogate import Surrogate


class ModifiedBarlowTwins(
    Modified,
    Surrogate,
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "Li et al., 2024, section 4.2, eq. 18, table 2",
    ),
):
    r"""Barlow Twins with a margin dissipation, a softmax weight and a static ratio.

    Loss (a surrogate, everything but h_i constant):
    L_i = d_i ( sum_{j != i} w_ij h_i.h_j - r sum_{j != i} w_ij h_i.h'_i ), summed over the anchors
    and averaged over both directions.

    Gradient: GD_i = d_i = 1[s_ii' - max_k s_ik' < m];
    W_ij = w_ij = e^{h'_i.h'_j/tau} / sum_{k != l} e^{h'_k.h'_l/tau}; R = r. With
    normaliser="row" the sum is over k != i, as an earlier version of Li et al. (2024) prints it.
    That version has h_i.h'_j in W, which is not the weight of Barlow Twins.

    With variant="released" the directions are summed, GD_i = 1[1 - max_k h_i.h_k < m], and the
    positive has a gradient in both: R_i = r sum_j (w_ij + w'_ij) / sum_j w_ij, with w' the weights
    of the other view.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, section 4.2, eq. 18 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` stops at a column of table 5: "GD" keeps the
    weight and the pull of Barlow Twins at nu = 30; "GD+W" sets nu = 1, which leaves a pull of
    2/N.

    Example:
        >>> import torch
        >>> float(ModifiedBarlowTwins()(torch.eye(2), torch.eye(2)))
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

    presets: ClassVar[dict[str, Preset]] = tuned(
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.50},
        {"margin": 0.37, "temperature": 0.05, "ratio": 1.25},
    )

    @cached_property
    def paradigm(self) -> Paradigm:
        return exchange_components(
            self.step,
            original=BarlowTwins(),
            balanced=BarlowTwins(weight=1.0),
            margin=self.margin,
            weight=Softmax(
                temperature=self.temperature, by="positives", normaliser=self.normaliser
            ),
            ratio=self.ratio if self.step == "GD+W+R" else None,
            variant=self.variant,
        )

    @property
    def invariances(self) -> frozenset[str]:
        return self.paradigm.invariances

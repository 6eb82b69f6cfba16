"""The modified objectives of Li et al. (2024): losses whose gradients are adapted to sentences."""

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.align_uniform import log_mean_energy
from isotrope.objectives.barlow_twins import BarlowTwins
from isotrope.objectives.mhe import MHE
from isotrope.objectives.mhs import MHS
from isotrope.objectives.unigrad import VICRegGrad
from isotrope.paradigm.authors_code import Variant, WithinViewMargin
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Energy, Margin, Softmax, Weight
from isotrope.paradigm.surrogate import Surrogate, constant_components

_SOURCE = (
    "Towards Better Understanding of Contrastive Sentence Representation Learning: "
    "A Unified Paradigm for Gradient",
    "Li et al., 2024",
)
_ORIGINAL = 10.0  # the nu that MHE was trained with

Gap = Annotated[
    float,
    Hyper("m", "no gradient if the positive is more similar than all negatives by m", at_least=0),
]

# the papers try up to 2; in float16 gradients overflow at a few thousand
Pull = Annotated[
    float,
    Hyper(
        "r", "pull of the positive divided by the push of the negatives", at_least=0, at_most=1e3
    ),
]

Step = Annotated[
    Literal["GD", "GD+W", "GD+W+R"],
    Hyper(
        "",
        "new parts of the original gradient: dissipation GD, weight W, ratio R. If a part stays "
        "as it was, its setting has no effect",
    ),
]

Normaliser = Annotated[
    Literal["batch", "row"],
    Hyper("", "whether weights sum to 1 over the batch (batch) or for each anchor (row)"),
]

DirectVariant = Annotated[
    Literal["paper", "released", "direct"],
    Hyper(
        "",
        "source of the loss: the paper's gradient (paper), the authors' released code (released), "
        "or the paper's loss (direct)",
    ),
]


def _tuned(bert: dict[str, Any], roberta: dict[str, Any]) -> dict[str, Preset]:
    return {
        name: Preset(values, 1e-5, size, f"{table} (with variant=released)")
        for name, values, size, table in (
            ("bert-base", bert, 128, "Li et al., 2024, table 6"),
            ("roberta-base", roberta, 512, "Li et al., 2024, table 7"),
        )
    }


class Modified(Surrogate):
    """Base class of the losses that replace GD, W or R in the gradient of an original objective.

    GD is dissipation, W weight and R ratio. A subclass lists ``Modified`` before ``Objective``
    among its base classes. In ``ModifiedMHE`` and ``ModifiedMHS``, ``variant="direct"`` is the loss
    that the paper prints. With other variants, only the gradient of the loss has meaning.
    """

    margin: float
    ratio: float
    step: str
    variant: str

    @property
    def takes_negatives(self) -> bool:
        return False

    @abstractmethod
    def parent(self, *, balanced: bool) -> Objective:
        """Return the original objective. If ``balanced``, nu, the weight of its push, is 1."""

    def other_weight(self) -> Weight | None:
        """Return the new weight W, or None to keep the weight of the original objective."""
        return None

    def kept_ratio(self) -> float | None:
        """Return the R to use if ``step`` does not name R; None if the original pull stays."""
        return None

    @property
    def form(self) -> Literal["paper", "released"]:
        """Where GD, W and R are from: ``released`` (the authors' code) or ``paper``."""
        return "released" if self.variant == "released" else "paper"

    @cached_property
    def paradigm(self) -> Paradigm:
        """The original objective with new parts; ``step`` names the new parts (GD, W, R)."""
        stops = WithinViewMargin if self.form == "released" else Margin
        exchanged = self.parent(balanced=self.step != "GD").modify(
            dissipation=stops(margin=self.margin),
            weight=None if self.step == "GD" else self.other_weight(),
            ratio=self.ratio if self.step == "GD+W+R" else self.kept_ratio(),
        )
        return replace(exchanged, variant=self.form)

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return self.paradigm.reduction

    def components(self, pairs: Pairs) -> Terms:
        return self.paradigm.components(pairs)

    def modify(
        self, *, dissipation: object = None, weight: object = None, ratio: object = None
    ) -> Paradigm:
        return self.paradigm.modify(dissipation=dissipation, weight=weight, ratio=ratio)

    def formula(self, pairs: Pairs) -> Tensor:
        if self.variant != "direct":
            return super().formula(pairs)
        return self.attraction(pairs) + self.repulsion(pairs)

    def attraction(self, pairs: Pairs) -> Tensor:
        """Return the part of each anchor's loss that pulls the anchor to its positive, n values.

        With ``variant="direct"``, this is d_i c_i ||h_i - h'_i||^2 (Li et al. 2024, eq. 14 and 15).
        d_i is the dissipation GD, and c_i is half of the pull. Only h_i has a gradient. With other
        variants, this is the part of the surrogate whose gradient is the pull.
        """
        if self.variant != "direct":
            return super().attraction(pairs)
        terms = constant_components(self, pairs)
        similarity = (pairs.views.anchors * pairs.views.own.detach()).sum(dim=1)
        return terms.dissipation * terms.pull * (1 - similarity)  # 2 - 2 s: squared distance


for _name in ("coupling", "pairwise", "invariances"):
    setattr(Modified, _name, property(attrgetter(f"paradigm.{_name}")))


class ModifiedBarlowTwins(
    Modified, Objective, paper=Paper(*_SOURCE, "Li et al., 2024, eq. 6, 18, table 2")
):
    r"""Barlow Twins with a gradient that stops at a margin, softmax weights and a chosen ratio.

    Loss: L_i = d_i ( sum_{j != i} w_ij h_i.h_j - r sum_{j != i} w_ij h_i.h'_i ), summed over the
    anchors h_i (with positives h'_i) and averaged over both directions (each view serves once as
    anchors). The loss is a surrogate: everything except h_i is held constant, also d_i and w_ij.

    Gradient: dissipation GD_i = d_i = 1[s_ii' - max_k s_ik' < m]; weight W_ij = w_ij =
    e^{h'_i.h'_j/tau} / sum_{k != l} e^{h'_k.h'_l/tau}; ratio R = r. With normaliser="row" the
    denominator of row i is sum_{k != i} e^{h'_i.h'_k/tau}.

    With variant="released" the losses of both directions are summed, not averaged. GD_i = 1[1 -
    max_k h_i.h_k < m]. h_i is pulled as an anchor and also as the positive of h'_i. Let w' be the
    weights of the other view; then R_i = r sum_j (w_ij + w'_ij) / sum_j w_ij.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, eq. 6, 18 (appendix E) and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` selects the replaced parts, as in the ablation in
    table 5. With ``step="GD"``, W and the pull are those of Barlow Twins at nu = 30. With
    ``step="GD+W"``, the pull is 2/N.

    Example:
        >>> import torch
        >>> float(ModifiedBarlowTwins()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    temperature: Temperature = 0.05
    ratio: Pull = 1.5
    normaliser: Normaliser = "batch"
    step: Step = "GD+W+R"
    variant: Variant = "paper"

    presets: ClassVar[dict[str, Preset]] = _tuned(
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.50},
        {"margin": 0.37, "temperature": 0.05, "ratio": 1.25},
    )

    def parent(self, *, balanced: bool) -> Objective:
        return BarlowTwins(weight=1.0) if balanced else BarlowTwins()

    def other_weight(self) -> Weight:
        return Softmax(temperature=self.temperature, by="positives", normaliser=self.normaliser)


class ModifiedVICReg(
    Modified, Objective, paper=Paper(*_SOURCE, "Li et al., 2024, appendix E, eq. 19, table 2")
):
    r"""VICReg with a gradient that stops at a margin, softmax weights and a chosen ratio.

    Loss: L_i = d_i ( sum_{j != i} w_ij h_i.h_j - r sum_{j != i} w_ij h_i.h'_i ), summed over the
    anchors h_i (with positives h'_i) and averaged over both directions (each view serves once as
    anchors). The loss is a surrogate: everything except h_i is held constant, also d_i and w_ij.

    Gradient: dissipation GD_i = d_i = 1[s_ii' - max_k s_ik' < m]; weight W_ij = w_ij =
    e^{h_i.h_j/tau} / sum_{k != l} e^{h_k.h_l/tau}; ratio R = r. With normaliser="row" the
    denominator is sum_{k != i} e^{h_i.h_k/tau}.

    With variant="released" the losses of both directions are summed, not averaged. GD_i = 1[1 -
    max_k h_i.h_k < m]. h_i is pulled as an anchor and also as the positive of h'_i. Let w' be the
    weights of the other view; then R_i = r sum_j (w_ij + w'_ij) / sum_j w_ij.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 19 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` selects the new parts (ablation: table 5). With
    ``step="GD"``, W and the pull are those of ``VICRegGrad`` at nu = 30. With ``step="GD+W"``, the
    pull is 2/N.

    Example:
        >>> import torch
        >>> float(ModifiedVICReg()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    temperature: Temperature = 0.05
    ratio: Pull = 1.5
    normaliser: Normaliser = "batch"
    step: Step = "GD+W+R"
    variant: Variant = "paper"

    presets = ModifiedBarlowTwins.presets  # tables 6 and 7 have equal rows for both

    def parent(self, *, balanced: bool) -> Objective:
        return VICRegGrad(weight=1.0) if balanced else VICRegGrad()

    def other_weight(self) -> Weight:
        return Softmax(temperature=self.temperature, by="anchors", normaliser=self.normaliser)


class ModifiedMHE(
    Modified, Objective, paper=Paper(*_SOURCE, "Li et al., 2024, appendix E, eq. 14, 16, table 2")
):
    r"""Alignment and hyperspherical energy, with a gradient that stops at a margin.

    Loss: L_i = d_i sum_{j != i} W_ij (h_i.h_j - r h_i.h'_i), summed over the anchors h_i (with
    positives h'_i) and averaged over both directions (each view serves once as anchors). The loss
    is a surrogate: everything except h_i is held constant, also d_i and W_ij. With
    variant="direct", the loss is eq. 14 with one change: L = sum_i d_i c_i ||h_i - h'_i||^2 + U,
    averaged over both directions. Here U = log( 2/(N(N-1)) sum_{k<l} e^{-||h_k - h_l||^2 / (2 tau)}
    ) and c_i = r sum_{j != i} W_ij / 2. c_i, h'_i are held constant. The gradient is the same.

    Eq. 14 multiplies alignment and U by d_i. But U belongs to the whole batch, so the code adds U
    once, without d_i. In U, an h_i with d_i = 0 is held constant. ``per_anchor()`` adds U / N to
    the loss of each anchor.

    Gradient: dissipation GD_i = d_i = 1[s_ii' - max_k s_ik' < m]; weight W_ij = e^{h_i.h_j/tau} /
    (tau sum_{k<l} e^{h_k.h_l/tau}); ratio R = r. The sum counts each pair of rows once (k < l), so
    W_ij is the whole push of h_j on h_i.

    With variant="released" the losses of both directions are summed, not averaged. GD_i = 1[1 -
    max_k h_i.h_k < m]. h_i is pulled as an anchor and also as the positive of h'_i. Let W' be the
    weights of the other view; then R_i = r sum_j (W_ij + W'_ij) / sum_j W_ij.

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 14, 16 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` selects the new parts (ablation: table 5). With
    ``step="GD"``, W and the pull are those of ``MHE`` with nu = 10, the authors' value. With
    ``step="GD+W"``, the pull is 2/N, or, with variant="released", the pull at r = 1.

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

    presets: ClassVar[dict[str, Preset]] = _tuned(
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.75},
        {"margin": 0.30, "temperature": 0.05, "ratio": 1.25},
    )

    def parent(self, *, balanced: bool) -> Objective:
        return MHE(weight=1.0 if balanced else _ORIGINAL, variant=self.form)

    def other_weight(self) -> Weight:
        return Energy(temperature=self.temperature)

    def kept_ratio(self) -> float | None:
        # the released weight of the second step scales the alignment too
        return 1.0 if self.form == "released" and self.step == "GD+W" else None

    def repulsion(self, pairs: Pairs) -> Tensor:
        if self.variant != "direct":
            return super().repulsion(pairs)
        views = pairs.views
        live = constant_components(self, pairs).dissipation[:, None] > 0
        anchors = torch.where(live, views.anchors, views.anchors.detach())
        weight, t = (_ORIGINAL, 1.0) if self.step == "GD" else (1.0, 0.5 / self.temperature)
        energy = weight * log_mean_energy(pairs.of(replace(views, anchors=anchors)), t, "within")
        return energy.expand(len(anchors)) / len(anchors)


class ModifiedMHS(
    Modified, Objective, paper=Paper(*_SOURCE, "Li et al., 2024, appendix E, eq. 15, 17, table 2")
):
    r"""Alignment and hyperspherical separation, with a gradient that stops at a margin.

    Loss: L_i = d_i W_ij (h_i.h_j - r h_i.h'_i), averaged over the anchors and both directions (each
    view serves once as anchors). h'_i is the positive of anchor h_i, and h_j its nearest neighbour
    in the same view. The loss is a surrogate: everything except h_i is held constant, also d_i and
    W_ij. With variant="direct", the loss is the mean of eq. 15, L_i = d_i (c_i ||h_i - h'_i||^2 -
    ||h_i - h_j||), c_i = r W_ij / 2. The gradient is the same; everything but h_i is constant.

    Gradient: dissipation GD_i = d_i = 1[s_ii' - max_k s_ik' < m]; weight W_ij = 1 / ||h_i - h_j||
    for the nearest h_j of the same view (0 if h_j is closer than 0.01), 0 for all others; ratio
    R = r. W is that of ``MHS`` with nu = 1. Appendix E prints r / (2 max_j ||h_i - h_j||) as the
    factor of ||h_i - h'_i||^2, but the gradient needs the minimum.

    With variant="released" the losses of both directions are summed. The nearest row is taken from
    the other view; its distance is computed as (||h_i - h'_j||^2 + 1e-4)^{1/2}. GD_i = 1[1 - max_k
    h_i.h_k < m]. h_i is pulled as an anchor and also as the positive of h'_i. Let W'_i be the
    weight with h'_i as the anchor; then R_i = r (1 + W'_i / W_i).

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: Li et al., 2024, appendix E, eq. 15, 17 and table 2, lower half; the defaults are the
    tuned values for BERT-base (table 6). ``step`` selects the new parts (ablation: table 5). With
    ``step="GD"``, W and the pull are those of ``MHS``. ``step="GD+W"`` has the same gradient,
    because the new W equals that of ``MHS``.

    Example:
        >>> import torch
        >>> float(ModifiedMHS()(torch.eye(2), torch.eye(2)))
        0.0
    """

    margin: Gap = 0.3
    ratio: Pull = 1.75
    step: Step = "GD+W+R"
    variant: DirectVariant = "paper"

    presets: ClassVar[dict[str, Preset]] = _tuned(
        {"margin": 0.30, "ratio": 1.75}, {"margin": 0.27, "ratio": 1.00}
    )

    def parent(self, *, balanced: bool) -> Objective:
        return MHS(variant=self.form)

    def repulsion(self, pairs: Pairs) -> Tensor:
        if self.variant != "direct":
            return super().repulsion(pairs)
        return constant_components(self, pairs).dissipation * MHS().repulsion(pairs)

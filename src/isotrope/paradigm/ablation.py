"""Turns an objective into its modified form, one component at a time (Li et al. 2024, table 5)."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, Any, Literal

from torch import Tensor

from isotrope.core.hyper import Hyper, Preset
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.authors_code import Variant, WithinViewMargin
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Margin, Weight
from isotrope.paradigm.surrogate import Surrogate, constant_components

Gap = Annotated[float, Hyper("m", "similarity gap at which the gradient stops", at_least=0)]

# the papers try up to 2; in float16 gradients overflow at a few thousand
Pull = Annotated[
    float,
    Hyper("r", "pull of the positive per push of the negatives", at_least=0, at_most=1e3),
]

Step = Annotated[
    Literal["GD", "GD+W", "GD+W+R"],
    Hyper("", "components exchanged so far; settings of the others have no effect"),
]

DirectVariant = Annotated[
    Literal["paper", "released", "direct"],
    Hyper("", "the printed gradient, that of the authors' code, or the printed loss"),
]


class Modified(ABC):
    """Common base of the modified objectives: each is its ``paradigm`` under a name.

    List it before ``Surrogate`` and ``Objective`` among the bases.
    """

    @property
    def takes_negatives(self) -> bool:
        return False

    @property
    @abstractmethod
    def paradigm(self) -> Paradigm:
        """The parent with its components exchanged."""

    @property
    def coupling(self) -> Coupling:
        return self.paradigm.coupling

    @property
    def pairwise(self) -> bool:
        return self.paradigm.pairwise

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return self.paradigm.reduction

    def components(self, pairs: Pairs) -> Terms:
        return self.paradigm.components(pairs)

    def modify(
        self, *, dissipation: object = None, weight: object = None, ratio: object = None
    ) -> Paradigm:
        """Exchange components of the paradigm (see ``Objective.modify``)."""
        return self.paradigm.modify(dissipation=dissipation, weight=weight, ratio=ratio)


class ModifiedOrDirect(Modified, Surrogate):
    """A modified objective whose paper also prints its loss (``variant="direct"``)."""

    variant: DirectVariant

    @abstractmethod
    def direct_repulsion(self, pairs: Pairs) -> Tensor:
        """Return the repulsion of the printed loss, n values."""

    def formula(self, pairs: Pairs) -> Tensor:
        if self.variant != "direct":
            return super().formula(pairs)
        return self.attraction(pairs) + self.repulsion(pairs)

    def attraction(self, pairs: Pairs) -> Tensor:
        """Return d_i c_i ||h_i - h'_i||^2 of Li et al. (2024), eq. 14 and 15, if direct.

        Only h_i has a gradient. The coefficient c_i, printed with "no gradient", is half the pull.
        """
        if self.variant != "direct":
            return super().attraction(pairs)
        terms = constant_components(self, pairs)
        similarity = (pairs.views.anchors * pairs.views.own.detach()).sum(dim=1)
        return terms.dissipation * terms.pull * (1 - similarity)  # 2 - 2 s: squared distance

    def repulsion(self, pairs: Pairs) -> Tensor:
        if self.variant != "direct":
            return super().repulsion(pairs)
        return self.direct_repulsion(pairs)


def exchange_components(
    step: Step,
    *,
    original: Objective,
    balanced: Objective,
    margin: float,
    weight: Weight | None,
    ratio: float | None,
    variant: Variant,
) -> Paradigm:
    """Return ``original`` with its components exchanged up to ``step``.

    Args:
        step: ``GD`` exchanges the dissipation, ``GD+W`` the weight too, ``GD+W+R`` all three.
        original: The parent as it was trained.
        balanced: The parent with nu = 1, which the paper sets before it exchanges the weight.
        margin: The margin of the dissipation.
        weight: The weight of the second step; None if the parent's needs no change.
        ratio: The ratio of the present step; None leaves the parent's pull.
        variant: ``paper`` for the printed equations, ``released`` for the authors' code.
    """
    parent = original if step == "GD" else balanced
    return replace(
        parent.modify(
            dissipation=Margin(margin=margin)
            if variant == "paper"
            else WithinViewMargin(margin=margin),
            weight=None if step == "GD" else weight,
            ratio=ratio,
        ),
        variant=variant,
    )


def tuned(bert: dict[str, Any], roberta: dict[str, Any]) -> dict[str, Preset]:
    """Return the tuned settings of Li et al. (2024), tables 6 and 7."""
    return {
        "bert-base": Preset(bert, 1e-5, 128, "Li et al., 2024, table 6, tuned as variant=released"),
        "roberta-base": Preset(
            roberta, 1e-5, 512, "Li et al., 2024, table 7, tuned as variant=released"
        ),
    }

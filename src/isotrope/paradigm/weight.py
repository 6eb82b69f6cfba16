"""Named weights: how the negatives share an anchor's gradient (paper 000, tables 1 and 2)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, check
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.pairs import Pairs

__all__ = ["Hardest", "Softmax", "Weight"]


@dataclass(frozen=True)
class Weight:
    """W_ij as a function of a similarity and one statistic of its row or batch.

    Attributes:
        against: which vectors are the negatives, see ``Terms.against``.
        batch_wide: the normaliser is one for the batch, so the weights hold the 1/n themselves.
    """

    known: ClassVar[dict[str, type["Weight"]]] = {}

    def __init_subclass__(cls) -> None:
        Weight.known[cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    def against(self) -> Against:
        return "cross"

    @property
    def batch_wide(self) -> bool:
        return False

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n x c weights, 0 at excluded entries, in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Softmax(Weight):
    """W_ij proportional to e^{s_ij / tau} over the negatives.

    Attributes:
        temperature: of the softmax.
        by: which similarity: ``cross`` h_i.h'_j, ``anchors`` h_i.h_j, ``positives`` h'_i.h'_j.
        normaliser: ``row`` (each anchor's weights sum to 1; paper 000, eq. 5) or ``batch`` (the
            sum over all ordered pairs k != l; paper 000, eq. 18, 19).
    """

    temperature: Annotated[float, Hyper("tau", "temperature of the softmax", above=0)] = 0.05
    by: Literal["cross", "anchors", "positives"] = "cross"
    normaliser: Literal["row", "batch"] = "row"

    @property
    def against(self) -> Against:
        return "cross" if self.by == "cross" else "within"

    @property
    def batch_wide(self) -> bool:
        return self.normaliser == "batch"

    def __call__(self, pairs: Pairs) -> Tensor:
        if self.by == "positives":
            views = pairs.views
            groups = None if views.groups is None else views.groups[views.rows]
            pairs = choose_pairs(Views(views.own, views.own, groups=groups))
        negative = pairs.negative(self.against)
        logits = pairs.similarity(self.against) / self.temperature
        logits = logits.masked_fill(~negative, -torch.inf)
        top = logits.amax(dim=1, keepdim=True)
        if self.normaliser == "batch":
            top = top.amax()
        # without any negative the maximum is -inf, and the weights are all 0
        mass = (logits - top.nan_to_num(neginf=0.0)).exp()
        total = mass.sum() if self.normaliser == "batch" else mass.sum(dim=1, keepdim=True)
        return mass / total.where(total > 0, 1.0)


@dataclass(frozen=True)
class Hardest(Weight):
    """W_ij = 1 at the hardest negative (first index at ties), else 0 (MPT)."""

    def __call__(self, pairs: Pairs) -> Tensor:
        negative = pairs.negative()
        similarity = pairs.similarity().masked_fill(~negative, -torch.inf)
        first = torch.zeros_like(similarity).scatter_(
            1, similarity.argmax(dim=1, keepdim=True), 1.0
        )
        return first * negative

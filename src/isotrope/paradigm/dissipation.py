"""Named gradient dissipations: the remaining share of a gradient (Li et al. 2024, table 1)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature, check
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.metric import Metric, dissimilarity, shifted


def active(gap: Tensor, margin: float | Tensor) -> Tensor:
    """Return 1 where ``gap`` is below ``margin``, else 0, and NaN where it is NaN."""
    return (gap < margin).to(gap.dtype).masked_fill(gap.isnan(), torch.nan)


@dataclass(frozen=True)
class Dissipation:
    """GD_i as a function of the row statistics of anchor i.

    Attributes:
        coupling: See ``Objective.coupling``: ``none``, or ``batch`` if GD_i needs other anchors
            (also as negatives).
    """

    by_name: ClassVar[dict[str, type["Dissipation"]]] = {}
    coupling: ClassVar[Coupling] = "batch"

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        Dissipation.by_name[name or cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n values in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Always(Dissipation, name="none"):
    """GD = 1: the gradient never dissipates, as in the ineffective objectives (table 2)."""

    coupling = "none"

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.ones_like(pairs.positive)


@dataclass(frozen=True)
class Margin(Dissipation):
    """GD = 1 until the hardest negative is farther than the positive by the margin, then 0.

    With ``dot`` 1[s_ii' - max_k s_ik' < m] (MPT and all modified losses), with ``distance``
    1[min_k d_ik' - d_ii' < m] (MET), with ``angle`` 1[min_k theta_ik' - theta_ii' < m] (MAT).
    """

    coupling = "none"
    margin: Annotated[float, Hyper("m", "gap at which the gradient stops", at_least=0)] = 0.3
    metric: Annotated[Metric, Hyper("", "measure of the gap")] = "dot"

    def __call__(self, pairs: Pairs) -> Tensor:
        near = dissimilarity(pairs.positive, self.metric)
        return active(dissimilarity(pairs.hardest(), self.metric) - near, self.margin)


@dataclass(frozen=True)
class Fraction(Dissipation):
    """GD = 1 / (1 + e^{cos(theta_ii' + u)/tau} / sum_k e^{s_ik'/tau}) (InfoNCE; ArcCon: u > 0)."""

    coupling = "none"
    temperature: Temperature = 0.05
    margin: Annotated[float, Hyper("u", "angle added to the positive's", at_least=0)] = 0.0

    def __call__(self, pairs: Pairs) -> Tensor:
        positive = shifted(pairs.positive, self.margin)
        return torch.sigmoid(pairs.logsumexp(self.temperature) - positive / self.temperature)

"""Named ratios: how hard the positive pulls for each unit that the negatives push."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, check
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.metric import CLOSE, Metric, angle, slope


@dataclass(frozen=True)
class Ratio:
    """R_i as a function of the positive and the hardest similarity of anchor i.

    Attributes:
        coupling: See ``Objective.coupling``: ``none``, or ``batch`` if R_i needs other anchors.
    """

    by_name: ClassVar[dict[str, type["Ratio"]]] = {}
    coupling: ClassVar[Coupling] = "batch"

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        Ratio.by_name[name or cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n values in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Static(Ratio):
    """R = r everywhere (InfoNCE and MPT have r = 1; the modified losses tune it)."""

    coupling = "none"
    ratio: Annotated[
        float, Hyper("r", "pull of the positive per push of the negatives", at_least=0)
    ] = 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.full_like(pairs.positive, self.ratio)


@dataclass(frozen=True)
class ArcRatio(Ratio, name="arccon"):
    """R = sin(theta_ii' + u) / sin theta_ii' (ArcCon; Li et al. 2024, table 1).

    R is 0 where the angle is clamped (closer than .01 to the positive or to its antipode) and for
    theta + u >= pi; it is 1 everywhere for u = 0, which is InfoNCE.
    """

    coupling = "none"
    margin: Annotated[float, Hyper("u", "angle added to the positive's", at_least=0)] = math.pi / 18

    def __call__(self, pairs: Pairs) -> Tensor:
        if self.margin == 0:
            return torch.ones_like(pairs.positive)
        theta = angle(pairs.positive)
        inside = (pairs.positive.abs() <= 1 - CLOSE) & (theta + self.margin <= torch.pi)
        return torch.sin(theta + self.margin) / torch.sin(theta) * inside


@dataclass(frozen=True)
class MetricRatio(Ratio, name="met"):
    """R = d_n / d_p (MET; Li et al. 2024, table 1), or sin theta_n / sin theta_p (MAT).

    n is the hardest negative. R is 0 if the positive or the negative is clamped.
    """

    coupling = "none"
    metric: Annotated[Metric, Hyper("", "measure of the margin")] = "distance"

    def __call__(self, pairs: Pairs) -> Tensor:
        push = slope(pairs.hardest(), self.metric)
        return slope(pairs.positive, self.metric) / push.where(push > 0, torch.inf)

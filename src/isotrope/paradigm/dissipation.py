"""Named gradient dissipations: how much of an anchor's gradient is left (paper 000, table 1)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, check
from isotrope.kernels.pairs import Pairs

__all__ = ["Always", "Dissipation", "Fraction", "Margin"]


@dataclass(frozen=True)
class Dissipation:
    """GD_i as a function of the row statistics of anchor i."""

    known: ClassVar[dict[str, type["Dissipation"]]] = {}

    def __init_subclass__(cls) -> None:
        Dissipation.known[cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n values in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Always(Dissipation):
    """GD = 1: the gradient never dissipates, as in the ineffective objectives (table 2)."""

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.ones_like(pairs.positive)


@dataclass(frozen=True)
class Margin(Dissipation):
    """GD = 1 while s_ii' - max_k s_ik' < m, and 0 from then on (MPT, and all modified losses)."""

    margin: Annotated[
        float, Hyper("m", "similarity gap at which the gradient stops", at_least=0)
    ] = 0.3

    def __call__(self, pairs: Pairs) -> Tensor:
        gap = pairs.positive - pairs.hardest()
        return (gap < self.margin).to(gap.dtype)


@dataclass(frozen=True)
class Fraction(Dissipation):
    """GD = 1 / (1 + e^{s_ii'/tau} / sum_k e^{s_ik'/tau}) (InfoNCE)."""

    temperature: Annotated[float, Hyper("tau", "temperature of the softmax", above=0)] = 0.05

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.sigmoid(pairs.logsumexp(self.temperature) - pairs.positive / self.temperature)

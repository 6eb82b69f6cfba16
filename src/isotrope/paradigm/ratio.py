"""Named ratios: how hard the positive pulls for each unit that the negatives push."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, check
from isotrope.kernels.pairs import Pairs

__all__ = ["Ratio", "Static"]


@dataclass(frozen=True)
class Ratio:
    """R_i as a function of the positive and the hardest similarity of anchor i."""

    known: ClassVar[dict[str, type["Ratio"]]] = {}

    def __init_subclass__(cls) -> None:
        Ratio.known[cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n values in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Static(Ratio):
    """R = r everywhere (InfoNCE and MPT have r = 1; the modified losses tune it)."""

    ratio: Annotated[
        float, Hyper("r", "pull of the positive per push of the negatives", at_least=0)
    ] = 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.full_like(pairs.positive, self.ratio)

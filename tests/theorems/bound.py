"""Bound: what a theorem claims, element by element."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bound:
    """The claim left <= right, element by element.

    Attributes:
        left: the smaller side, in the shape of the claim (one number, or one per anchor).
        right: the larger side, of the same shape.
    """

    left: Tensor
    right: Tensor

    @property
    def gap(self) -> Tensor:
        """The right side less the left: how much is given away; 0 where the two are equal."""
        return self.right - self.left

    @property
    def holds(self) -> Tensor:
        """Booleans: left <= right up to rounding, so that an equality holds.

        The sides are sums of numbers of order 1: what is smaller is not more exact than those.
        """
        size = torch.maximum(self.left.abs(), self.right.abs()).clamp(min=1.0)
        return self.left <= self.right + 64 * torch.finfo(self.left.dtype).eps * size

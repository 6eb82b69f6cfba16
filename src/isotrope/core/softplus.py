"""Computes softplus, log(1 + e^x), with exact first and second derivatives."""

import torch
from torch import Tensor

__all__ = ["softplus"]


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x) elementwise, twice differentiable; the value at -inf is 0.

    ``torch.nn.functional.softplus`` returns x itself above 20, where its first derivative becomes
    exactly 1 and its second 0.
    """
    return torch.logaddexp(x, x.new_zeros(()))

"""Declares how the anchors of a batch depend on each other, and checks the declaration.

The declaration chooses how value and gradients are computed (``kernels.fused``). What it promises
shows in numbers that every pass has at its end, one for each anchor: the derivatives that the
gradients were made with, and those of the formula with all statistics known. Where they differ the
gradients are not returned.
"""

from typing import Literal

import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.kernels.statistics import Unfused

Coupling = Literal["none", "positives", "linear", "total", "batch"]

# of a derivative, and of the mean one: rounding is far below (formulas take some ten steps, and
# e^lse has |lse| times that of lse), and where the check passes no gradient is wrong by more
_ROUNDINGS = 1000


def agree(assumed: Tensor, true: Tensor, reason: str) -> None:
    """Compare assumed values or derivatives of the anchors with the true ones.

    Args:
        assumed: n.
        true: n.
        reason: The mistake in the declaration where they differ.

    Raises:
        WrongCoupling: more than one in eight differs.
        Unfused: fewer do, or they are not finite. At the corner of a hinge one rounding decides
            which of two derivatives is taken, and the declaration may be right: the statistics are
            computed in another way, which needs no declaration.
    """
    most = _ROUNDINGS * torch.finfo(true.dtype).eps
    slack = most * true.abs().mean()
    apart = ~((assumed - true).abs() <= most * true.abs() + slack)
    apart &= ~(assumed.isnan() & true.isnan())
    if not bool(apart.any()):
        return
    if 8 * int((apart & assumed.isfinite() & true.isfinite()).sum()) > len(true):
        raise WrongCoupling(reason)
    raise Unfused("some derivatives are not those that were assumed")

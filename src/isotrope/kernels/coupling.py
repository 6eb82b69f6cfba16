"""Declares how the anchors of a batch depend on each other, and checks the declaration.

The declaration chooses how value and gradients are computed (``kernels.fused``). Each pass checks
it at the end with two numbers for each anchor: the derivative that the gradients were computed
with, and the derivative of the formula with all statistics known. If they differ, the gradients are
not returned.
"""

from typing import Literal

import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.kernels.statistics import Unfused

Coupling = Literal["none", "positives", "linear", "total", "batch"]

# roundings of a derivative or of their mean that may differ: true errors are far smaller (formulas
# take some ten steps, and e^lse has |lse| times the error of lse), and no larger error can pass
_ROUNDINGS = 1000


def agree(assumed: Tensor, true: Tensor, reason: str) -> None:
    """Compare assumed values or derivatives of the anchors with the true ones.

    Raises:
        WrongCoupling: more than one in eight differs.
        Unfused: fewer differ, or some are not finite. At the corner of a hinge a rounding decides
            between two derivatives, and the declaration may be correct. The statistics are then
            computed in a way that needs no declaration.
    """
    most = _ROUNDINGS * torch.finfo(true.dtype).eps
    slack = most * true.abs().mean()
    apart = ~((assumed - true).abs() <= most * true.abs() + slack)
    apart &= ~(assumed.isnan() & true.isnan())
    if not bool(apart.any()):
        return
    if 8 * int((apart & assumed.isfinite() & true.isfinite()).sum()) > len(true):
        raise WrongCoupling(reason)
    raise Unfused("some derivatives differ from the assumed ones")

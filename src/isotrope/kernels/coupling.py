"""Declares how the anchors of a batch depend on each other, and checks the declaration.

The declaration decides how value and gradients are computed (``kernels.fused``). During a pass over
the blocks, not all statistics are known yet, so an anchor's gradient uses an assumed derivative. At
the end, the true derivative is computed; if it differs from the assumed one, an error is raised.
"""

from typing import Literal

import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.kernels.statistics import Unfused

Coupling = Literal["none", "positives", "linear", "total", "batch"]

# allowed difference of two derivatives, in units of rounding. Rounding errors are far smaller:
# formulas take some ten steps, and e^lse has |lse| times the error of lse
_ROUNDINGS = 1000


def agree(assumed: Tensor, true: Tensor, reason: str) -> None:
    """Compare the assumed values or derivatives of the anchors with the true ones.

    Raises:
        WrongCoupling: More than one value in eight differs.
        Unfused: At most one value in eight differs, or some values are not finite. The declaration
            may still be right, because rounding decides between two derivatives at the corner of a
            hinge. The caller then computes the loss in a way that needs no declaration.
    """
    most = _ROUNDINGS * torch.finfo(true.dtype).eps
    slack = most * true.abs().mean()
    apart = ~((assumed - true).abs() <= most * true.abs() + slack)
    apart &= ~(assumed.isnan() & true.isnan())
    if not bool(apart.any()):
        return
    if 8 * int((apart & assumed.isfinite() & true.isfinite()).sum()) > len(true):
        raise WrongCoupling(reason)
    raise Unfused("some derivatives contradict the declared coupling of the anchors")

"""Defines ``Coupling``, how the losses of anchors depend on each other, and checks declarations.

An objective declares its coupling; ``paradigm.objective.Objective`` explains the five values.
During a pass over blocks of similarities, not all statistics are known, and the gradient of an
anchor uses a derivative of the loss that is right only for the declared coupling. At the end of the
pass, the true derivative is computed. If the two differ, an error is raised.
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


def confirm(assumed: Tensor, true: Tensor, reason: str) -> None:
    """Compare the assumed values or derivatives of the anchors with the true ones.

    Raises:
        WrongCoupling: More than one value in eight is finite and differs.
        Unfused: Fewer values differ. The declaration may still be right: at the corner of a hinge,
            rounding decides which of two derivatives is used. The caller then computes the loss in
            a way that needs no declaration.
    """
    most = _ROUNDINGS * torch.finfo(true.dtype).eps
    slack = most * true.abs().mean()
    apart = ~((assumed - true).abs() <= most * true.abs() + slack)
    apart &= ~(assumed.isnan() & true.isnan())
    if not bool(apart.any()):
        return
    if 8 * int((apart & assumed.isfinite() & true.isfinite()).sum()) > len(true):
        raise WrongCoupling(reason)
    raise Unfused("derivatives of some anchors contradict the objective's declared `coupling`")

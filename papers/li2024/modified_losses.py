"""The four modified losses and their components, as table 2 and appendix E print them."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from isotrope.paradigm import build
from papers.li2024.printed_formulas import (
    PrintedComponents,
    PrintedLoss,
    nearest,
    off,
    ones,
    smallest,
    square,
    upper,
)

M, TAU, R = 0.3, 0.05, 1.75
SET = f"m = {M}, tau = {TAU}, r = {R}"


def _active(a: Tensor, b: Tensor) -> Tensor:
    """D_i."""
    s = (a @ b.T).detach()
    return (s.diagonal() - s.masked_fill(~off(s), -torch.inf).amax(dim=1) < M).to(a.dtype)


def _modified(
    weights: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor], PrintedComponents]:
    return lambda a, b: PrintedComponents(_active(a, b), weights(a, b), R * ones(a), a)


def _mhe_weights(a: Tensor, b: Tensor) -> Tensor:
    exponents = a @ a.T / TAU
    return (exponents - upper(a, exponents)).exp() * off(a) / TAU


def _mhs_weights(a: Tensor, b: Tensor) -> Tensor:
    return nearest(a @ a.T) / smallest(a)[:, None]


def _softmax(x: Tensor) -> Tensor:
    exponents = (x @ x.T / TAU).masked_fill(~off(x), -torch.inf)
    return (exponents - exponents.flatten().logsumexp(dim=0)).exp()


def _mmhe_loss(a: Tensor, b: Tensor) -> Tensor:
    """L^u once for the batch; vectors of anchors at d_i = 0 are constant (the anchor's stop)."""
    d, held = _active(a, b), a.detach()
    pull = R / 2 * _mhe_weights(held, b).sum(dim=1)
    live = torch.where(d[:, None] > 0, a, held)
    return (d * pull * square(a, b)).sum() + upper(live, live @ live.T / TAU)


def _mmhs_loss(a: Tensor, b: Tensor, pick: Callable[[Tensor], Tensor] = smallest) -> Tensor:
    align = R / (2 * pick(a).detach()) * square(a, b)
    return (_active(a, b) * (align - smallest(a))).sum()


def _farthest(a: Tensor) -> Tensor:
    return torch.cdist(a, a).amax(dim=1)


def _weighted_loss(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """Eq. 6 and 13: w_n constant, w_p = r sum_j w_n."""
    w, held = weight.detach(), a.detach()
    push = (w * (a @ held.T)).sum(dim=1)
    return (_active(a, b) * (push - R * w.sum(dim=1) * (a * b).sum(dim=1))).sum()


AFTER = (
    PrintedLoss(
        "mMHE",
        _mmhe_loss,
        _modified(_mhe_weights),
        build("modifiedmhe", {"margin": M, "temperature": TAU, "ratio": R}),
    ),
    PrintedLoss(
        "mMHS", _mmhs_loss, _modified(_mhs_weights), build("modifiedmhs", {"margin": M, "ratio": R})
    ),
    PrintedLoss(
        "mB",
        lambda a, b: _weighted_loss(a, b, _softmax(b)),
        _modified(lambda a, b: _softmax(b)),
        build("modifiedbarlowtwins", {"margin": M, "temperature": TAU, "ratio": R}),
    ),
    PrintedLoss(
        "mV",
        lambda a, b: _weighted_loss(a, b, _softmax(a)),
        _modified(lambda a, b: _softmax(a)),
        build("modifiedvicreg", {"margin": M, "temperature": TAU, "ratio": R}),
    ),
)
MISPRINT = replace(AFTER[1], loss=lambda a, b: _mmhs_loss(a, b, _farthest))
"""MMHS with the maximum that appendix E prints in its alignment."""

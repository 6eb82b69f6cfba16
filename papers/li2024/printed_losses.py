"""The four ineffective losses and their modifications, as table 2 and appendix E print them."""

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

NU, NU_B, NU_V = 2.0, 30.0, 7.0
SET_BEFORE = f"nu = {NU:g} (Barlow Twins {NU_B:g}, VICReg {NU_V:g})"


def _mhe_loss(a: Tensor, b: Tensor) -> Tensor:
    pairs = torch.tensor(len(a) * (len(a) - 1) / 2)
    distances = 2 - 2 * a @ a.T
    return square(a, b).mean() + NU * (upper(a, -distances) - pairs.log())


def _mhe_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    exponents = 2 * a @ a.T
    shares = (exponents - upper(a, exponents)).exp() * off(a)
    return PrintedComponents(ones(a), 2 * NU * shares, 1 / (NU * len(a) * shares.sum(dim=1)), a)


def _mhs_loss(a: Tensor, b: Tensor) -> Tensor:
    return square(a, b).mean() - NU * smallest(a).sum()


def _mhs_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    distance = smallest(a)
    weight = NU * nearest(a @ a.T) / distance[:, None]
    return PrintedComponents(ones(a), weight, 2 * distance / (NU * len(a)), a)


def _barlow_loss(a: Tensor, b: Tensor) -> Tensor:
    c = a.T @ b / len(a)
    return (c.diagonal() - 1).square().sum() + NU_B * c.masked_fill(~off(c), 0).square().sum()


def _barlow_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    n, similarity = len(a), b @ b.T * off(a)
    matrix = 1 - (1 - NU_B) * (a * b).mean(dim=0)
    ratio = n * matrix / (NU_B * similarity.sum(dim=1, keepdim=True))
    return PrintedComponents(ones(a), 2 * NU_B * similarity / n**2, ratio, a)


def _vicreg_loss(a: Tensor, b: Tensor) -> Tensor:
    """Without the hinge on deviations, whose gradient the paper leaves out too."""
    return _covariances(a, b, a - a.mean(dim=0), lambda c: c.masked_fill(~off(c), 0))


def _vicreg_simplified(a: Tensor, b: Tensor) -> Tensor:
    return _covariances(a, b, a, lambda c: c)


def _covariances(a: Tensor, b: Tensor, x: Tensor, select: Callable[[Tensor], Tensor]) -> Tensor:
    n, d = a.shape
    return square(a, b).mean() + NU_V * select(x.T @ x / (n - 1)).square().sum() / d


def _vicreg_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    n, d = a.shape
    similarity, factor = a @ a.T * off(a), d * (n - 1) ** 2
    ratio = factor / n / (2 * NU_V * similarity.sum(dim=1))
    return PrintedComponents(ones(a), 4 * NU_V * similarity / factor, ratio, a)


BEFORE = (
    PrintedLoss("MHE", _mhe_loss, _mhe_parts, build("mhe", {"weight": NU})),
    PrintedLoss("MHS", _mhs_loss, _mhs_parts, build("mhs", {"weight": NU})),
    PrintedLoss(
        "Barlow Twins", _barlow_loss, _barlow_parts, build("barlowtwins", {"weight": NU_B})
    ),
    PrintedLoss("VICReg", _vicreg_loss, _vicreg_parts, build("vicreg")),
    PrintedLoss(
        "VICReg, simplified to all of C, not centred",
        _vicreg_simplified,
        _vicreg_parts,
        build("vicreggrad"),
    ),
)


# after modification

M, TAU, R = 0.3, 0.05, 1.75
SET_AFTER = f"m = {M}, tau = {TAU}, r = {R}"


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

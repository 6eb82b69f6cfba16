"""Table 1: GD, W and R of the four effective losses, verified by autograd."""

import math

import torch
from torch import Tensor

from isotrope.paradigm import build
from papers.li2024.printed_formulas import PrintedComponents, PrintedLoss, nearest, off, proved
from papers.machinery.artifact import Rendered, Results, Scale

TAU, U, DOT, DISTANCE = 0.05, math.pi / 18, 0.23, 0.45


def _angle(a: Tensor, b: Tensor, u: float) -> Tensor:
    """Theta_ii' + u."""
    return (a * b).sum(dim=1).acos() + u


def _negatives(a: Tensor, b: Tensor) -> Tensor:
    """Exponents of the negatives, the positive's at minus infinity."""
    return (a @ b.T / TAU).masked_fill(~off(a), -torch.inf)


def _softmax_loss(a: Tensor, b: Tensor, u: float) -> Tensor:
    positive = _angle(a, b, u).cos() / TAU
    total = torch.logaddexp(positive, _negatives(a, b).logsumexp(dim=1))
    return (total - positive).sum()


def _softmax_parts(a: Tensor, b: Tensor, u: float) -> PrintedComponents:
    theta, negatives = _angle(a, b, 0.0), _negatives(a, b)
    odds = ((theta + u).cos() / TAU - negatives.logsumexp(dim=1)).exp()
    ratio = (theta + u).sin() / theta.sin()
    return PrintedComponents(1 / (1 + odds), negatives.softmax(dim=1) / TAU, ratio, b)


def _hardest(a: Tensor, b: Tensor) -> Tensor:
    """Max_{k != i} cos theta_ik'."""
    return (a @ b.T).masked_fill(~off(a), -torch.inf).amax(dim=1)


def _mpt_loss(a: Tensor, b: Tensor) -> Tensor:
    gap = _hardest(a, b) - (a * b).sum(dim=1)
    return (gap + DOT).clamp_min(0).sum()


def _mpt_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    s = (a * b).sum(dim=1)
    active = (s - _hardest(a, b) < DOT).to(s.dtype)
    return PrintedComponents(active, nearest(a @ b.T), torch.ones_like(s), b)


def _met_loss(a: Tensor, b: Tensor) -> Tensor:
    far = (torch.cdist(a, b) + 9 * torch.eye(len(a))).amin(dim=1)
    return ((a - b).square().sum(dim=1).sqrt() - far + DISTANCE).clamp_min(0).sum()


def _met_parts(a: Tensor, b: Tensor) -> PrintedComponents:
    s, hardest = (a * b).sum(dim=1), _hardest(a, b)
    near, far = (2 - 2 * s).sqrt(), (2 - 2 * hardest).sqrt()
    weight = nearest(a @ b.T) / far[:, None]
    return PrintedComponents(
        (far - near < DISTANCE).double(), weight, ((1 - hardest) / (1 - s)).sqrt(), b
    )


LOSSES = (
    PrintedLoss(
        "InfoNCE",
        lambda a, b: _softmax_loss(a, b, 0.0),
        lambda a, b: _softmax_parts(a, b, 0.0),
        build("infonce", {"temperature": TAU}),
    ),
    PrintedLoss(
        "ArcCon",
        lambda a, b: _softmax_loss(a, b, U),
        lambda a, b: _softmax_parts(a, b, U),
        build("arccon", {"temperature": TAU, "margin": U}),
    ),
    PrintedLoss("MPT", _mpt_loss, _mpt_parts, build("mpt", {"margin": DOT})),
    PrintedLoss("MET", _met_loss, _met_parts, build("met", {"margin": DISTANCE})),
)


def render(scale: Scale, results: Results) -> Rendered:
    """Return the components in words, and the two proofs of each."""
    table, verdicts = proved(scale, LOSSES)
    return Rendered(
        tables=[table],
        verdicts=verdicts,
    )

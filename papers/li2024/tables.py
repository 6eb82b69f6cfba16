"""Tables 1 and 2: GD, W and R of the losses, verified by autograd."""

import math

import torch
from torch import Tensor

from isotrope.paradigm import EXACT, build
from papers.li2024.losses import RELEASED, released
from papers.li2024.printed_formulas import (
    WORDS,
    PrintedComponents,
    PrintedLoss,
    nearest,
    off,
    proof_of,
    proved,
)
from papers.li2024.printed_losses import AFTER, BEFORE, MISPRINT, SET_AFTER, SET_BEFORE
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling

# the four effective losses, for table 1

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


def table1(scale: Scale, results: Results) -> Rendered:
    """Return the components in words, and the two proofs of each."""
    table, verdicts = proved(scale, LOSSES)
    return Rendered(
        tables=[table],
        verdicts=verdicts,
    )


def table2(scale: Scale, results: Results) -> Rendered:
    """Return the components in words, the proofs of each, and the form trained in tables 3 to 5."""
    before, verdicts = proved(scale, BEFORE, "before modification")
    after, more = proved(scale, AFTER, "after modification")
    trained, proof = _trained(scale)
    return Rendered(
        tables=[before, after, trained],
        verdicts=[*verdicts, *more, proof],
        notes=[
            f"{SET_BEFORE}; {SET_AFTER}; float64; relative to the largest gradient of a batch, "
            "without what lies along h_i",
            "held constant, as the paper's own derivations do: the nearest negative of MHS and "
            "mMHS, all but h_i in mB and mV, anchors with d_i = 0 in mMHE, where L^u counts once",
            "VICReg fails in centring and in the diagonal of C, its hinge left out: eq. 11 is the "
            "gradient of the simplified loss below it",
            "appendix E prints the maximum of ||h_i - h_j|| in the alignment of mMHS, where only "
            f"the minimum fits: the maximum misses by {MISPRINT.error(scale):.2f}",
        ],
    )


def _trained(scale: Scale) -> tuple[Sheet, Ruling]:
    """The form of the released code, and the registry's proof of it."""
    rows, worst = [], 0.0
    for name in RELEASED:
        objective, settings = released(name)
        error = proof_of(build(objective, settings), scale)
        worst = max(worst, error)
        values = " ".join(f"{name}={value}" for name, value in settings.items())
        rows.append([name, f"{objective} {values}", *WORDS["released"][name], f"{error:.0e}"])
    header = ["loss", "trained as", "GD", "W", "R", "in the registry"]
    return Sheet(header, rows, title="as the released code trains them (tables 3 to 5)"), Ruling(
        "formula and components agree for each of the eight as they are trained in tables 3 to 5",
        worst <= EXACT,
        f"largest error {worst:.0e}",
    )

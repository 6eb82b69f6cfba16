"""Describes in words where the components of an objective differ from its formula.

``proof`` measures whether they differ. This module decomposes the formula and compares the two, to
say whether a factor, a sign, the weights or another part is wrong.
"""

import torch
from torch import Tensor

from isotrope.paradigm.decompose import decompose
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.proof import EXACT, batch, further


def mistakes(objective: Objective) -> list[str]:
    """Say how the components differ from those of the formula, on 4 x 16 random embeddings.

    In this shape the weights of a gradient are unique. Pulls that differ by coordinate and
    objectives without in-batch negatives are not analysed.
    """
    anchors, positives = batch("random", 4, 16)
    if further(objective, anchors) is not None:
        return ["only additional negatives push: compare with autograd by hand"]
    claimed = objective.terms(anchors, positives)
    if claimed.pull.ndim == 2:
        return ["the pull is one for each coordinate: compare with autograd by hand"]
    rest = torch.zeros_like(anchors) if claimed.residual is None else claimed.residual
    if claimed.extra is not None:
        rest = rest + claimed.dissipation[:, None] * claimed.extra
    try:
        measured = decompose(
            lambda x, y: objective(x, y) - claimed.scale * (x * rest).sum(),
            anchors,
            positives,
            against=claimed.against,
            reduction="sum",
        )
    except ValueError as error:
        return [str(error)]
    (push, pull), (true_push, true_pull) = (
        [t.scale * t.dissipation[:, None] * part for part in (t.weight, t.pull[:, None])]
        for t in (claimed, measured.terms)
    )
    size = torch.cat([true_push, true_pull], dim=1).abs().max().clamp_min(1e-300)
    lines = [
        f"the push, scale x GD x W, is {_relation(push / size, true_push / size)}",
        f"the pull, scale x GD x pull, is {_relation(pull / size, true_pull / size)}",
    ]
    if measured.misfit > EXACT:
        lines.append(
            f"{measured.misfit:.0%} of the gradient is along neither the positive nor the "
            f"negatives: against={claimed.against!r} or the residual is not right"
        )
    elif all(line.endswith("is that of the formula") for line in lines):
        lines = ["nothing differs here: see which batches and settings are named above"]
    return lines


def _relation(claimed: Tensor, right: Tensor) -> str:
    """In words, the factor between the two, for the whole matrix or row by row."""
    if _alike(claimed, right):
        return "that of the formula"
    factor = (claimed * right).sum() / right.square().sum()
    if _alike(claimed, factor * right):
        return f"{float(factor):.4g} times that of the formula"
    factors = (claimed * right).sum(dim=1, keepdim=True) / right.square().sum(dim=1, keepdim=True)
    if claimed.shape[1] > 1 and _alike(claimed, factors * right):
        return "that of the formula up to a factor for each anchor: check GD"
    return "not that of the formula"


def _alike(claimed: Tensor, right: Tensor) -> bool:
    """Whether the two are equal, relative to a largest push or pull of 1."""
    return bool((claimed - right).abs().max() <= EXACT)

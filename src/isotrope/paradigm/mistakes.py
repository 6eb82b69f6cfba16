"""Describes in words where the components of an objective differ from its formula.

``proof`` measures that they do; here the formula is decomposed and the two held side by side, which
says whether it is a factor, a sign, the weights or what is missing.
"""

import torch
from torch import Tensor

from isotrope.paradigm.decompose import decompose
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.proof import EXACT, batch, further


def mistakes(objective: Objective) -> list[str]:
    """Say how the components differ from those that the formula has, on 4 x 16 random embeddings.

    There the weights of a gradient are unique. A pull on each coordinate is not reported on, nor an
    objective without negatives in the batch.
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
    """How the first is a multiple of the second, on the whole or row by row, in words."""
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
    """Equal, where 1 is the largest push or pull."""
    return bool((claimed - right).abs().max() <= EXACT)

"""Computes GD, W and R of an objective for one anchor with given angles to the other vectors.

All vectors are unit vectors. The positive and each negative are a sum of two parts: one along the
anchor, and one orthogonal to it. All orthogonal parts are orthogonal to each other. Both views of a
negative are the same vector, so angles are the same within a view and across views.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.hyper import hypers
from isotrope.core.terms import Terms
from isotrope.paradigm.objective import Objective

NEGATIVES = 31
SPREAD = 0.1  # standard deviation of the negatives' angles, in radians
_NEAR = math.pi / 6  # angle of the positive if only the negatives vary


@dataclass(frozen=True)
class Portrait:
    """Dissipation GD, weight W and ratio R of one anchor; angles are in radians.

    Attributes:
        near: Angles between anchor and positive, p values.
        far: Mean angles between anchor and negatives, q values.
        dissipation: Values of GD, p x q.
        ratio: Values of R, p x q, NaN where R is not defined. None if R is nowhere defined.
        angles: Angles of the k negatives of one anchor, whose positive is at pi/6.
        weight: Values of W for these k negatives.
    """

    near: Tensor
    far: Tensor
    dissipation: Tensor
    ratio: Tensor | None
    angles: Tensor
    weight: Tensor


def _scene(objective: Objective, near: float, angles: Tensor) -> Terms:
    """The components for given angles; row 0 of the batch is the anchor."""
    k = len(angles)
    anchors = torch.zeros(k + 1, k + 2, dtype=torch.float64)
    anchors[0, 0] = 1
    anchors[1:, 0] = angles.cos()
    anchors[1:, 2:] = torch.diag(angles.sin())
    positives = anchors.clone()
    positives[0, :2] = torch.tensor([math.cos(near), math.sin(near)])
    return objective.terms(anchors, positives)


def paint(objective: Objective, steps: int = 14) -> Portrait:
    """Compute GD and R at ``steps`` x ``steps`` pairs of angles, and W at 31 angles."""
    near = torch.linspace(0.05, 0.5, steps, dtype=torch.float64) * math.pi
    far = torch.linspace(0.05, 1, steps, dtype=torch.float64) * math.pi
    quantiles = (torch.arange(NEGATIVES, dtype=torch.float64) + 0.5) / NEGATIVES
    around = SPREAD * math.sqrt(2) * torch.erfinv(2 * quantiles - 1)
    scenes = [[_scene(objective, float(p), float(q) + around) for q in far] for p in near]
    dissipation = torch.stack([torch.stack([t.dissipation[0] for t in row]) for row in scenes])
    ratio = torch.tensor([[_ratio(t) for t in row] for row in scenes], dtype=torch.float64)
    angles = torch.linspace(0.1, 0.9, NEGATIVES, dtype=torch.float64) * math.pi
    terms = _scene(objective, _NEAR, angles)
    # if both views push, either has this weight, because both views of a negative are equal
    weight = terms.weight[0, 1 : NEGATIVES + 1]
    some = None if bool(ratio.isnan().all()) else ratio
    return Portrait(near, far, dissipation, some, angles, weight)


def _ratio(terms: Terms) -> float:
    defined = terms.ratio is not None and bool(terms.mass[0] != 0)
    return float(terms.ratio[0]) if defined and terms.ratio is not None else math.nan


def summary(objective: Objective) -> dict[str, str]:
    """Return a dict of dissipation, weight and ratio, each described by a few words.

    dissipation: ``1`` (at every angle), ``1 or 0`` (a margin), or ``1 to 0`` (a fraction).
    weight: ``hardest`` (one negative has weight), ``all`` (several have weight), ``signed`` (some
    weights are negative), or ``none``.
    ratio: a number, ``dynamic``, ``matrix`` (one for each coordinate), or ``only pull``.
    If an objective has no components, all three are ``-``.
    """
    if not objective.has_terms:
        return dict.fromkeys(("dissipation", "weight", "ratio"), "-")
    portrait = paint(objective, steps=4)
    gd, w, r = portrait.dissipation, portrait.weight, portrait.ratio
    if bool((gd == 1).all()):
        dissipation = "1"
    else:
        dissipation = "1 or 0" if bool(((gd == 0) | (gd == 1)).all()) else "1 to 0"
    if bool((w == 0).all()):
        weight, ratio = "none", "only pull"
    else:
        single = int((w != 0).sum()) == 1
        weight = "hardest" if single else "signed" if bool((w < 0).any()) else "all"
        ratio = "matrix"
    if r is not None:
        r = r[~r.isnan()]
        ratio = f"{float(r.mean()):g}" if float(r.max() - r.min()) < 1e-9 else "dynamic"
    return {"dissipation": dissipation, "weight": weight, "ratio": ratio}


def rows(names: Sequence[str]) -> dict[str, list[str]]:
    """Return a dict from names to lists: GD, weight, ratio, paper, equation and settings."""
    rows_ = {}
    for name in names:
        cls = Objective.registered[name]
        settings = ", ".join(f"{field}={shown(getattr(cls, field))}" for field in hypers(cls))
        source = [cls.paper.reference, cls.paper.equation]
        rows_[name] = [*summary(cls()).values(), *source, settings]
    return rows_


def shown(value: object) -> str:
    """Return a setting's value as text, numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

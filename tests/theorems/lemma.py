"""Lemma 1 of Li et al. 2024 on whole batches: its bounds, and who an objective's ratio helps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective
from papers.li2024.lemma import Range, angles, lemma1


@dataclass(frozen=True)
class Satisfied:
    """How often the ratio of an objective brings an anchor closer to its positive.

    Attributes:
        share: satisfied / counted; None if no anchor counts.
        satisfied: anchors whose ratio lies between the bounds.
        counted: anchors that are active, acute and have bounds.
        unbounded: active and acute anchors without bounds (a negative discriminant).
        obtuse: active anchors with one of the three angles at pi/2 or above.
        inactive: anchors with GD < 0.01 or without weights.
    """

    share: float | None
    satisfied: int
    counted: int
    unbounded: int
    obtuse: int
    inactive: int


def lemma1_of(anchors: Tensor, positives: Tensor, step: float) -> Range:
    """Return the bounds of every anchor's ratio, n of each, for its hardest negative."""
    return lemma1(*angles(anchors, positives), step)


@torch.no_grad()
def satisfied(objective: Objective, anchors: Tensor, positives: Tensor, step: float) -> Satisfied:
    """Return how many anchors of a batch an objective's ratio brings closer to their positive.

    As in the statistic that the paper's authors released, only anchors count that the objective
    still moves (GD >= 0.01) and whose three angles are acute; those without bounds are
    counted apart.
    """
    terms = objective.terms(anchors, positives)
    if terms.ratio is None:
        raise ValueError(
            f"Lemma 1 is about one ratio per anchor; found {type(objective).__name__}, whose pull "
            "acts on each coordinate by itself: exchange its ratio (modify(ratio=1))"
        )
    at = angles(anchors, positives)
    bounds = lemma1(*at, step)
    active = (terms.dissipation >= DEAD) & (terms.mass != 0)
    acute = torch.stack(at).cos().gt(0).all(dim=0)
    bounded = bounds.discriminant >= 0
    counted = active & acute & bounded
    inside = counted & (bounds.lower < terms.ratio) & (terms.ratio < bounds.upper)
    total = int(counted.sum())
    return Satisfied(
        share=int(inside.sum()) / total if total else None,
        satisfied=int(inside.sum()),
        counted=total,
        unbounded=int((active & acute & ~bounded).sum()),
        obtuse=int((active & ~acute).sum()),
        inactive=int((~active).sum()),
    )

"""Measures the dynamic ratio of every objective on one model (Li et al., 2024, figure 8b).

The paper records those of ArcCon, MET and MixCSE while its baseline trains: what each objective's
ratio would be on the same embeddings. Here it is every registered objective whose ratio varies, so
that the pictures of different objectives are of the same anchors' angles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from isotrope.core.views import Views
from isotrope.paradigm import registry
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.portrait import summary


@dataclass(frozen=True)
class RatioStatistics:
    """R over the anchors that an objective still moves.

    Attributes:
        mean: the mean of R; None if no anchor is active.
        std: the standard deviation, whose variance divides by the number of anchors; or None.
        above_one: the share of the active anchors with R > 1, or None.
        active: the number of anchors with GD >= 0.01 and some weight.
        count: the number of anchors.
    """

    mean: float | None
    std: float | None
    above_one: float | None
    active: int
    count: int


@torch.no_grad()
def dynamic_ratios(
    batches: Sequence[Views], objectives: Mapping[str, Objective] | None = None
) -> dict[str, RatioStatistics]:
    """Return the ratios of each objective on the same batches, by name."""
    if not batches:
        raise ValueError("ratios are of batches; found none")
    chosen = _dynamic() if objectives is None else objectives
    return {name: _statistics(objective, batches) for name, objective in chosen.items()}


def _dynamic() -> dict[str, Objective]:
    objectives = {name: registry.build(name) for name in registry.names()}
    return {name: o for name, o in objectives.items() if summary(o)["ratio"] == "dynamic"}


def _statistics(objective: Objective, batches: Sequence[Views]) -> RatioStatistics:
    ratios = []
    for views in batches:
        terms = objective.components(objective.compare(views))
        if terms.ratio is None:
            raise ValueError(f"the pull of {type(objective).__name__} is a matrix: it has no ratio")
        active = (terms.dissipation >= DEAD) & (terms.mass != 0)
        ratios.append(terms.ratio[active].double())
    ratio, count = torch.cat(ratios), sum(len(views.anchors) for views in batches)
    if not len(ratio):
        return RatioStatistics(None, None, None, 0, count)
    above = int((ratio > 1).sum()) / len(ratio)
    return RatioStatistics(
        float(ratio.mean()), float(ratio.std(correction=0)), above, len(ratio), count
    )

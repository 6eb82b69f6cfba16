"""Computes the statistics that Li et al. (2024) report for a model, on the user's texts."""

from typing import Any

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.diagnostics.observe import measure
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.paradigm import registry

_QUANTILES = (0.05, 0.5, 0.95)
_DYNAMIC = ("arccon", "met")


def model_geometry(views: Views) -> dict[str, Any]:
    """Return angles, cosines, the hardest negative's share, Lemma 1 and dynamic ratios.

    Returns:
        ``positive_angle`` and ``negative_angle`` with mean and standard deviation in radians
        (figure 9; the simulations assume deviations of 0.05 and 0.10), ``positive_cosine`` and
        ``negative_cosine`` with the 5%, 50% and 95% quantiles (figure 5), ``hardest_share`` of the
        push of InfoNCE at temperature 0.05 (figure 7), ``lemma_share`` of the anchors for which a
        ratio of 1 is above the bound of Lemma 1 (figure 8a), ``ratios`` of ArcCon and MET
        (figure 8b). A statistic that cannot be measured is None.
    """
    measured = {name: measure(registry.build(name), views) for name in ("infonce", *_DYNAMIC)}
    own, unit = measured["infonce"], views.unit()
    cosines = unit.anchors @ unit.positives.T
    return {
        **{
            f"{side}_angle": [own[f"{side}_mean"], own[f"{side}_std"]]
            for side in ("positive", "negative")
        },
        "positive_cosine": _quantiles(cosines.diagonal()),
        "negative_cosine": _quantiles(cosines[choose_pairs(unit).negative()]),
        "hardest_share": own["hardest_share"],
        "lemma_share": own["above_bound"],
        "ratios": {name: measured[name]["ratio"] for name in _DYNAMIC},
    }


def _quantiles(cosines: Tensor) -> list[float] | None:
    if not len(cosines):
        return None
    return [float(x) for x in cosines.quantile(torch.tensor(_QUANTILES, dtype=cosines.dtype))]

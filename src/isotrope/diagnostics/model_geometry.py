"""What Li et al. (2024) measure of a model, on texts of the user's."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.diagnostics.observe import measure
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.paradigm import registry

__all__ = ["geometry_lines", "model_geometry"]

_QUANTILES = (0.05, 0.5, 0.95)
_DYNAMIC = ("arccon", "met")


def model_geometry(views: Views) -> dict[str, Any]:
    """Return angles, cosines, the hardest negative's share, Lemma 1 and dynamic ratios.

    Args:
        views: raw embeddings of both views, n x d.

    Returns:
        ``positive_angle`` and ``negative_angle`` with mean and standard deviation in radians
        (figure 9; the simulations assume deviations of 0.05 and 0.10), ``positive_cosine`` and
        ``negative_cosine`` with the 5%, 50% and 95% quantiles (figure 5), ``hardest_share`` of the
        push of InfoNCE at temperature 0.05 (figure 7), ``lemma_share`` of the anchors for which a
        ratio of 1 is above the bound of Lemma 1 (figure 8a), ``ratios`` of ArcCon and MET
        (figure 8b). None where it cannot be measured.
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


def geometry_lines(found: Mapping[str, Any]) -> Sequence[str]:
    """Return what :func:`model_geometry` has found for a reader, a line each."""
    lines = []
    for side, assumed in (("positive", 0.05), ("negative", 0.10)):
        (mean, std), cosines = found[f"{side}_angle"], found[f"{side}_cosine"]
        if mean is not None and cosines is not None:
            low, middle, high = cosines
            lines.append(
                f"angles with {side}s {mean:.2f} ± {std:.2f} radians (Li et al. 2024 assume "
                f"± {assumed:.2f}); cosines {middle:.2f}, nine in ten from {low:.2f} to {high:.2f}"
            )
    if found["hardest_share"] is not None:
        lines.append(
            f"hardest negative: {found['hardest_share']:.0%} of InfoNCE's push at temperature 0.05"
        )
    if found["lemma_share"] is not None:
        lines.append(f"a ratio of 1 meets Lemma 1 for {found['lemma_share']:.0%} of the anchors")
    ratios = [f"{name} {value:.2f}" for name, value in found["ratios"].items() if value is not None]
    lines += [f"dynamic ratios: {', '.join(ratios)}"] if ratios else []
    if uncovered := found.get("uncovered"):
        scores = ""
        if uncovered["raw"] is not None:
            raw, whitened = uncovered["raw"], uncovered["whitened"]
            scores = (
                f"{uncovered['score']} {raw:.2f} as it is, {whitened:.2f} whitened "
                f"({whitened - raw:+.2f}, 95% interval {uncovered['low']:+.2f} to "
                f"{uncovered['high']:+.2f}); "
            )
        lines.append(f"encoder {uncovered['kind']}: {scores}{uncovered['sentence']}")
    return lines

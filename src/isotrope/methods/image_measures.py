"""What is logged of a batch of images: the components, and how embeddings and features lie."""

import math

import torch
from torch import Tensor

from isotrope.core.gather import summed
from isotrope.core.views import Views
from isotrope.measures.alignment import alignment
from isotrope.measures.dimension_std import dimension_std
from isotrope.measures.effective_rank import rank_of_moment
from isotrope.measures.norms import mean_norm
from isotrope.measures.opposite_halves import opposite_halves
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm.anatomy import anatomy
from isotrope.paradigm.objective import Objective

__all__ = ["MEASURED", "measure"]

MEASURED = ("norm_backbone", "opposite_halves", "far_opposite", "std", "effective_rank")
"""What :func:`measure` has besides what is measured of text."""


@torch.no_grad()
def measure(objective: Objective, views: Views, features: Tensor) -> dict[str, float | None]:
    """Return the components of a batch and how its embeddings lie.

    Args:
        objective: what they are trained with.
        views: raw embeddings of all processes, as the objective sees them.
        features: of the encoder, of this process.

    Returns:
        ``anatomy``'s four; ``alignment`` and ``uniformity``; ``norm`` of the anchors and
        ``norm_backbone`` of the features of all processes; ``opposite_halves`` and
        ``far_opposite``, the shares of pairs more than pi/2 and 7 pi/8 apart; ``std`` and
        ``effective_rank`` of the anchors. Of logits (DINO) there are norms and rank only.
    """
    views = views.detached()
    anchors, own = views.anchors, views.own
    found: dict[str, float | None] = {
        **anatomy(objective, views),
        **dict.fromkeys(("alignment", "uniformity", "opposite_halves", "far_opposite", "std")),
        "norm": float(mean_norm(anchors)),
        "norm_backbone": _mean_of_all(_norms(features)),
        "effective_rank": float(_effective_rank(anchors)),
    }
    if objective.space != "logits":
        found |= {
            "alignment": float(alignment(anchors, own)),
            "uniformity": float(uniformity(anchors)),
            "opposite_halves": float(opposite_halves(anchors, own)),
            "far_opposite": float(opposite_halves(anchors, own, 7 * math.pi / 8)),
            "std": float(dimension_std(anchors)),
        }
    return found


def _norms(features: Tensor) -> Tensor:
    dtype = torch.promote_types(features.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(features, dim=1, dtype=dtype)
    return norms


def _mean_of_all(values: Tensor) -> float:
    return float(summed(values.sum()) / summed(torch.full_like(values.sum(), len(values))))


def _effective_rank(anchors: Tensor) -> Tensor:
    """The effective rank, from the smaller of the two moments, whose eigenvalues are the same."""
    x = anchors.cpu().double()  # Apple's GPUs have no float64
    x = x - x.mean(dim=0)
    return rank_of_moment(x @ x.T if len(x) < x.shape[1] else x.T @ x)

"""What is logged of a batch of images: what is of any batch, and how long the features are."""

import torch
from torch import Tensor

from isotrope.core.distributed import all_reduce_sum
from isotrope.core.views import Views
from isotrope.diagnostics import observe
from isotrope.paradigm.objective import Objective

__all__ = ["TRACKED", "measure"]

TRACKED = ("norm_backbone",)
"""What :func:`measure` has besides what is measured of text."""


@torch.no_grad()
def measure(objective: Objective, views: Views, features: Tensor) -> dict[str, float | None]:
    """Return what is to be seen of a batch, and ``norm_backbone``.

    Args:
        objective: what they are trained with.
        views: raw embeddings of all processes, as the objective sees them.
        features: of the encoder, of this process; ``norm_backbone`` is the mean norm of those of
            all processes.
    """
    return {**observe.measure(objective, views), "norm_backbone": _mean_of_all(_norms(features))}


def _norms(features: Tensor) -> Tensor:
    dtype = torch.promote_types(features.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(features, dim=1, dtype=dtype)
    return norms


def _mean_of_all(values: Tensor) -> float:
    return float(
        all_reduce_sum(values.sum()) / all_reduce_sum(torch.full_like(values.sum(), len(values)))
    )

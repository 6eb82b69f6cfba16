"""Measures a batch of images: the quantities of any batch, and the norm of the features."""

import torch
from torch import Tensor

from isotrope.core.distributed import all_reduce_sum
from isotrope.core.views import Views
from isotrope.diagnostics import observe
from isotrope.paradigm.objective import Objective

TRACKED = ("norm_backbone",)
"""The quantities of :func:`measure` that are not measured for text."""


@torch.no_grad()
def measure(objective: Objective, views: Views, features: Tensor) -> dict[str, float | None]:
    """Return the measures of a batch (``diagnostics.observe.measure``) and ``norm_backbone``.

    Args:
        objective: Objective of the training.
        views: Raw embeddings of all processes, as passed to the objective.
        features: Features of the encoder in this process; ``norm_backbone`` is their mean norm
            over all processes.
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

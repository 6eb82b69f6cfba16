"""The Hessian of a loss with respect to embeddings, which closed forms are compared with."""

from collections.abc import Sequence

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.diagnostics.curvature import Hessian, _mean
from isotrope.paradigm.objective import Objective


def entries(hessian: Hessian) -> Tensor:
    """Return all N x N entries, by N products."""
    return torch.stack([hessian @ row for row in torch.eye(hessian.size).to(hessian.gradient)])


def embedding_hessian(objective: Objective, views: Views | Sequence[Views]) -> Hessian:
    """Return the Hessian with respect to raw embeddings: anchors, positives, negatives.

    Args:
        objective: Any objective that is not a surrogate.
        views: Raw embeddings, n x d, m x d and q x d, whose history is ignored; N = (n + m + q) d.
            With several ``Views`` the loss is their mean, and each has its own embeddings.
    """
    several = [views] if isinstance(views, Views) else list(views)
    free = [batch.map(lambda x: x.detach().clone().requires_grad_()) for batch in several]
    sides = [side for batch in free for side in (batch.anchors, batch.positives, batch.negatives)]
    rows = [side for side in sides if side is not None]
    return Hessian([lambda: _mean(objective, free)], rows)

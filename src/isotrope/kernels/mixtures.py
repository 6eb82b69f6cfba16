"""Mixes, for each anchor, two of its columns into one constant additional negative.

``Mixing`` says which columns and how much of each, before any similarity is known; ``Mixture``
holds the result for some anchors. Backends differ only in how they find the nearest columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.views import Views

Of = Literal["second and hardest", "positive and hardest", "positive and following"]

_CANCELLED = 1e-6  # the length under which a mixture has no direction


@dataclass(frozen=True)
class Mixing:
    """The two columns that an anchor's mixture is made of, and their shares.

    Attributes:
        of: guest and host: its second hardest negative or its positive, and its hardest negative
            or the row of the positives after its own, in a circle.
        share: how much of the guest; the rest is of the host.
        renormalise: the mixture goes back to the sphere.
    """

    of: Of
    share: float
    renormalise: bool = True

    def columns(self, views: Views, rows: slice, nearest: Callable[[int], Tensor]) -> Tensor:
        """Return B x 2, the columns of guest and host; -1 where there is none.

        Args:
            views: The views of the whole batch.
            rows: which anchors, B of them.
            nearest: gives the columns of their k hardest negatives, as ``Pairs.nearest``.
        """
        if self.of == "second and hardest":
            columns = nearest(2).flip(1)
            return torch.nn.functional.pad(columns, (2 - columns.shape[1], 0), value=-1)
        first, last = rows.start + views.offset, rows.stop + views.offset
        rows_at = torch.arange(first, last, device=views.anchors.device)
        hardest = self.of == "positive and hardest"
        return torch.stack(
            [rows_at, nearest(1)[:, 0] if hardest else _following(views, rows_at)], dim=1
        )

    def mixture(self, columns: Tensor, parts: Tensor) -> "Mixture":
        """Return the mixtures of some anchors.

        Args:
            columns: B x 2, as from :meth:`columns`.
            parts: B x 2 x d, the unit vectors of these columns; anything where there is none.
        """
        exists = (columns >= 0).all(dim=1)
        vectors = parts[:, 0].lerp(parts[:, 1], 1 - self.share)
        scale = exists.to(vectors.dtype)
        if self.renormalise:
            size = torch.linalg.vector_norm(vectors, dim=1)
            exists = exists & (size > _CANCELLED)
            scale = exists / size.where(exists, 1.0)
        return Mixture(vectors.mul_(scale[:, None]), exists, columns, scale, self.share)


@dataclass(frozen=True)
class Mixture:
    """One constant vector for each anchor, a sum of two columns.

    Attributes:
        vectors: n x d; zeros where there is no mixture.
        exists: n booleans.
        columns: n x 2, of the guest and of the host.
        scale: n, the factor of the sum.
        share: The share of the guest in the sum.
    """

    vectors: Tensor
    exists: Tensor
    columns: Tensor
    scale: Tensor
    share: float

    @property
    def shares(self) -> Tensor:
        """N x 2, how much of guest and host is in the vector."""
        return self.scale[:, None] * self.scale.new_tensor([self.share, 1 - self.share])

    def logits(self, anchors: Tensor, temperature: float | Tensor) -> Tensor:
        """Return h_i.x_i / temperature, n; -inf where there is no mixture."""
        logits = (anchors * self.vectors).sum(dim=1) / temperature
        return logits.masked_fill(~self.exists, -torch.inf)


def _following(views: Views, rows: Tensor) -> Tensor:
    """The row after each one's own, in a circle; -1 where it is not a negative."""
    if not views.in_batch or len(views.positives) == 1:
        return torch.full_like(rows, -1)
    following = (rows + 1) % len(views.positives)
    if views.groups is None:
        return following
    return following.masked_fill(views.groups[following] == views.groups[rows], -1)

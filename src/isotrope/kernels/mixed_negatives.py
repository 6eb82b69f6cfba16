"""Mixes two embeddings into a synthetic, constant negative for each anchor (hard negative mixing).

The losses are in ``isotrope.objectives.mixing``. ``MixingRule`` says which two columns of the
similarity matrix are mixed, and the share of each. ``MixedNegatives`` are the mixed vectors of a
batch. All backends use both; only their search for the nearest columns differs (``Pairs.mixture``
for single statistics, ``one_pass`` for a whole loss).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.views import Views

Of = Literal["second and hardest", "positive and hardest", "positive and following"]

_CANCELLED = 1e-6  # norm below which a mixture has no direction


@dataclass(frozen=True)
class MixingRule:
    """The rule by which two embeddings are mixed into a negative for each anchor.

    Attributes:
        of: The two parts that are mixed: (second hardest negative, hardest negative), (positive,
            hardest negative), or (positive of the anchor, positive of the next anchor).
        share: Share of the first part in the mixture. The share of the second is 1 - ``share``.
        renormalise: Whether the mixture is scaled to unit length.
    """

    of: Of
    share: float
    renormalise: bool = True

    def columns(self, views: Views, rows: slice, nearest: Callable[[int], Tensor]) -> Tensor:
        """Return the numbers of the two columns that each anchor mixes, B x 2; -1 for no column.

        Args:
            views: Views of the whole batch.
            rows: Slice of B anchors.
            nearest: Function that takes k and returns the columns of these anchors' k hardest
                negatives, as ``Pairs.nearest`` does.
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

    def mixture(self, columns: Tensor, parts: Tensor) -> "MixedNegatives":
        """Return the mixtures of some anchors.

        Args:
            columns: Result of :meth:`columns`, B x 2.
            parts: Unit vectors of these columns, B x 2 x d. For column -1, any values will do.
        """
        exists = (columns >= 0).all(dim=1)
        vectors = parts[:, 0].lerp(parts[:, 1], 1 - self.share)
        scale = exists.to(vectors.dtype)
        if self.renormalise:
            size = torch.linalg.vector_norm(vectors, dim=1)
            exists = exists & (size > _CANCELLED)
            scale = exists / size.where(exists, 1.0)
        return MixedNegatives(vectors.mul_(scale[:, None]), exists, columns, scale, self.share)


@dataclass(frozen=True)
class MixedNegatives:
    """An extra negative for each anchor: a weighted sum of two embeddings, without a gradient.

    Attributes:
        vectors: The mixture of each anchor, n x d; zeros for an anchor without one.
        exists: Whether each anchor has a mixture, n booleans.
        columns: Numbers of the two columns that are mixed for each anchor, n x 2.
        scale: Factor by which the sum of the two parts is multiplied, n values.
        share: Share of the first part in the sum, before ``scale``.
    """

    vectors: Tensor
    exists: Tensor
    columns: Tensor
    scale: Tensor
    share: float

    @property
    def shares(self) -> Tensor:
        """The factors of both columns in the mixture, n x 2."""
        return self.scale[:, None] * self.scale.new_tensor([self.share, 1 - self.share])

    def logits(self, anchors: Tensor, temperature: float | Tensor) -> Tensor:
        """Return h_i.v_i / temperature for anchors h_i and mixtures v_i; -inf without a mixture."""
        logits = (anchors * self.vectors).sum(dim=1) / temperature
        return logits.masked_fill(~self.exists, -torch.inf)


def _following(views: Views, rows: Tensor) -> Tensor:
    """The row after each row (the first after the last); -1 if it is not a negative."""
    if not views.in_batch or len(views.positives) == 1:
        return torch.full_like(rows, -1)
    following = (rows + 1) % len(views.positives)
    if views.groups is None:
        return following
    return following.masked_fill(views.groups[following] == views.groups[rows], -1)

"""Measures the hardest negative's share of the push on an anchor (Li et al., 2024, figure 7).

Where it falls the weights have gone from the hardest negative to all of them; the paper puts that
at a temperature of 0.3 (section 3.2.2).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.objectives.infonce import InfoNCE
from isotrope.paradigm.assemble import tangent

TEMPERATURES = (0.01, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0)
"""Ours: the range of the paper's figure 6, in which its figure 7 must lie."""


@torch.no_grad()
def hardest_share(
    batches: Sequence[Views],
    temperatures: Sequence[float] = TEMPERATURES,
    *,
    margin: float | None = None,
    kind: Literal["weight", "projection"] = "weight",
) -> dict[float, float | None]:
    """Return the mean share of the hardest negative at each temperature, over all anchors.

    ``weight`` is W_in / sum_j W_ij of the exponential weight, as the paper's text says.
    ``projection`` is what its authors' released code computes: with v_j = W_ij (h'_j - s_ij h_i),
    the length of v_n along sum_j v_j over the length of sum_j v_j. It may exceed 1 where others
    push against the hardest; anchors that nothing pushes do not count.

    Example:
        >>> x = torch.eye(3)
        >>> hardest_share([Views(x, x)], [1.0])
        {1.0: 0.5}
    """
    if kind not in ("weight", "projection"):
        raise ValueError(f"kind is 'weight' or 'projection'; found {kind!r}")
    if not all(temperature > 0 for temperature in temperatures):
        raise ValueError(f"temperatures are above 0; found {', '.join(map(str, temperatures))}")
    seen = [_MeasuredBatch(views, margin) for views in batches]
    shares_at: dict[float, float | None] = {}
    for temperature in temperatures:
        shares = torch.cat([batch.share(temperature, kind) for batch in seen])
        shares_at[temperature] = float(shares.mean()) if len(shares) else None
    return shares_at


class _MeasuredBatch:
    """The anchors of a batch that count, with their negatives; in float64."""

    def __init__(self, views: Views, margin: float | None) -> None:
        pairs = InfoNCE().compare(views.map(lambda x: x.detach().cpu().double()))
        similarity = pairs.similarity().masked_fill(~pairs.negative(), -torch.inf)
        hardest, index = similarity.max(dim=1)
        counts = hardest > -torch.inf
        if margin is not None:
            counts &= pairs.positive - hardest < margin
        self.similarity, self.index = similarity[counts], index[counts, None]
        self.anchors, self.columns = pairs.views.anchors[counts], pairs.columns()

    def share(self, temperature: float, kind: str) -> Tensor:
        """Return the share of the hardest negative for each anchor."""
        weight = (self.similarity / temperature).softmax(dim=1)
        most = weight.gather(1, self.index)
        if kind == "weight":
            return most[:, 0]
        push = tangent(weight @ self.columns, self.anchors)
        hardest = tangent(most * self.columns[self.index[:, 0]], self.anchors)
        square = push.square().sum(dim=1)
        pushed = square > 1e-24  # of equal rows rounding alone does
        return (hardest * push).sum(dim=1)[pushed] / square[pushed]

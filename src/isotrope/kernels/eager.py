"""The eager backend: the whole similarity matrix and autograd; the truth for every other backend.

Memory is O(n m). It is the only backend with second derivatives.
"""

import torch
from torch import Tensor

from isotrope.core.softplus import softplus
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mask import Mask
from isotrope.kernels.pairs import Pairs

__all__ = ["EagerPairs"]


class EagerPairs(Pairs):
    """Row statistics from the n x c matrices, each formed once when first asked for."""

    backend = "eager"

    def __init__(self, views: Views) -> None:
        self.views = views
        # by grad mode too: what was formed without history must not be trained through
        self._similarity: dict[tuple[Against, bool], Tensor] = {}
        self._negative: dict[Against, Tensor] = {}

    def of(self, views: Views) -> "EagerPairs":
        return type(self)(views)

    @property
    def positive(self) -> Tensor:
        """n, by direct products: as exact as the matrix entry, without forming the matrix."""
        return (self.views.anchors * self.views.own).sum(dim=1)

    def columns(self, against: Against = "cross") -> Tensor:
        parts = Mask(self.views, against).columns
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def similarity(self, against: Against = "cross") -> Tensor:
        key = (against, torch.is_grad_enabled())
        if key not in self._similarity:
            self._similarity[key] = self.views.anchors @ self.columns(against).T
        return self._similarity[key]

    def negative(self, against: Against = "cross") -> Tensor:
        if against not in self._negative:
            rows = slice(0, len(self.views.anchors))
            self._negative[against] = ~Mask(self.views, against).excluded(rows)
        return self._negative[against]

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        negative = self.negative(against)
        some = negative.any(dim=1)
        # a row without negatives is computed on zeros and then set to -inf: its softmax would
        # otherwise be 0/0 in the backward pass
        masked = (self.similarity(against) / temperature).masked_fill(~negative, -torch.inf)
        masked = masked.masked_fill(~some[:, None], 0.0)
        return torch.logsumexp(masked, dim=1).masked_fill(~some, -torch.inf)

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        values = softplus(self.similarity(against) / temperature)
        return values.masked_fill(~self.negative(against), 0.0).sum(dim=1)

    def count(self, against: Against = "cross") -> Tensor:
        return self.negative(against).sum(dim=1).to(self.views.anchors.dtype)

    def hardest(self, against: Against = "cross") -> Tensor:
        masked = self.similarity(against).masked_fill(~self.negative(against), -torch.inf)
        # argmax takes the first index at ties and sends the whole gradient there; max would share
        return masked.gather(1, masked.argmax(dim=1, keepdim=True)).squeeze(1)

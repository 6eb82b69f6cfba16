"""The eager backend: forms the whole similarity matrix and leaves gradients to autograd.

The other backends are tested against it. Memory is O(n m). It is the only backend with second
derivatives.
"""

import torch
from torch import Tensor

from isotrope.core.softplus import softplus
from isotrope.core.terms import Against
from isotrope.kernels.pairs import Pairs

__all__ = ["EagerPairs"]


class EagerPairs(Pairs):
    """Row statistics from the n x c matrices, each formed once when it is first needed."""

    backend = "eager"

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        negative = self.negative(against)
        some = negative.any(dim=1)
        # a row without negatives is computed on zeros and then set to -inf: its softmax would
        # otherwise be 0/0 in the backward pass
        masked = (self.similarity(against) / temperature).masked_fill(~negative, -torch.inf)
        masked = masked.masked_fill(~some[:, None], 0.0)
        return torch.logsumexp(masked, dim=1).masked_fill(~some, -torch.inf)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        values = softplus(self.similarity(against) / temperature)
        return values.masked_fill(~self.negative(against), 0.0).sum(dim=1)

    def _count(self, against: Against) -> Tensor:
        return self.negative(against).sum(dim=1).to(self.views.anchors.dtype)

    def _hardest(self, against: Against) -> Tensor:
        masked = self.similarity(against).masked_fill(~self.negative(against), -torch.inf)
        # argmax takes the first index at ties and sends the whole gradient there; max would share
        return masked.gather(1, masked.argmax(dim=1, keepdim=True)).squeeze(1)

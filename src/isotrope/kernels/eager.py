"""The eager backend: forms the whole similarity matrix and leaves gradients to autograd.

Only this backend has second derivatives. Its memory grows with the size of the matrix.
"""

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pairs import Pairs


class EagerPairs(Pairs):
    """Row statistics from n x c similarity matrices, which are formed on first use and kept."""

    backend = "eager"

    def __init__(self, views: Views, swapped: "EagerPairs | None" = None) -> None:
        super().__init__(views)
        self._swapped = swapped

    def swapped(self) -> "EagerPairs":
        return EagerPairs(self.views.swapped(), self)

    def similarity(self, against: Against = "cross") -> Tensor:
        # one product for both directions, so that rounding breaks ties alike in both. With
        # additional negatives there are two, because the transposed matrix would lack their columns
        if self._swapped is None or against != "cross" or self.views.negatives is not None:
            return super().similarity(against)
        return self._swapped.similarity(against).T

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        exponents = self.similarity(against) / temperature
        mask = NegativeMask(self.views, against)
        if mask.is_diagonal and not torch._C._are_functorch_transforms_active():
            return torch.logsumexp(exponents.fill_diagonal_(-torch.inf), dim=1)
        excluded = self._excluded(against)
        exponents = exponents.masked_fill(excluded, -torch.inf)
        if mask.each_has_negatives:
            return torch.logsumexp(exponents, dim=1)
        none = excluded.all(dim=1)
        # a row without negatives gets zeros, or its softmax would be 0/0 in the backward pass
        exponents = exponents.masked_fill(none[:, None], 0.0)
        return torch.logsumexp(exponents, dim=1).masked_fill(none, -torch.inf)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        values = softplus(self.similarity(against) / temperature)
        return values.masked_fill(self._excluded(against), 0.0).sum(dim=1)

    def count(self, against: Against = "cross") -> Tensor:
        return (~self._excluded(against)).sum(dim=1).to(self.views.anchors.dtype)

    def hardest(self, against: Against = "cross") -> Tensor:
        masked = self.similarity(against).masked_fill(self._excluded(against), -torch.inf)
        # at ties argmax sends the whole gradient to the first index; max would divide it
        return masked.gather(1, masked.argmax(dim=1, keepdim=True)).squeeze(1)

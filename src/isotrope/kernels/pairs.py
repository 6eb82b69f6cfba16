"""Pairs: what an objective may ask about the similarities of two views.

An objective's formula sees vectors of length n only: the positive similarity, the log-sum-exp
over the negatives, the hardest negative, their number, the similarity with a mixture of two
columns. Whether they came from an n x m matrix or from row blocks in linear memory is the
backend's business. The matrix itself may be asked for by the gradient components
(``similarity``), which are looked at, not trained through.

A negative of anchor i is every column that is neither the anchor itself, nor its positive, nor a
row of the same group (``Views.groups``); with ``Views.in_batch`` False it is none of the batch,
only the further negatives.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mixtures import Mixing, Mixture

__all__ = ["Pairs"]


class Pairs(ABC):
    """Row statistics of unit-length views.

    Attributes:
        views: the views, already in the objective's space.
        backend: name of the backend, e.g. ``"eager"``.
    """

    views: Views
    backend: str

    @abstractmethod
    def of(self, views: Views) -> "Pairs":
        """The same statistics of other views, by the same backend."""

    def swapped(self) -> "Pairs":
        """The same statistics of the other direction: positives as anchors."""
        return self.of(self.views.swapped())

    @property
    @abstractmethod
    def positive(self) -> Tensor:
        """n, the similarity s_ii' of each anchor with its positive."""

    @abstractmethod
    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """n, log sum_j exp(s_ij / temperature) over the negatives; -inf without negatives."""

    @abstractmethod
    def hardest(self, against: Against = "cross") -> Tensor:
        """n, the largest similarity with a negative (first index at ties); -inf without any."""

    @abstractmethod
    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """n, sum_j log(1 + exp(s_ij / temperature)) over the negatives."""

    @abstractmethod
    def count(self, against: Against = "cross") -> Tensor:
        """n, the number of negatives of each anchor, in the dtype of the views."""

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        """N x min(k, c): which columns are the k hardest negatives, the hardest first.

        Ties go by index; -1 stands where an anchor has fewer. They are numbers of columns: no
        gradient goes through the choice.
        """
        found = self.similarity(against).detach().masked_fill(~self.negative(against), -torch.inf)
        order = found.argsort(dim=1, descending=True, stable=True)[:, :k]
        return order.masked_fill(found.gather(1, order) == -torch.inf, -1)

    def mixture(self, mixing: Mixing) -> Mixture:
        """The mixture of each anchor, made of columns of ``columns("cross")``; constant."""
        found = mixing.columns(self.views, slice(0, len(self.views.anchors)), self.nearest)
        return mixing.mixture(found, self.columns().detach()[found.clamp_min(0)])

    def mixed(self, mixing: Mixing, temperature: float | Tensor) -> Tensor:
        """N, h_i.x_i / temperature with the mixture x_i of anchor i; -inf where there is none."""
        return self.mixture(mixing).logits(self.views.anchors, temperature)

    @abstractmethod
    def similarity(self, against: Against = "cross") -> Tensor:
        """N x c, all similarities; the columns are those of ``columns(against)``."""

    @abstractmethod
    def negative(self, against: Against = "cross") -> Tensor:
        """N x c booleans, True where the column is a negative of the anchor."""

    @abstractmethod
    def columns(self, against: Against = "cross") -> Tensor:
        """C x d, the vectors that the anchors are compared with (see ``Terms.against``)."""

"""Defines ``Pairs``: the statistics of similarities from which a formula computes a loss.

A formula uses only vectors of n statistics, one for each anchor: the similarity with its positive,
the log-sum-exp over its negatives, the similarity with its hardest negative or with a mixture of
two columns, and the number of negatives. Functions that compute gradient dissipation, weight or
ratio may also use the whole matrix (``similarity``), because they need no gradient.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mixed_negatives import MixedNegatives, MixingRule
from isotrope.kernels.negative_mask import NegativeMask


def check_temperature(temperature: float | Tensor) -> None:
    """Raise an error if ``temperature`` has several values, which torch would apply to columns."""
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise ValueError(
            "give one number as the temperature, not a tensor of several numbers. For one "
            "temperature per anchor, divide pairs.similarity() by a tensor of shape n x 1"
        )


class Pairs(ABC):
    """Row statistics of unit-length views.

    By default, negatives are in the other view. A subclass implements ``hardest``, ``count``,
    ``_logsumexp`` and ``_softplus``.

    Attributes:
        backend: Name of the backend, e.g. ``"eager"``.
    """

    backend: str

    def __init__(self, views: Views) -> None:
        self._views = views
        # the key includes the grad mode, so that training never gets a detached matrix
        self._matrices: dict[tuple[Against, bool], Tensor] = {}
        self._masks: dict[Against, Tensor] = {}

    @property
    def views(self) -> Views:
        """The views in the objective's space, such as unit vectors."""
        return self._views

    def of(self, views: Views) -> "Pairs":
        """The same statistics for other views, by the same backend."""
        return type(self)(views)

    def swapped(self) -> "Pairs":
        """The same statistics with the views exchanged, so that the positives are the anchors."""
        return self.of(self.views.swapped())

    @property
    def positive(self) -> Tensor:
        """Similarity s_ii' of each anchor with its positive, n values."""
        # products of rows are as exact as the entries of the matrix
        return (self.views.anchors * self.views.own).sum(dim=1)

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """Log of sum_j exp(s_ij / temperature) over negatives j, n values; -inf if no j exists."""
        check_temperature(temperature)
        return self._logsumexp(temperature, against)

    def gap(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """:meth:`logsumexp` minus the quotient :attr:`positive` / ``temperature``, n values.

        In small batches, this difference takes less time than its two terms.
        """
        return self.logsumexp(temperature, against) - self.positive / temperature

    @abstractmethod
    def hardest(self, against: Against = "cross") -> Tensor:
        """Similarity with the hardest negative, n values; -inf for an anchor without negatives."""

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """sum_j log(1 + exp(s_ij / temperature)) over negatives j of anchor i, n values."""
        check_temperature(temperature)
        return self._softplus(temperature, against)

    @abstractmethod
    def count(self, against: Against = "cross") -> Tensor:
        """Number of negatives of each anchor, n values in the dtype of the views."""

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        """Column numbers of each anchor's k hardest negatives, hardest first, n x min(k, c).

        If columns are equally similar, the lower number comes first. If an anchor has fewer than k
        negatives, the remaining numbers are -1. No gradient flows through the choice of columns.
        """
        values = self.similarity(against).detach()
        values = values.masked_fill(~self.negative(against), -torch.inf)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
        return order.masked_fill(values.gather(1, order) == -torch.inf, -1)

    def mixture(self, mixing: MixingRule) -> MixedNegatives:
        """An extra negative for each anchor, mixed from two vectors of ``columns("cross")``."""
        which = mixing.columns(self.views, slice(0, len(self.views.anchors)), self.nearest)
        return mixing.mixture(which, self.columns().detach()[which.clamp_min(0)])

    def mixed(self, mixing: MixingRule, temperature: float | Tensor) -> Tensor:
        """h_i.v_i / temperature for anchor h_i and mixture v_i, n values; -inf without a v_i."""
        return self.mixture(mixing).logits(self.views.anchors, temperature)

    def similarity(self, against: Against = "cross") -> Tensor:
        """All similarities, n x c; the columns are those of ``columns(against)``."""
        key = (against, torch.is_grad_enabled())
        if key not in self._matrices:
            self._matrices[key] = self.views.anchors @ self.columns(against).T
        return self._matrices[key]

    def negative(self, against: Against = "cross") -> Tensor:
        """Whether each column is a negative of the anchor, n x c booleans."""
        return ~self._excluded(against)

    def columns(self, against: Against = "cross") -> Tensor:
        """The vectors that the anchors are compared with (see ``Terms.against``), c x d."""
        sources = NegativeMask(self.views, against).columns
        return torch.cat(sources) if len(sources) > 1 else sources[0]

    @abstractmethod
    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor: ...

    @abstractmethod
    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor: ...

    def _excluded(self, against: Against) -> Tensor:
        """Whether each column is not a negative of the anchor, n x c booleans."""
        if against not in self._masks:
            rows = slice(0, len(self.views.anchors))
            self._masks[against] = NegativeMask(self.views, against).excluded(rows)
        return self._masks[against]

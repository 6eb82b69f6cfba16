"""The Pairs interface: the statistics of the similarities of two views, available to an objective.

An objective's formula sees vectors of length n only: the positive similarity, the log-sum-exp
over the negatives, the hardest negative, their number, the similarity with a mixture of two
columns. Whether they came from an n x m matrix or from row blocks in linear memory is the
backend's business. The matrix itself may be asked for by the gradient components
(``similarity``), which are looked at, not trained through.

``isotrope.kernels.mask`` defines the negatives of an anchor.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mask import Mask
from isotrope.kernels.mixtures import Mixing, Mixture


def check_temperature(temperature: float | Tensor) -> None:
    """Refuse a temperature for each anchor, which would divide columns instead of rows.

    Raises:
        ValueError: more than one number.
    """
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise ValueError(
            "a temperature is one number for all anchors; found a tensor of several: to give each "
            "anchor its own, divide pairs.similarity() by a column"
        )


class Pairs(ABC):
    """Row statistics of unit-length views.

    The public methods say what may be asked, and by default of the other view; a backend answers in
    the methods of the same names with an underscore before them.

    Attributes:
        backend: name of the backend, e.g. ``"eager"``.
    """

    backend: str

    def __init__(self, views: Views) -> None:
        self._views = views
        # by grad mode too: what was formed without history must not be trained through
        self._matrices: dict[tuple[Against, bool], Tensor] = {}
        self._masks: dict[Against, Tensor] = {}

    @property
    def views(self) -> Views:
        """The views, already in the objective's space."""
        return self._views

    def of(self, views: Views) -> "Pairs":
        """The same statistics of other views, by the same backend."""
        return type(self)(views)

    def swapped(self) -> "Pairs":
        """The same statistics of the other direction: positives as anchors."""
        return self.of(self.views.swapped())

    @property
    def positive(self) -> Tensor:
        """n, the similarity s_ii' of each anchor with its positive."""
        # by direct products: as exact as the matrix entry, without forming the matrix
        return (self.views.anchors * self.views.own).sum(dim=1)

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """n, log sum_j exp(s_ij / temperature) over the negatives; -inf without negatives."""
        check_temperature(temperature)
        return self._logsumexp(temperature, against)

    def gap(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """n, :meth:`logsumexp` minus the positive's similarity over the temperature.

        In small batches this one vector costs less than the two that it is made of.
        """
        return self.logsumexp(temperature, against) - self.positive / temperature

    def hardest(self, against: Against = "cross") -> Tensor:
        """n, the largest similarity with a negative (first index at ties); -inf without any."""
        return self._hardest(against)

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        """n, sum_j log(1 + exp(s_ij / temperature)) over the negatives."""
        check_temperature(temperature)
        return self._softplus(temperature, against)

    def count(self, against: Against = "cross") -> Tensor:
        """n, the number of negatives of each anchor, in the dtype of the views."""
        return self._count(against)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        """N x min(k, c): which columns are the k hardest negatives, the hardest first.

        Ties go by index; the value is -1 if an anchor has fewer. They are numbers of columns: no
        gradient goes through the choice.
        """
        return self._nearest(k, against)

    def mixture(self, mixing: Mixing) -> Mixture:
        """The mixture of each anchor, made of columns of ``columns("cross")``; constant."""
        which = mixing.columns(self.views, slice(0, len(self.views.anchors)), self.nearest)
        return mixing.mixture(which, self.columns().detach()[which.clamp_min(0)])

    def mixed(self, mixing: Mixing, temperature: float | Tensor) -> Tensor:
        """N, h_i.x_i / temperature with the mixture x_i of anchor i; -inf where there is none."""
        return self.mixture(mixing).logits(self.views.anchors, temperature)

    def similarity(self, against: Against = "cross") -> Tensor:
        """N x c, all similarities; the columns are those of ``columns(against)``."""
        return self._similarity(against)

    def negative(self, against: Against = "cross") -> Tensor:
        """N x c booleans, True where the column is a negative of the anchor."""
        return self._negative(against)

    def columns(self, against: Against = "cross") -> Tensor:
        """C x d, the vectors that the anchors are compared with (see ``Terms.against``)."""
        return self._columns(against)

    @abstractmethod
    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor: ...

    @abstractmethod
    def _hardest(self, against: Against) -> Tensor: ...

    @abstractmethod
    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor: ...

    @abstractmethod
    def _count(self, against: Against) -> Tensor: ...

    def _nearest(self, k: int, against: Against) -> Tensor:
        values = self.similarity(against).detach()
        values = values.masked_fill(~self.negative(against), -torch.inf)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
        return order.masked_fill(values.gather(1, order) == -torch.inf, -1)

    # the matrices are as large as they are, whichever backend is asked for them

    def _similarity(self, against: Against) -> Tensor:
        key = (against, torch.is_grad_enabled())
        if key not in self._matrices:
            self._matrices[key] = self.views.anchors @ self.columns(against).T
        return self._matrices[key]

    def _negative(self, against: Against) -> Tensor:
        return ~self._excluded(against)

    def _excluded(self, against: Against) -> Tensor:
        """N x c booleans, True where the column is no negative of the anchor."""
        if against not in self._masks:
            rows = slice(0, len(self.views.anchors))
            self._masks[against] = Mask(self.views, against).excluded(rows)
        return self._masks[against]

    def _columns(self, against: Against) -> Tensor:
        sources = Mask(self.views, against).columns
        return torch.cat(sources) if len(sources) > 1 else sources[0]

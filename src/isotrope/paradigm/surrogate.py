"""Builds a loss from gradient components (:class:`~isotrope.Terms`).

    L_i = GD_i (sum_j W_ij h_i.x_j - pull_i h_i.h'_i + h_i.extra_i) + h_i.residual_i

has the gradient that these components describe (Li et al. 2024, eq. 5), if everything but the
anchor h_i is constant. The value of the loss has no meaning: watch the components.

``objective.terms`` returns matrices of weights. In the loss of a large batch, components hold only
the products of the weights with the compared vectors (``isotrope.kernels.surrogate_sums``).
"""

import contextlib
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.kernels.choose import surrogate_pairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused


class _Given(Protocol):
    """The members of an objective that a surrogate uses."""

    @property
    def reduction(self) -> Literal["mean", "sum"]: ...

    def components(self, pairs: Pairs) -> Terms: ...


class Surrogate:
    """The formula of an objective that is defined by ``components`` alone.

    A subclass lists this class before ``Objective`` among its bases. Each view serves once as
    anchors, and the two losses are averaged. ``attraction`` includes the residual.
    """

    holds: ClassVar[Literal["nothing", "negatives", "mixtures", "everything"]] = "everything"

    @property
    def two_directions(self) -> bool:
        return True

    def formula(self: _Given, pairs: Pairs) -> Tensor:
        pull, push = _moves(self, pairs)
        return (pairs.views.anchors * (pull + push)).sum(dim=1)

    def attraction(self: _Given, pairs: Pairs) -> Tensor:
        return (pairs.views.anchors * _moves(self, pairs)[0]).sum(dim=1)

    def repulsion(self: _Given, pairs: Pairs) -> Tensor:
        return (pairs.views.anchors * _moves(self, pairs)[1]).sum(dim=1)


def constant_components(objective: _Given, pairs: Pairs) -> Terms:
    """Return constant components; for a large batch, they store no matrix of weights."""
    return _components(objective, pairs).detached()


@torch.no_grad()
def _components(objective: _Given, pairs: Pairs) -> Terms:
    """The components without a backward graph; forward-mode derivatives remain."""
    if (lean := surrogate_pairs(pairs)) is not None:
        with contextlib.suppress(Unfused):  # components that need the matrix of weights get it
            return objective.components(lean)
    return objective.components(pairs)


@torch.no_grad()
def _moves(objective: _Given, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Pull and push on each anchor, n x d, in the unit of the unreduced formula."""
    terms = _components(objective, pairs)
    # the reduction multiplies by 1 or 1/n, and the mean of both directions by 1/2
    unit = 2 * terms.scale * (1 if objective.reduction == "sum" else len(pairs.views.anchors))
    dissipation = unit * terms.dissipation[:, None]
    pulled = pairs.views.own * -dissipation * terms.pulls
    if terms.residual is not None:
        pulled = pulled + unit * terms.residual
    pushed = terms.weight @ pairs.columns(terms.against)
    if terms.extra is not None:
        pushed = pushed + terms.extra
    return pulled.detach(), (pushed * dissipation).detach()

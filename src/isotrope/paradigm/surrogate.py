"""A loss out of gradient components: everything but the anchor is constant.

    L_i = GD_i (sum_j W_ij h_i.x_j - pull_i h_i.h'_i) + h_i.residual_i

has exactly the assembled components as its gradient (paper 000, eq. 5). Its value is not a
distance to anything: watch the components, not the loss.
"""

from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs

__all__ = ["Surrogate"]


class _Given(Protocol):
    """What a surrogate is made of."""

    @property
    def reduction(self) -> Literal["mean", "sum"]: ...

    def components(self, pairs: Pairs) -> Terms: ...

    def moves(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None: ...


class Surrogate:
    """The formula of an objective that is defined by ``components`` alone.

    It stands before ``Objective`` among the bases. Both views serve once as anchors and the two
    directions are averaged. A residual counts as attraction.
    """

    two_directions: ClassVar[bool] = True
    holds: ClassVar[Literal["nothing", "negatives", "everything"]] = "everything"
    invariances: ClassVar[frozenset[str]] = frozenset(
        {"rotation", "permutation", "scale", "view swap"}
    )

    def moves(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """What pulls and what pushes each anchor, n x d each, without a matrix of weights.

        None where there is no way but through the matrix. The anchors' reduction is not in it.
        """
        return None

    def formula(self: _Given, pairs: Pairs) -> Tensor:
        pull, push = _directions(self, pairs)
        return (pairs.views.anchors * (pull + push)).sum(dim=1)

    def attraction(self: _Given, pairs: Pairs) -> Tensor:
        return (pairs.views.anchors * _directions(self, pairs)[0]).sum(dim=1)

    def repulsion(self: _Given, pairs: Pairs) -> Tensor:
        return (pairs.views.anchors * _directions(self, pairs)[1]).sum(dim=1)


@torch.no_grad()
def _directions(objective: _Given, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """What pulls and what pushes each anchor, n x d, in the unit of the unreduced formula."""
    lean = None if pairs.backend == "eager" else objective.moves(pairs)
    if lean is not None:
        return lean
    terms = objective.components(pairs)
    # the reduction multiplies by 1 or 1/n, the mean of both directions by 1/2
    unit = 2 * terms.scale * (1 if objective.reduction == "sum" else len(pairs.views.anchors))
    dissipation = terms.dissipation[:, None]
    pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
    pulled = -dissipation * pull * pairs.views.own
    if terms.residual is not None:
        pulled = pulled + terms.residual
    return unit * pulled, unit * dissipation * (terms.weight @ pairs.columns(terms.against))

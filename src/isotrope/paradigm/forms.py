"""Makes an objective from another: the mean of both directions, one direction, pull or push.

Call ``objective.symmetric()`` for the mean, or read ``objective.parts`` for pull and push.
"""

from typing import Any, Literal, NamedTuple

from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import averaged
from isotrope.paradigm.objective import Objective, Space


class Derived(Objective, register=False):
    """Base class of objectives that are made from another objective and keep its declarations."""

    objective: Objective

    def __post_init__(self) -> None:
        """Copy the declarations of the class of the objective that this one is made from."""
        for name in ("name", "paper", "batch_level", "least_rows", "holds"):
            object.__setattr__(self, name, getattr(self.objective, name))

    @property
    def two_directions(self) -> bool:
        return self.objective.two_directions

    @property
    def invariances(self) -> frozenset[str]:
        return self.objective.invariances

    @property
    def pairwise(self) -> bool:
        return self.objective.pairwise

    @property
    def takes_negatives(self) -> bool:
        return self.objective.takes_negatives

    @property
    def coupling(self) -> Coupling:
        return self.objective.coupling

    @property
    def space(self) -> Space:
        return self.objective.space

    @property
    def has_terms(self) -> bool:
        return self.objective.has_terms

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return self.objective.reduction

    def prepare(self, views: Views) -> Views:
        return self.objective.prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.objective.formula(pairs)


class OneWay(Derived, register=False):
    """One of the two directions of an objective: only the first view serves as anchors."""

    two_directions = False


class Symmetric(Derived, register=False):
    """The mean of an objective over both directions: each view serves once as anchors.

    GD, W and R are those of the first direction. The residual is the gradient that an anchor
    receives in the second direction, where it is a positive and a negative.
    """

    two_directions = True

    @property
    def invariances(self) -> frozenset[str]:
        return self.objective.invariances | {"view swap"}

    def hyperparameters(self) -> dict[str, Any]:
        return {**self.objective.hyperparameters(), "symmetric": True}

    def attraction(self, pairs: Pairs) -> Tensor:
        return self.objective.attraction(pairs)

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.objective.repulsion(pairs)

    def components(self, pairs: Pairs) -> Terms:
        swapped = pairs.swapped()
        other = self.objective.swapped_components(swapped)
        return averaged(self.objective.components(pairs), other, swapped.views)


class Part(Derived, register=False):
    """The attracting or the repelling part of an objective."""

    side: Literal["attraction", "repulsion"]

    @property
    def has_terms(self) -> bool:
        """False, because only the whole objective has components."""
        return False

    def hyperparameters(self) -> dict[str, Any]:
        return {**self.objective.hyperparameters(), "part": self.side}

    def formula(self, pairs: Pairs) -> Tensor:
        objective = self.objective
        return (
            objective.attraction(pairs) if self.side == "attraction" else objective.repulsion(pairs)
        )


class Parts(NamedTuple):
    """The pull and the push of an objective; their gradients add up to that of the objective."""

    attraction: Objective
    repulsion: Objective

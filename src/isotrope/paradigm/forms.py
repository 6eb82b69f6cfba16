"""Makes an objective from another: the mean of both directions, one direction, pull or push.

Call ``objective.symmetric()`` for the mean, or read ``objective.parts`` for pull and push.
"""

from operator import attrgetter
from typing import Any, Literal, NamedTuple

from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import averaged
from isotrope.paradigm.objective import Objective


class Derived(Objective, register=False):
    """Base class of objectives that are made from another objective and keep its declarations."""

    objective: Objective

    def prepare(self, views: Views) -> Views:
        return self.objective.prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.objective.formula(pairs)

    def hyperparameters(self) -> dict[str, Any]:
        return self.objective.hyperparameters()


for _name in (
    *("name", "paper", "batch_level", "least_rows", "holds", "two_directions", "invariances"),
    *("pairwise", "takes_negatives", "coupling", "space", "has_terms", "reduction"),
):
    setattr(Derived, _name, property(attrgetter(f"objective.{_name}")))


class OneWay(Derived, register=False):
    """One of the two directions of an objective: only the first view serves as anchors."""

    two_directions = False
    has_terms = False  # the components are those of the whole objective


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
        return {**super().hyperparameters(), "symmetric": True}

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
    has_terms = False  # only the whole objective has components

    def hyperparameters(self) -> dict[str, Any]:
        return {**super().hyperparameters(), "part": self.side}

    def formula(self, pairs: Pairs) -> Tensor:
        attracts = self.side == "attraction"
        return (self.objective.attraction if attracts else self.objective.repulsion)(pairs)


class Parts(NamedTuple):
    """The pull and the push of an objective; their gradients add up to that of the objective."""

    attraction: Objective
    repulsion: Objective

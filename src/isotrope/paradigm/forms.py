"""Derives the symmetric form of an objective, and its attracting or repelling part.

They are objectives themselves, made by ``objective.symmetric()`` and ``objective.parts``.
"""

from typing import Any, Literal, NamedTuple

from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import averaged
from isotrope.paradigm.objective import Objective, Space

__all__ = ["Part", "Parts", "Symmetric"]


class Symmetric(Objective, register=False):
    """The mean of an objective over both directions: (H, H') and (H', H).

    The components are those of the first direction; what an anchor receives as a positive and as
    a negative in the second is the residual, in closed form.
    """

    objective: Objective

    two_directions = True

    def __post_init__(self) -> None:
        """Copy the declarations of the objective."""
        _take_over(self)

    @property
    def invariances(self) -> frozenset[str]:
        return self.objective.invariances | {"view swap"}

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

    def hyperparameters(self) -> dict[str, Any]:
        return {**self.objective.hyperparameters(), "symmetric": True}

    def prepare(self, views: Views) -> Views:
        return self.objective.prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.objective.formula(pairs)

    def attraction(self, pairs: Pairs) -> Tensor:
        return self.objective.attraction(pairs)

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.objective.repulsion(pairs)

    def components(self, pairs: Pairs) -> Terms:
        swapped = pairs.swapped()
        other = self.objective.swapped_components(swapped)
        return averaged(self.objective.components(pairs), other, swapped.views)


class Part(Objective, register=False):
    """The attracting or the repelling part of an objective."""

    objective: Objective
    side: Literal["attraction", "repulsion"]

    def __post_init__(self) -> None:
        """Copy the declarations of the objective."""
        _take_over(self)

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
        """The components are those of the whole."""
        return False

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        return self.objective.reduction

    def hyperparameters(self) -> dict[str, Any]:
        return {**self.objective.hyperparameters(), "part": self.side}

    def prepare(self, views: Views) -> Views:
        return self.objective.prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        objective = self.objective
        return (
            objective.attraction(pairs) if self.side == "attraction" else objective.repulsion(pairs)
        )


class Parts(NamedTuple):
    """Both parts of an objective; their gradients add up to that of the whole."""

    attraction: Objective
    repulsion: Objective


_SAME = ("name", "paper", "batch_level", "least_rows", "holds")


def _take_over(form: Symmetric | Part) -> None:
    for name in _SAME:
        object.__setattr__(form, name, getattr(form.objective, name))

"""Objectives out of parts: a new one from three, or an existing one with some exchanged.

The gradient is the definition here. The surrogate

    L_i = GD_i (sum_j W_ij h_i.x_j - pull_i h_i.h'_i)

with everything but h_i held constant has exactly the composed gradient (paper 000, eq. 5); both
views serve once as anchors and the two directions are averaged. Its value is not a distance to
anything: watch the gradient's components, not the loss.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from isotrope.core.errors import nearest
from isotrope.core.hyper import hypers, value_of
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.dissipation import Always, Dissipation
from isotrope.paradigm.objective import Objective, Paper
from isotrope.paradigm.ratio import Ratio, Static
from isotrope.paradigm.weight import Softmax, Weight

__all__ = ["Paradigm", "modify", "part"]

_Part = TypeVar("_Part", Dissipation, Weight, Ratio)


class Paradigm(
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "paper 000, eq. 5",
    ),
):
    r"""An objective given by its three components.

    Loss: the surrogate of this module; both directions averaged.

    Gradient: GD_i * sum_j W_ij (x_j - R_i h'_i).

    Shapes: anchors n x d, positives n x d -> scalar.

    Reference: paper 000, eq. 5 and section 4.2.

    Example:
        >>> from isotrope.paradigm.compose import Paradigm
        >>> from isotrope.paradigm.dissipation import Margin
        >>> Paradigm(dissipation=Margin(margin=0.3), ratio=1.5).ratio
        Static(ratio=1.5)
    """

    dissipation: Any = None
    weight: Any = None
    ratio: Any = None
    parent: Objective | None = None

    two_directions = True
    holds = "everything"
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

    def __post_init__(self) -> None:
        """Turn short forms into parts; without a parent, fill the three with defaults.

        Raises:
            ValueError: a short form that names no part, or a value out of its bounds.
        """
        defaults = (Always(), Softmax(), Static()) if self.parent is None else (None, None, None)
        kinds = (Dissipation, Weight, Ratio)
        for name, kind, default in zip(
            ("dissipation", "weight", "ratio"), kinds, defaults, strict=True
        ):
            given = getattr(self, name)
            value = default if given is None else part(kind, given)  # type: ignore[type-var]
            object.__setattr__(self, name, value)

    @property
    def takes_negatives(self) -> bool:  # type: ignore[override]
        """As the parent does; a composition of parts takes them."""
        return self.parent is None or self.parent.takes_negatives

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        """The sum where the weights hold the 1/n themselves."""
        if self.weight is not None:
            return "sum" if self.weight.batch_wide else "mean"
        return "sum" if _summed(self.parent) else "mean"

    @property
    def _from_sum_to_mean(self) -> bool:
        return _summed(self.parent) and self.reduction == "mean"

    def components(self, pairs: Pairs) -> Terms:
        n = len(pairs.views.anchors)
        given = None if self.parent is None else self.parent.components(pairs)
        dissipation = (
            self.dissipation(pairs) if given is None or self.dissipation else given.dissipation
        )
        weight = self.weight(pairs) if given is None or self.weight else given.weight
        against = self.weight.against if given is None or self.weight else given.against
        if given is None or self.ratio:
            pull = self.ratio(pairs) * weight.sum(dim=1)
        elif self.weight and given.ratio is not None:
            pull = given.ratio * weight.sum(dim=1)
        else:
            # the parent's own; where its 1/n was inside and is now in the mean, it comes out
            pull = given.pull * (n if self._from_sum_to_mean else 1)
        scale = 0.5 if self.reduction == "sum" else 0.5 / n
        return Terms(dissipation, weight, pull, against, scale=scale)

    def formula(self, pairs: Pairs) -> Tensor:
        with torch.no_grad():
            terms = self.components(pairs)
            push = terms.weight @ pairs.columns(terms.against)
            pull = terms.pull if terms.pull.ndim == 2 else terms.pull[:, None]
            direction = terms.dissipation[:, None] * (push - pull * pairs.views.own)
        return (pairs.views.anchors * direction).sum(dim=1)


def _summed(objective: Objective | None) -> bool:
    """Whether the components of an objective hold the 1/n of the batch themselves."""
    return objective is not None and (objective.batch_level or objective.reduction == "sum")


def modify(
    parent: Objective,
    *,
    dissipation: object = None,
    weight: object = None,
    ratio: object = None,
) -> Paradigm:
    """Return ``parent`` with some components exchanged; those not given stay the parent's.

    Args:
        parent: any objective with gradient components.
        dissipation: a part, or its short form (``"margin:0.3"``).
        weight: a part, or its short form (``"softmax:0.05"``).
        ratio: a part, its short form, or a number.
    """
    parent = getattr(parent, "paradigm", parent)  # the modified objectives are paradigms
    if isinstance(parent, Paradigm):
        return Paradigm(
            parent=parent.parent,
            dissipation=parent.dissipation if dissipation is None else dissipation,
            weight=parent.weight if weight is None else weight,
            ratio=parent.ratio if ratio is None else ratio,
        )
    return Paradigm(parent=parent, dissipation=dissipation, weight=weight, ratio=ratio)


def part(kind: type[_Part], given: object) -> _Part:
    """Return a part from itself, from ``"name"``, ``"name:value:value"``, or a number (ratios).

    Raises:
        ValueError: no such part, or a value that it does not take.
    """
    if isinstance(given, kind):
        return given
    if kind is Ratio and isinstance(given, (int, float)):
        return cast("_Part", Static(ratio=given))
    known = cast("Mapping[str, type[_Part]]", kind.known)
    what = kind.__name__.lower()
    if not isinstance(given, str):
        raise ValueError(f"a {what} is one of {', '.join(sorted(known))}; found {given!r}")
    name, *values = given.lower().split(":")
    if kind is Ratio and not values and _is_number(name):
        name, values = "static", [name]
    if name not in known:
        raise ValueError(
            f"unknown {what} {name!r}{nearest(name, known)}; known: {', '.join(sorted(known))}"
        )
    fields = hypers(known[name])
    if len(values) > len(fields):
        takes = f"takes {':'.join(fields)}" if fields else "takes no value"
        raise ValueError(f"{what} {name!r} {takes}; found {':'.join(values)!r}")
    try:
        named = {
            field: value_of(hyper, value)
            for (field, hyper), value in zip(fields.items(), values, strict=False)
        }
        return known[name](**named)
    except ValueError as error:
        raise ValueError(f"{what} {given!r}: {error}") from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

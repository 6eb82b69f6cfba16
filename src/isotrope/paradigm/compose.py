"""Builds an objective from three components, or from a parent objective and new components.

The result is defined by its gradient. The loss is a surrogate with this gradient (see
``isotrope.paradigm.surrogate``): watch the components of the gradient, not the value of the loss.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

import torch

from isotrope.core.errors import InputError, NoTerms, unknown
from isotrope.core.hyper import Paper, check, hypers, is_number, value_of
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.authors_code import Variant, rows_masked, vectors_masked
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Always, Component, Dissipation, Ratio, Softmax, Static, Weight
from isotrope.paradigm.surrogate import Surrogate

_Part = TypeVar("_Part", bound=Component)


class Paradigm(
    Surrogate,
    Objective,
    paper=Paper(
        "Towards Better Understanding of Contrastive Sentence Representation Learning: "
        "A Unified Paradigm for Gradient",
        "Li et al., 2024",
        "Li et al., 2024, eq. 5",
    ),
):
    r"""An objective that is defined by the dissipation GD, weight W and ratio R of its gradient.

    Loss: L_i = GD_i sum_j W_ij (h_i.x_j - R_i h_i.h'_i), averaged over both directions (each view
    serves once as anchors). The loss is a surrogate: everything except h_i is constant. With
    variant="released", h'_i has a gradient too.

    Gradient: GD_i * sum_j W_ij (x_j - R_i h'_i). variant="released" follows the authors' code in
    three ways. The two directions are summed, not averaged. h_i is pulled twice, as an anchor and
    as the positive of h'_i, so the effective R is about twice the chosen R. The mean is over the
    anchors with GD > 0, not over all anchors.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar.

    Reference: Li et al., 2024, section 3.2, eq. 5. The empirical baseline of this section is
    ``Paradigm(dissipation="margin:0.3", weight="softmax:0.05", ratio=1)``, trained on batches of
    128 at a learning rate of 1e-5. For the released code of this baseline, add
    ``variant="released"``.

    Parts: dissipation, weight and ratio are parts or their short forms; the ratio may be a number.
    None takes the component of the parent objective. Without a parent, GD and R are 1, and W is
    ``softmax``.

    Example:
        >>> from isotrope.paradigm.compose import Paradigm
        >>> from isotrope.paradigm.parts import Margin
        >>> Paradigm(dissipation=Margin(margin=0.3), ratio=1.5).ratio
        Static(ratio=1.5)
    """

    dissipation: Any = None
    weight: Any = None
    ratio: Any = None
    parent: Objective | None = None
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        """Turn short forms into parts. Without a parent, missing parts get defaults.

        Raises:
            InputError: a short form that names no part, or has a wrong value.
            ValueError: a value that requires a gradient and gets none.
        """
        super().__post_init__()
        if isinstance(self.parent, Symmetric):  # both directions are averaged anyway
            object.__setattr__(self, "parent", self.parent.objective)
        usual = {
            "dissipation": (Dissipation, Always()),
            "weight": (Weight, Softmax()),
            "ratio": (Ratio, Static()),
        }
        for name, (kind, default) in usual.items():
            component = getattr(self, name)
            if component is not None:
                object.__setattr__(self, name, part(kind, component))
            elif self.parent is None:
                object.__setattr__(self, name, default)
        for source in (self.parent, self.dissipation, self.weight, self.ratio):
            if source is not None:
                check(source, constant=True)

    @property
    def coupling(self) -> Coupling:
        components = (self.dissipation, self.weight, self.ratio)
        used = [x for x in components if x is not None]
        if self.parent is not None and len(used) < len(components):
            used.append(self.parent)
        uncoupled = self.variant == "paper" and all(x.coupling == "none" for x in used)
        return "none" if uncoupled else "batch"

    @property
    def takes_negatives(self) -> bool:
        return self.parent is None or self.parent.takes_negatives

    @property
    def pairwise(self) -> bool:
        return self.parent is None or self.weight is not None or self.parent.pairwise

    @property
    def invariances(self) -> frozenset[str]:
        exchanged = self.weight is not None and self.ratio is not None
        if self.parent is None or exchanged or "rotation" in self.parent.invariances:
            return super().invariances
        return super().invariances - {"rotation"}

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        if self.weight is not None:
            return "sum" if self.weight.batch_wide else "mean"
        return "sum" if _summed(self.parent) else "mean"

    def prepare(self, views: Views) -> Views:
        return super().prepare(views) if self.parent is None else self.parent.prepare(views)

    def hyperparameters(self) -> dict[str, Any]:
        """Return a dict of the fields that are not None; parts are in short form (margin:0.3)."""
        values = {k: v for k, v in super().hyperparameters().items() if v is not None}
        return {k: v.short() if isinstance(v, Component) else v for k, v in values.items()}

    def components(self, pairs: Pairs) -> Terms:
        first = self._direction(pairs)
        if self.variant == "paper":
            return first
        other = self._direction(pairs.swapped())
        if self.parent is None:  # the code of the empirical baseline
            return rows_masked(first, other, pairs.views)
        if self.ratio is None:  # the parent's own pull already covers both directions
            return dataclasses.replace(first, scale=2 * first.scale)
        return vectors_masked(first, other)  # the code of the modified objectives

    def _direction(self, pairs: Pairs) -> Terms:
        """Return one direction's components, as in the paper; a parent's residual is left out."""
        inherited: Any = None  # not used if no component is missing
        if self.parent is not None and None in (self.dissipation, self.weight, self.ratio):
            inherited = self.parent.components(pairs)
        # the weight first, because its sweep also finds the hardest negatives, which GD and R use
        weight = inherited.weight if self.weight is None else self.weight(pairs)
        against = inherited.against if self.weight is None else self.weight.against
        dissipation = inherited.dissipation if self.dissipation is None else self.dissipation(pairs)
        pull = self._pull(pairs, weight, inherited)
        scale = 0.5 if self.reduction == "sum" else 0.5 / len(pairs.views.anchors)
        # the additional push completes the push by the weights, so a new weight replaces both
        extra = inherited.extra if self.weight is None and inherited is not None else None
        return Terms(dissipation, weight, pull, against, scale=scale, extra=extra)

    def _pull(self, pairs: Pairs, weight: torch.Tensor, inherited: Terms) -> torch.Tensor:
        """Return the pull of each anchor, n values or n x d.

        - With a new ratio, the pull is the ratio times the sum of the weights.
        - A statistic of the batch keeps its pull, without its 1/n if a mean now supplies it.
        - With the parent's weight, or a ratio that differs by coordinate, the pull stays the same.
        - With a new weight, the ratio stays the same; a parent that only pulls keeps its pull.
        """
        if self.ratio is not None:
            pull: torch.Tensor = self.ratio(pairs) * weight.sum(dim=1)
            return pull
        if _summed(self.parent):
            return inherited.pull * (len(pairs.views.anchors) if self.reduction == "mean" else 1)
        ratio = inherited.ratio
        if self.weight is None or ratio is None:
            return inherited.pull
        return (ratio * weight.sum(dim=1)).where(inherited.weight.any(), inherited.pull)


def _summed(objective: Objective | None) -> bool:
    """Whether the components of an objective include the factor 1/n of a mean."""
    return objective is not None and (objective.batch_level or objective.reduction == "sum")


def modify(
    parent: Objective, *, dissipation: object = None, weight: object = None, ratio: object = None
) -> Paradigm:
    """Return an objective with the gradient components of ``parent``, except for the given ones.

    If the weight is replaced and the ratio is not, the ratio stays the same and the pull changes.
    In losses of the whole batch (Barlow Twins, MHE), the pull stays the same and the ratio changes.

    Args:
        parent: Any objective with gradient components.
        dissipation: A part, or its short form (``"margin:0.3"``).
        weight: A part, or its short form (``"softmax:0.05"``).
        ratio: A part, its short form, or a number.

    Raises:
        NoTerms: The parent has no gradient components, and not all three are given.
        InputError: A component is not usable, or not with this parent.
    """
    if not parent.has_terms and None in (dissipation, weight, ratio):
        raise NoTerms(type(parent).__name__, parent.space)
    if weight is not None and parent.has_terms and _noise_terms(parent).extra is not None:
        raise InputError(
            f"keep the weight of {type(parent).__name__}, or start from another objective (from "
            "VICRegGrad instead of VICReg): a new weight would remove the push on the variances"
        )
    if ratio is not None and weight is None and not pushes(parent):
        raise InputError(
            "give a weight as well, such as 'softmax:0.05': a ratio is pull divided by push, and "
            f"{type(parent).__name__} pushes nothing away"
        )
    parts = {"dissipation": dissipation, "weight": weight, "ratio": ratio}
    exchanged: dict[str, Any] = {name: x for name, x in parts.items() if x is not None}
    if isinstance(parent, Paradigm):
        return dataclasses.replace(parent, **exchanged)
    return Paradigm(parent=parent, **exchanged)


def pushes(objective: Objective) -> bool:
    """Return whether the objective, with its present settings, pushes anything apart.

    It pushes if a weight W is not 0 for some fixed example embeddings, which are computed here.
    """
    return bool(_noise_terms(objective).weight.any())


def _noise_terms(objective: Objective) -> Terms:
    # a fixed sequence, because vmap refuses random numbers
    noise = torch.arange(96, dtype=torch.float64).square().sin().view(3, 4, 8)
    return objective.terms(noise[0], noise[1], noise[2] if objective.takes_negatives else None)


def part(kind: type[_Part], component: object) -> _Part:
    """Return ``component``, which is a part, a short form or (for a ratio) a number, as a part."""
    if isinstance(component, kind):
        return component
    if kind is Ratio and isinstance(component, (int, float)):
        return cast("_Part", Static(ratio=component))
    known = cast("Mapping[str, Callable[..., _Part]]", kind.by_name)
    what = kind.__name__.lower()
    if not isinstance(component, str):
        raise InputError(f"{what}: give one of {', '.join(sorted(known))}; found {component!r}")
    name, *values = component.lower().split(":")
    if kind is Ratio and not values and is_number(name):
        name, values = "static", [name]
    if name not in known:
        raise InputError(unknown(f"unknown {what}", name, sorted(known)))
    fields = hypers(kind.by_name[name])
    if len(values) > len(fields):
        takes = f"takes {':'.join(fields)}" if fields else "takes no value"
        raise InputError(f"{what} {name!r} {takes}; found {':'.join(values)!r}")
    try:
        hyperparameters = {
            field: value_of(hyper, value)
            for (field, hyper), value in zip(fields.items(), values, strict=False)
        }
        return known[name](**hyperparameters)
    except ValueError as error:
        raise InputError(f"{what} {component!r}: {error}") from error

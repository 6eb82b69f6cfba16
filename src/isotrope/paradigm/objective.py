"""Objective: a formula over two views and the three components of its gradient."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, dataclass_transform

import torch
from torch import Tensor

from isotrope.core.errors import NoPerAnchor
from isotrope.core.hyper import check
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.pairs import Pairs

__all__ = ["Objective", "Paper"]


@dataclass(frozen=True)
class Paper:
    """Where an objective comes from.

    Attributes:
        title: of the publication.
        reference: authors and year.
        equation: where it stands, e.g. ``"paper 000, eq. 1, table 1"``.
    """

    title: str
    reference: str
    equation: str


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Objective:
    """Base class of every objective; a subclass is a frozen keyword-only dataclass.

    A subclass writes its fields, ``formula`` and ``components``; the class statement registers it
    under its lower-case name. Objectives are values: they hold hyperparameters and no state.

    Calling an objective takes raw embeddings (n x d, any float dtype), which are normalised
    inside, and returns the scalar to minimise.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    registered: ClassVar[dict[str, type["Objective"]]] = {}
    # batch-level objectives have one value for the batch, not one for each anchor
    batch_level: ClassVar[bool] = False
    # the value is the mean of both directions (each view once as anchors)
    two_directions: ClassVar[bool] = False
    takes_negatives: ClassVar[bool] = True

    def __init_subclass__(cls, *, paper: Paper | None = None, name: str | None = None) -> None:
        """Make the subclass a frozen dataclass and register it.

        Raises:
            TypeError: without a paper, or with a name that another class already has.
        """
        if paper is None:
            raise TypeError(f"class {cls.__name__}(Objective, paper=Paper(...)) names its source")
        cls.paper = paper
        cls.name = (name or cls.__name__).lower()
        dataclass(frozen=True, kw_only=True)(cls)
        other = Objective.registered.get(cls.name)
        if other is not None and other.__module__ != cls.__module__:
            raise TypeError(f"the name {cls.name!r} is already taken by {other.__module__}")
        Objective.registered[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the hyperparameters.

        Raises:
            ValueError: a value outside the bounds that its field declares.
        """
        check(self)

    # the two halves that an objective's file writes

    def formula(self, pairs: Pairs) -> Tensor:
        """The loss of one direction as printed: n values, or one for batch-level objectives."""
        raise TypeError(f"{type(self).__name__} has no formula")

    def components(self, pairs: Pairs) -> Terms:
        """GD, W and R of the anchors of one direction, with ``scale`` for the whole objective."""
        raise TypeError(f"{type(self).__name__} has no gradient components")

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        """How the anchors' losses become one: the mean, unless a batch statistic holds the 1/n."""
        return "mean"

    # what users call

    def __call__(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
        backend: str = "auto",
    ) -> Tensor:
        """Return the scalar loss.

        Args:
            anchors: n x d raw embeddings of the first view.
            positives: n x d raw embeddings of the second view.
            negatives: q x d further negatives shared by all anchors, or None.
            groups: n integers; rows of one group are not negatives of each other.
            backend: what computes the row statistics, see ``isotrope.kernels.choose``.

        Raises:
            ValueError: shapes that do not fit, or negatives for an objective without any.
        """
        return self.loss(Views(anchors, positives, negatives, groups=groups), backend=backend)

    def loss(self, views: Views, *, backend: str = "auto") -> Tensor:
        """Return the scalar loss of ``views`` (raw embeddings)."""
        values = [self.formula(pairs) for pairs in self._directions(views, backend)]
        reduced = [v.sum() if self.reduction == "sum" else v.mean() for v in values]
        return torch.stack(reduced).mean()

    def per_anchor(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
    ) -> Tensor:
        """Return n losses, unreduced.

        Raises:
            NoPerAnchor: the objective is a statistic of the whole batch.
        """
        if self.batch_level:
            raise NoPerAnchor(
                f"{type(self).__name__} is one number for the whole batch; call the objective"
            )
        views = Views(anchors, positives, negatives, groups=groups)
        values = [self.formula(pairs) for pairs in self._directions(views, "auto")]
        return torch.stack(values).mean(dim=0)

    def terms(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
    ) -> Terms:
        """Return the gradient components of the anchors, without history.

        ``scale * assemble(terms, views)`` is the gradient of the objective with respect to the
        normalised anchors, the other view held constant.
        """
        views = Views(anchors, positives, negatives, groups=groups)
        with torch.no_grad():
            return self.components(self.pairs(views))

    def modify(
        self,
        *,
        dissipation: object = None,
        weight: object = None,
        ratio: object = None,
    ) -> "Objective":
        """Return this objective with some of its three components exchanged.

        Each argument is a part (``Margin(margin=0.3)``), its short form (``"margin:0.3"``), or,
        for the ratio, a number. The result's value is a surrogate: only its gradient has meaning.
        """
        from isotrope.paradigm.compose import modify  # compose defines an Objective itself

        return modify(self, dissipation=dissipation, weight=weight, ratio=ratio)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the fields by name, as they go into configurations and cards."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def _space(self) -> Callable[[Views], Views]:
        """How raw embeddings become what the formula sees: rows on the unit sphere."""
        return Views.unit

    def pairs(self, views: Views, backend: str = "auto") -> Pairs:
        """Return the row statistics of raw ``views`` in the objective's space.

        Raises:
            ValueError: negatives for an objective without any, or a single row.
        """
        if views.negatives is not None and not self.takes_negatives:
            raise ValueError(
                f"{type(self).__name__} has no place for further negatives; "
                "found some: leave them out or choose an objective with negatives (InfoNCE)"
            )
        if len(views.anchors) < 2 and views.negatives is None:
            raise ValueError(
                f"{type(self).__name__} compares rows of a batch; found {len(views.anchors)} row"
            )
        return choose_pairs(self._space()(_single(views)), backend)

    def _directions(self, views: Views, backend: str) -> list[Pairs]:
        pairs = self.pairs(views, backend)
        if not self.two_directions:
            return [pairs]
        return [pairs, choose_pairs(pairs.views.swapped(), backend)]


def _single(views: Views) -> Views:
    """Half-precision embeddings are normalised and compared in float32."""
    if views.anchors.dtype not in (torch.float16, torch.bfloat16):
        return views
    negatives = None if views.negatives is None else views.negatives.float()
    return dataclasses.replace(
        views,
        anchors=views.anchors.float(),
        positives=views.positives.float(),
        negatives=negatives,
    )
